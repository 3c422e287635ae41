"""Faults of memory, planted in real tensors: what tests of memory are held to.

The kinds are those of the literature (van de Goor, "Testing Semiconductor Memories", 1991): a bit
that is stuck, one that cannot change one way, a word that another one disturbs as it changes, two
addresses that share a word, and a cell that forgets while it rests. A fault acts on what lies in
memory, behind the store or the rest that sets it off; nothing is told to the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from workloads.parts.memory.memory_tests import Memory


class Fault(Protocol):
    """Something that goes wrong in memory; addresses count words of 8 bytes."""

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        """Act on memory after a store, `before` which it held other words."""

    def rested(self, memory: FaultyMemory) -> None:
        """Act on memory after a rest."""


@dataclass(kw_only=True)
class FaultyMemory(Memory):
    """Memory with faults; those whose addresses lie elsewhere do nothing."""

    faults: Sequence[Fault] = field(default_factory=list)

    def store(self, place: slice, words: torch.Tensor | int, salt: int = 0) -> None:
        before = self.words.clone()
        super().store(place, words, salt)
        for fault in self.faults:
            fault.stored(self, before)

    def rest(self, seconds: float) -> None:
        """The rest itself is left out, so that tests are quick."""
        del seconds
        for fault in self.faults:
            fault.rested(self)

    def place(self, address: int) -> int | None:
        """Where an address lies in this memory; None where it does not."""
        place = address - self.first
        return place if 0 <= place < len(self.words) else None


class _Quiet:
    """What most faults do at a rest: nothing."""

    def rested(self, memory: FaultyMemory) -> None:
        """Nothing."""


def _bit(bit: int) -> int:
    return (1 << bit) - (1 << 64 if bit == 63 else 0)  # noqa: PLR2004 - the sign of a word


@dataclass(kw_only=True)
class Flip(_Quiet):
    """Bits that flip once, at a store of the word: a particle."""

    address: int
    mask: int
    at_store: int
    num_stores: int = 0

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        place = memory.place(self.address)
        if place is None or memory.words[place] == before[place]:
            return
        self.num_stores += 1
        if self.num_stores == self.at_store:
            memory.words[place] ^= self.mask


@dataclass(kw_only=True)
class StuckBit(_Quiet):
    """A bit that is always 1, or always 0."""

    address: int
    bit: int
    is_one: bool = True

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        del before
        place = memory.place(self.address)
        if place is None:
            return
        if self.is_one:
            memory.words[place] |= _bit(self.bit)
        else:
            memory.words[place] &= ~_bit(self.bit)


@dataclass(kw_only=True)
class Transition(_Quiet):
    """A bit that goes to 0 and never back to 1, once it has been 1."""

    address: int
    bit: int
    was_one: bool = False

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        del before
        place = memory.place(self.address)
        if place is None:
            return
        is_one = bool(memory.words[place] & _bit(self.bit))
        if is_one and self.was_one:
            memory.words[place] &= ~_bit(self.bit)
        self.was_one |= not is_one


@dataclass(kw_only=True)
class Coupling(_Quiet):
    """A bit of a word that flips when the same bit of another one changes, in another store."""

    aggressor: int
    victim: int
    bit: int

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        one, other = memory.place(self.aggressor), memory.place(self.victim)
        if one is None or other is None:
            return
        has_changed = bool((memory.words[one] ^ before[one]) & _bit(self.bit))
        if has_changed and memory.words[other] == before[other]:
            memory.words[other] ^= _bit(self.bit)


@dataclass(kw_only=True)
class Alias(_Quiet):
    """Two addresses that share one word: what is stored last is read from both."""

    one: int
    other: int

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        places = memory.place(self.one), memory.place(self.other)
        if None in places:
            return
        for place, twin in (places, reversed(places)):
            if memory.words[place] != before[place]:
                memory.words[twin] = memory.words[place]


@dataclass(kw_only=True)
class Leak:
    """A cell that is 0 after a rest."""

    address: int
    bit: int

    def stored(self, memory: FaultyMemory, before: torch.Tensor) -> None:
        """Nothing."""

    def rested(self, memory: FaultyMemory) -> None:
        place = memory.place(self.address)
        if place is not None:
            memory.words[place] &= ~_bit(self.bit)
