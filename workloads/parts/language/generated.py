"""Tokens that a device generated, greedily, and what must hold of them whatever the model is.

There are as many as were asked for, all of the vocabulary, none ends its sequence (such tokens are
barred, as serving does below a least length), each is the largest of the device's own logits, and
none is worse in float64, given the tokens before it, than the bound on logits leaves open. So a
rate counts tokens that were generated, each once: no characters, no prompt, no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

from appliance.records.journal import Check, CheckKind
from workloads.contract.target import Artifacts
from workloads.parts.numerics.precision import on_host, rounding

Forward = Callable[[torch.Tensor], torch.Tensor]
Tensors = Mapping[str, torch.Tensor]


@dataclass(kw_only=True)
class Generated:
    """New tokens (sequence, position) and the logits (..., vocabulary) that chose them."""

    tokens: torch.Tensor
    logits: torch.Tensor


def bar(vocabulary: int, ends: Collection[int]) -> torch.Tensor:
    """Add this to logits, and no token that ends a sequence is ever the largest."""
    places = torch.tensor(sorted(ends))
    return torch.zeros(vocabulary).index_fill_(0, places, -torch.inf)


def generate(forward: Forward, read: torch.Tensor, barred: torch.Tensor, count: int) -> Generated:
    """Generate `count` tokens of each sequence, the largest of what `bar` leaves of its logits.

    `forward` reads tokens (sequence, position), first those of `read` and then each new one, and
    gives the logits (sequence, 1, vocabulary) of the last position.
    """
    tokens, logits = [], []
    for _ in range(count):
        logits.append(forward(read))
        read = (logits[-1] + barred).argmax(dim=-1)
        tokens.append(read)
    return Generated(tokens=torch.cat(tokens, dim=1), logits=torch.cat(logits, dim=1))


def reference_once(
    tokens: torch.Tensor, artifacts: Artifacts, name: str, make: Callable[[], Tensors]
) -> Tensors:
    """Float64 logits, given these tokens of a run's first step, made once per run.

    A launch that chose other tokens, where two logits all but tie, has them computed for its own.
    """
    path = artifacts.once(name, lambda path: torch.save({"tokens": tokens, **make()}, path))
    tensors: Tensors = torch.load(path, weights_only=True)
    return tensors if torch.equal(tensors["tokens"], tokens) else make()


def count_missing(output: Generated, shape: tuple[int, int, int]) -> Check:
    """Tokens missing or too many; `shape` is that of the logits. Not within: compare no more."""
    tokens = output.tokens
    missing = abs(tokens.numel() - shape[0] * shape[1])
    if tokens.shape != shape[:2] or output.logits.shape != shape:
        missing = max(missing, 1)
    return Check(name="tokens missing or too many", error=missing, bound=0.0, kind="exact")


def known(tokens: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Return the tokens on the host, with zero for what is no token at all."""
    tokens = tokens.cpu()
    return tokens.where(_is_known(tokens, vocabulary), 0)


def _is_known(tokens: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return (tokens >= 0) & (tokens < vocabulary)


def compare_tokens(output: Generated, ends: Collection[int]) -> Iterator[Check]:
    """Hold every token against the device's own logits."""
    tokens, logits = output.tokens.cpu(), output.logits.cpu()
    vocabulary = logits.shape[-1]
    yield _count("tokens that end a sequence too early", torch.isin(tokens, torch.tensor([*ends])))
    yield _count("tokens outside the vocabulary", ~_is_known(tokens, vocabulary))
    largest = (logits + bar(vocabulary, ends)).amax(2, keepdim=True)
    chosen = logits.gather(2, known(tokens, vocabulary)[..., None])
    yield _count("tokens that are not the largest logit", ~(chosen >= largest))


def compare_choices(
    tokens: torch.Tensor,
    reference: torch.Tensor,
    ends: Collection[int],
    *,
    unit_roundoffs: float,
    dtype: torch.dtype,
    against: str = "float64",
) -> Iterator[Check]:
    """Hold tokens of the vocabulary against the logits (..., vocabulary) of each by a reference.

    That is in float64, or in the format that `against` names.
    """
    reference = on_host(reference)
    best = (reference + bar(reference.shape[-1], ends)).amax(2, keepdim=True)
    lost = best - reference.gather(2, tokens[..., None])
    is_worse = lost > 2 * unit_roundoffs * rounding(dtype) * reference.square().mean().sqrt()
    yield _count(f"tokens that {against} would not choose", is_worse, "numeric")


def _count(name: str, is_wrong: torch.Tensor, kind: CheckKind = "exact") -> Check:
    return Check(name=name, error=int(is_wrong.sum()), bound=0.0, kind=kind)
