"""Text to learn from: tinyshakespeare by characters, and generated tokens with structure.

The generated text is a Markov chain in which every token has few successors, so that a masked
token can be told from its neighbours and the loss of a model that learns must fall.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch

from workloads.contract.failures import ParameterError

MASK, FIRST_ORDINARY = 103, 104
"""BERT's number of its mask token, and the first number that is no special token."""
IGNORED = -100
"""Label of a position that the loss leaves out."""
_SUCCESSORS = 4


def num_masked(length: int) -> int:
    """Labels of one sequence of `masked_text`."""
    return max(1, round(0.15 * length))


def masked_text(
    generator: torch.Generator, *, count: int, length: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token numbers with 15 % of each sequence masked, and the labels, on the host.

    As BERT does: of the chosen positions 80 % become the mask token, 10 % a random token and
    10 % stay. Every sequence has equally many chosen positions, so that every step costs the
    same.
    """
    tokens = _chain(generator, count=count, length=length, vocabulary=vocabulary)
    chosen = torch.rand(count, length, generator=generator).argsort(dim=1)
    chosen = chosen[:, : num_masked(length)]
    originals = tokens.gather(1, chosen)
    labels = torch.full_like(tokens, IGNORED).scatter(1, chosen, originals)
    kind = torch.rand(chosen.shape, generator=generator)
    others = torch.randint(FIRST_ORDINARY, vocabulary, chosen.shape, generator=generator)
    replaced = torch.where(kind < 0.9, others, originals)  # noqa: PLR2004 - the shares above
    replaced[kind < 0.8] = MASK  # noqa: PLR2004 - the shares above
    return tokens.scatter(1, chosen, replaced), labels


def _chain(generator: torch.Generator, *, count: int, length: int, vocabulary: int) -> torch.Tensor:
    """Sequences in which each token is one of the few successors of the one before.

    The table of successors is fixed: it is the language, and the same in every batch.
    """
    language = torch.Generator().manual_seed(vocabulary)
    ordinary = vocabulary - FIRST_ORDINARY
    table = torch.randint(ordinary, (ordinary, _SUCCESSORS), generator=language)
    choices = torch.randint(_SUCCESSORS, (count, length), generator=generator)
    token = torch.randint(ordinary, (count,), generator=generator)
    tokens = torch.empty(count, length, dtype=torch.long)
    for position in range(length):
        tokens[:, position] = token = table[token, choices[:, position]]
    return tokens + FIRST_ORDINARY


def translated_text(
    generator: torch.Generator, *, count: int, length: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts and their translations, token by token, as token numbers on the host.

    The dictionary is fixed and one to one. A translation has the structure of its source: a
    model that reads no source learns the few successors of each token, and one that reads it
    learns which of them comes.
    """
    source = _chain(generator, count=count, length=length, vocabulary=vocabulary)
    language = torch.Generator().manual_seed(vocabulary + 1)
    dictionary = torch.randperm(vocabulary - FIRST_ORDINARY, generator=language)
    return source, dictionary[source - FIRST_ORDINARY] + FIRST_ORDINARY


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Texts of one batch laid end to end without padding; each (sequence, position), int64.

    `positions` start at 0 in every text, which is how a model separates texts; `labels` leave
    the first token of each out, since nothing before it belongs to it.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor

    def visible(self) -> torch.Tensor:
        """Which positions each one sees: those of its own text that are not after it.

        Bool (sequence, 1, position, position), as attention takes it.
        """
        text = (self.positions == 0).cumsum(dim=1)
        return (text[:, :, None] == text[:, None, :]).tril()[:, None]


def packed_text(
    generator: torch.Generator, *, count: int, length: int, vocabulary: int, texts: int
) -> Packed:
    """Fill `count` sequences of `length` with `texts` texts each, of lengths drawn anew.

    Each sequence has as many texts, so the means of equal parts of a batch have the mean of all.
    """
    tokens = _chain(generator, count=count, length=length, vocabulary=vocabulary)
    ends = torch.rand(count, length - 1, generator=generator).argsort(dim=1)[:, : texts - 1] + 1
    is_first = torch.zeros(count, length, dtype=torch.bool).scatter(1, ends, value=True)
    is_first[:, 0] = True
    places = torch.arange(length).expand(count, length)
    starts = places.where(is_first, 0).cummax(dim=1).values
    return Packed(
        tokens=tokens, positions=places - starts, labels=tokens.masked_fill(is_first, IGNORED)
    )


@dataclass(frozen=True, kw_only=True)
class Characters:
    """A text as numbers of its characters: the first 90 % to train on, the rest to validate."""

    training: torch.Tensor
    validation: torch.Tensor


SHAKESPEARE_CHARACTERS = 65
_MANIFEST = Path(__file__).parents[2] / "datasets.toml"


def shakespeare(data: Path | None) -> Characters:
    """Read tinyshakespeare from the folder of data sets, as int64 on the host.

    Raises ParameterError if the file is missing, or is not the text for which the validation
    loss is stated: another text would make that target mean nothing.
    """
    path = (data or Path("data")) / "tinyshakespeare" / "input.txt"
    fix = "fetch it with `bench data fetch tinyshakespeare`"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        message = f"the data set tinyshakespeare is missing ({path}): {fix}"
        raise ParameterError(message) from None
    if hashlib.sha256(raw).hexdigest() != _pinned("tinyshakespeare", "input.txt"):
        message = f"{path} is not the text whose validation loss is stated: {fix}"
        raise ParameterError(message)
    number = {character: index for index, character in enumerate(sorted(set(raw)))}
    text = torch.tensor([number[character] for character in raw])
    split = int(0.9 * len(text))
    return Characters(training=text[:split], validation=text[split:])


def _pinned(dataset: str, file: str) -> str:
    """Digest of a file as the manifest of data sets has it."""
    manifest = tomllib.loads(_MANIFEST.read_text())
    files = next(entry["file"] for entry in manifest["dataset"] if entry["name"] == dataset)
    digest: str = next(entry["sha256"] for entry in files if entry["name"] == file)
    return digest
