"""Stress of the way between host and device: words there and back, compared on both sides.

A turn copies one of several sets of words from page-locked memory to the device, where a digest of
them with odd weights is held to the one that the host made of them beforehand; then back into other
memory of the host, where every word is compared. One changed word alters the digest with certainty;
other changes are missed with probability 2**-64 times few. A processor is its own device: there
both copies are between buffers of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from workloads.parts.burning.mismatches import Event
from workloads.parts.memory.copies import WORD, words
from workloads.parts.stress.turns import FEW, Independent, Turn, again, difference

NUM_BYTES = 2**25
NUM_SETS = 3
ON_DEVICE = 4 * NUM_BYTES
"""Bytes of the device's memory: the copy, the weights, and what a digest needs."""


@dataclass(frozen=True, kw_only=True)
class _Set:
    """Words on the host, and the digest of them that the host made."""

    words: torch.Tensor
    digest: int


@dataclass(kw_only=True)
class Copies(Independent):
    """Sets of words, the buffers that they are copied into, and the digests' weights."""

    sets: list[_Set]
    there: torch.Tensor
    back: torch.Tensor
    weights: torch.Tensor
    share: float
    rate: float | None = None
    number: int = 0
    asked: str = field(init=False)

    def __post_init__(self) -> None:
        way = "two buffers of the host" if self._is_host else "page-locked memory and the device"
        self.asked = (
            f"1 thread {100 * self.share:.0f} % of the time, copies of {self.there.nbytes:,} bytes "
            f"between {way}, there and back"
        )

    @property
    def _is_host(self) -> bool:
        return self.there.device.type == "cpu"

    @classmethod
    def make(cls, *, seed: int, device: torch.device, share: float, num_bytes: int) -> Copies:
        """Draw the sets, of so many bytes each; `share` of the time is spent copying."""
        torch.set_num_threads(1)
        rng = torch.Generator().manual_seed(seed)
        count = num_bytes // WORD
        weights = torch.randint(-(2**62), 2**62, (count,), generator=rng) * 2 + 1
        drawn = [words(seed, index, num_bytes) for index in range(NUM_SETS)]
        return cls(
            sets=[_Set(words=_locked(one, device), digest=_digest(one, weights)) for one in drawn],
            there=torch.zeros(count, dtype=torch.int64, device=device),
            back=_locked(torch.zeros(count, dtype=torch.int64), device),
            weights=weights.to(device),
            share=share,
        )

    def turn(self) -> Turn:
        """There and back once."""
        one = self.sets[self.number % len(self.sets)]
        self.number += 1
        wrong = list(self._compared(one))
        size = 2 * self.there.nbytes
        return Turn(proven=size, moved=size, wrong=wrong)

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """One copy, which is waited for."""
        into.copy_(source)

    def _compared(self, one: _Set) -> Iterator[Event]:
        place = self._wrong_in(one)
        if place:
            times = sum(bool(self._wrong_in(one)) for _ in range(FEW))
            yield again(f"copy of set {self.number:,}, {place}", times)

    def _wrong_in(self, one: _Set) -> str:
        """Copy a set there and back, and say what is wrong, or nothing."""
        self.copy(self.there, one.words)
        digest = _digest(self.there, self.weights)
        self.copy(self.back, self.there)
        apart = (self.back != one.words).nonzero()
        way = "on its way to the device" if digest != one.digest else "on its way back"
        if not len(apart):
            return f"{way}: another digest" if digest != one.digest else ""
        first = int(apart[0])
        read = difference(int(self.back[first]), int(one.words[first]))
        return f"{way}: {len(apart):,} words: {read} at word {first:,}"


def _locked(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    return host if device.type == "cpu" else host.pin_memory()


def _digest(numbers: torch.Tensor, weights: torch.Tensor) -> int:
    """Sum of the words times odd weights, modulo 2**64."""
    return int((numbers * weights).sum())
