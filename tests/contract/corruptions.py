"""The ways in which one tensor of an output is spoiled, each by its name.

A way returns a spoiled copy, or None where it does not apply. Bits are spoiled apart (`flip`),
because which of them a check must see depends on what it says that it detects.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator

import torch
from leaves import Leaf, Path_, like, norm

MANY = 4  # leaves of one field of an output, beyond which they are drawn
NOISE = 1e-3  # of the largest leaf of a field: below, a leaf is rounding alone
SEED = 2**31 + 5
TAIL = 16  # the last of so many parts
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Spoil = Callable[[torch.Tensor], torch.Tensor | None]


def _one(true: torch.Tensor, value: float) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[wrong.numel() // 2] = value
    return wrong


def _row(true: torch.Tensor, factor: float) -> torch.Tensor | None:
    """The row with the largest element, multiplied; None where there are no rows."""
    if true.dim() < 2:
        return None
    wrong = true.clone()
    wrong[int(true.abs().argmax()) // (true.numel() // true.shape[0])] *= factor
    return wrong


def _negated(true: torch.Tensor) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[int(true.abs().argmax())] *= -1
    return wrong


def _off_by_one(true: torch.Tensor) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[wrong.numel() // 2] += 1
    return wrong


def _poison(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return math.nan if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max


def _unwritten(true: torch.Tensor) -> torch.Tensor:
    """The last part holds what a poisoned buffer held before."""
    wrong = true.clone()
    wrong.reshape(-1)[_tail(true)] = _poison(true.dtype)
    return wrong


def _tail(true: torch.Tensor) -> slice:
    return slice(true.numel() - math.ceil(true.numel() / TAIL), None)


OF_FLOATS: dict[str, Spoil] = {
    "all NaN": lambda true: torch.full_like(true, math.nan),
    "all Inf": lambda true: torch.full_like(true, math.inf),
    "one NaN": lambda true: _one(true, math.nan),
    "one Inf": lambda true: _one(true, math.inf),
    "zeros": torch.zeros_like,
    "tail never written": _unwritten,
    "scaled by 1.01": lambda true: true * 1.01,
    "sign of the largest element flipped": _negated,
    "sign of one row flipped": lambda true: _row(true, -1),
    "one row lost": lambda true: _row(true, 0),
}
OF_INTEGERS: dict[str, Spoil] = {
    "zeros": torch.zeros_like,
    "never written": lambda true: torch.full_like(true, _poison(true.dtype)),
    "tail never written": _unwritten,
    "one element off by one": _off_by_one,
    "all off by one": lambda true: true + 1,
}
OF_BOOLEANS: dict[str, Spoil] = {"negated": torch.logical_not}
STALE_TAIL = "tail left from the step before"
NOT_A_VALUE = {"all NaN", "all Inf", "one NaN", "one Inf", "tail never written"}
"""A leaf that is rounding alone must be finite; it has no value that could be spoiled."""


def kinds(leaf: Leaf) -> dict[str, Spoil]:
    """The ways in which a leaf of this type can be spoiled."""
    dtype = torch.as_tensor(leaf).dtype
    if dtype == torch.bool:
        return OF_BOOLEANS
    return OF_FLOATS if dtype.is_floating_point or dtype.is_complex else OF_INTEGERS


def spoiled(leaf: Leaf, name: str) -> Leaf | None:
    """A spoiled copy, or None if that way changes no value of this leaf."""
    true = torch.as_tensor(leaf).detach()
    wrong = kinds(leaf)[name](true)
    return None if wrong is None or torch.equal(wrong, true) else like(leaf, wrong)


def stale_tail(leaf: Leaf, previous: Leaf | None) -> Leaf | None:
    """A copy whose last part is of the step before, or None if that is the same."""
    if previous is None or previous.shape != leaf.shape or not leaf.shape:
        return None
    wrong = torch.as_tensor(leaf).detach().clone()
    part = _tail(wrong)
    wrong.reshape(-1)[part] = torch.as_tensor(previous).reshape(-1)[part]
    return None if torch.equal(wrong, torch.as_tensor(leaf)) else like(leaf, wrong)


def by_field(result: dict[Path_, Leaf]) -> list[list[Path_]]:
    """The leaves of each field of an output in a random order, which every run draws the same."""
    fields: dict[str, list[Path_]] = {}
    for path in result:
        fields.setdefault(path[0] if path else "", []).append(path)
    draw = random.Random(SEED)  # noqa: S311 - a test's choice, no secret
    return [draw.sample(paths, len(paths)) for paths in fields.values()]


def drawn(
    result: dict[Path_, Leaf], previous: dict[Path_, Leaf]
) -> Iterator[tuple[Path_, str, Leaf]]:
    """Every corruption of every leaf; of a field with many leaves, one leaf per corruption.

    A model's gradients are hundreds of leaves that pass through the same lines of a check, so
    one is drawn for each way of spoiling. BENCH_EVERY_LEAF=1 leaves nothing out. A leaf that
    is nothing but rounding beside its siblings has no value that could be spoiled (the
    gradient of an attention's key bias, which is zero): it must be finite, no more.
    """
    for paths in by_field(result):
        norms = {path: norm(result[path]) for path in paths}
        is_whole = len(paths) <= MANY or "BENCH_EVERY_LEAF" in os.environ
        done: set[str] = set()
        for path in paths:
            is_noise = norms[path] < NOISE * max(norms.values())
            for name in (*kinds(result[path]), STALE_TAIL):
                if (name not in NOT_A_VALUE and is_noise) or (name in done and not is_whole):
                    continue
                if name == STALE_TAIL:
                    wrong = stale_tail(result[path], previous.get(path))
                else:
                    wrong = spoiled(result[path], name)
                if wrong is not None:
                    done.add(name)
                    yield path, name, wrong


def largest(result: dict[Path_, Leaf]) -> list[Path_]:
    """Of each field of an output, the leaf with the largest norm that is of floats."""
    chosen = []
    for paths in by_field(result):
        floats = [path for path in paths if kinds(result[path]) is OF_FLOATS]
        if floats:
            chosen.append(max(floats, key=lambda path: norm(result[path])))
    return chosen


# ------------------------------------------------------------------ single elements and bits


def _real(leaf: Leaf) -> torch.Tensor:
    """A contiguous copy; a complex number is two real ones."""
    copy = torch.as_tensor(leaf).detach().clone().contiguous()
    return torch.view_as_real(copy) if copy.is_complex() else copy


def _as_given(leaf: Leaf, real: torch.Tensor) -> Leaf:
    is_complex = torch.as_tensor(leaf).is_complex()
    return like(leaf, torch.view_as_complex(real) if is_complex else real)


def place(leaf: Leaf) -> int:
    """Where the element of the largest size lies."""
    return int(_real(leaf).double().abs().reshape(-1).argmax())


def moved(leaf: Leaf, where: int, by: float) -> tuple[Leaf, float]:
    """A copy with one element moved by a multiple of itself, and how far it went."""
    wrong = _real(leaf)
    flat = wrong.view(-1)
    old = flat[where].double().item()
    flat[where] = old + by * (abs(old) or 1.0)
    return _as_given(leaf, wrong), abs(flat[where].double().item() - old)


def scaled(leaf: Leaf, factor: float) -> Leaf:
    return like(leaf, torch.as_tensor(leaf).detach() * factor)


def stored_roundoff(leaf: Leaf) -> float:
    """The smallest relative change that moves every element of the format; 0 for integers."""
    dtype = torch.as_tensor(leaf).dtype
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point or dtype.is_complex else 0.0


def nudged(leaf: Leaf) -> Leaf:
    """Every element changed in its lowest bit."""
    wrong = _real(leaf)
    wrong.view(WORDS[wrong.element_size()]).bitwise_xor_(1)
    return _as_given(leaf, wrong)


def flip(leaf: Leaf, where: int, bit: int) -> tuple[Leaf, float]:
    """A copy with one bit of one element flipped, and how far that moves it (may be infinite)."""
    wrong = _real(leaf)
    flat = wrong.view(-1)
    old = flat[where].double().item()
    words = flat.view(WORDS[flat.element_size()])
    width = 8 * flat.element_size()
    words[where] ^= (1 << bit) - (1 << width if bit == width - 1 else 0)
    change = abs(flat[where].double().item() - old)
    return _as_given(leaf, wrong), change if math.isfinite(change) else math.inf


def num_bits(leaf: Leaf) -> int:
    return 8 * _real(leaf).element_size()
