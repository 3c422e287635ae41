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

from appliance.generator.maps import WORDS, integers
from workloads.contract.failures import ParameterError
from workloads.parts.drawing.drawn import Drawer, Wanted

MASK, FIRST_ORDINARY = 103, 104
"""BERT's number of its mask token, and the first number that is no special token."""
IGNORED = -100
"""Label of a position that the loss leaves out."""
_SUCCESSORS = 4
_KIND_RANDOM = 8
"""Of ten kinds of masked positions: those below become the mask token, the last one stays."""


def num_masked(length: int) -> int:
    """Labels of one sequence of `masked_text`."""
    return max(1, round(0.15 * length))


@dataclass(frozen=True, kw_only=True)
class Language:
    """Text in which each token is one of the few successors of the one before.

    `successors` (ordinary tokens, 4) is the table of a launch and the same in every batch; ordinary
    tokens count from 0 in it.
    """

    drawer: Drawer
    successors: torch.Tensor

    @classmethod
    def of(cls, drawer: Drawer, vocabulary: int) -> Language:
        """The language that a drawer draws, of so many tokens with the special ones."""
        return cls(drawer=drawer, successors=drawer.tensor(*_successors(vocabulary)))

    @property
    def ordinary(self) -> int:
        """Tokens that are not special."""
        return len(self.successors)

    def text(self, name: str, count: int, length: int) -> torch.Tensor:
        """Tokens (count, length), where the drawer draws; `name` tells them from other texts."""
        choices, token = (
            self.drawer.tensor(*one) for one in _text(self.ordinary, name, count, length)
        )
        successors, tokens = self.successors.reshape(-1), []
        for choice in choices.unbind(1):
            token = successors[torch.add(choice, token, alpha=_SUCCESSORS)]
            tokens.append(token)
        return torch.stack(tokens, dim=1).add_(FIRST_ORDINARY)

    def order(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The places of the last dimension in random order, by 64 random bits each."""
        words = self.drawer.tensor(name, WORDS, torch.int64, shape)
        return words.argsort(dim=-1, stable=True)


def wanted_masked_text(vocabulary: int, name: str, *, count: int, length: int) -> list[Wanted]:
    """What `masked_text` draws, and the language before."""
    ordinary = vocabulary - FIRST_ORDINARY
    text = _text(ordinary, name, count, length)
    return [_successors(vocabulary), *text, *_masks(ordinary, name, count, length)]


def _successors(vocabulary: int) -> Wanted:
    ordinary = vocabulary - FIRST_ORDINARY
    return _integers("successors", ordinary, (ordinary, _SUCCESSORS))


def _text(ordinary: int, name: str, count: int, length: int) -> tuple[Wanted, Wanted]:
    """What tokens follow each other by: which successor at each position, and the first tokens."""
    return (
        _integers(f"choices {name}", _SUCCESSORS, (count, length)),
        _integers(f"first tokens {name}", ordinary, (count,)),
    )


def _masks(ordinary: int, name: str, count: int, length: int) -> tuple[Wanted, Wanted, Wanted]:
    """What masks a text: the places' order, tenths that say how, and tokens to put there."""
    masked = (count, num_masked(length))
    return (
        (f"masked {name}", WORDS, torch.int64, (count, length)),
        _integers(f"replaced {name}", 10, masked),
        _integers(f"replacements {name}", ordinary, masked),
    )


def _integers(name: str, below: int, shape: tuple[int, ...]) -> Wanted:
    return name, integers(0, below - 1), torch.int64, shape


def masked_text(
    language: Language, name: str, *, count: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token numbers with 15 % of each sequence masked, and the labels.

    As BERT does: of the chosen positions 80 % become the mask token, 10 % a random token and
    10 % stay. Every sequence has equally many chosen positions, so that every step costs the
    same.
    """
    tokens = language.text(name, count, length)
    order, tenths, ordinary = _masks(language.ordinary, name, count, length)
    chosen = language.drawer.tensor(*order).argsort(dim=-1, stable=True)[:, : num_masked(length)]
    originals = tokens.gather(1, chosen)
    labels = torch.full_like(tokens, IGNORED).scatter(1, chosen, originals)
    kind = language.drawer.tensor(*tenths)
    others = language.drawer.tensor(*ordinary) + FIRST_ORDINARY
    replaced = others.where(kind == _KIND_RANDOM, originals).where(kind >= _KIND_RANDOM, MASK)
    return tokens.scatter(1, chosen, replaced), labels


def dictionary(language: Language) -> torch.Tensor:
    """The translation of each ordinary token, one to one, counted from 0."""
    return language.order("dictionary", (language.ordinary,))


def translated_text(
    language: Language, translations: torch.Tensor, name: str, *, count: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts and their translations, token by token, as token numbers.

    `translations` is what `dictionary` made. A translation has the structure of its source: a
    model that reads no source learns the few successors of each token, and one that reads it
    learns which of them comes.
    """
    source = language.text(name, count, length)
    return source, translations[source - FIRST_ORDINARY] + FIRST_ORDINARY


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


def packed_text(language: Language, name: str, *, count: int, length: int, texts: int) -> Packed:
    """Fill `count` sequences of `length` with `texts` texts each, of lengths drawn anew.

    Each sequence has as many texts, so the means of equal parts of a batch have the mean of all.
    """
    tokens = language.text(name, count, length)
    ends = language.order(f"ends {name}", (count, length - 1))[:, : texts - 1] + 1
    is_first = torch.zeros_like(tokens, dtype=torch.bool).scatter(1, ends, value=True)
    is_first[:, 0] = True
    places = torch.arange(length, device=tokens.device).expand(count, length)
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
