"""What every kind of stress makes: turns of well below a second, each says what it proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from workloads.parts.burning.mismatches import Event

FEW = 10
"""Times that what was wrong is read or copied again."""


class OutOfRoom(Exception):
    """There is no room left for what was asked, which is no fault of a device; says where."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One piece of work: bytes that were compared, bytes that were moved, products, mismatches."""

    proven: int
    moved: int
    products: int = 0
    wrong: list[Event] = field(default_factory=list)


class Load(Protocol):
    """A kind of stress.

    `asked` is the load in words, `share` the part of the time at work, and `rate` the bytes a
    second that are moved at most, None where only the share limits them.
    """

    asked: str
    share: float
    rate: float | None

    def turn(self) -> Turn:
        """Do the next piece of work. Raises OutOfRoom."""


def again(where: str, times: int, repeats: int = FEW) -> Event:
    """A mismatch that was looked at."""
    return Event(where=f"{where}, wrong again in {times} of {repeats} repeats", num_again=times)


def difference(read: int, expected: int) -> str:
    """Two 64-bit words that should be the same."""
    return f"{read % 2**64:016x} for {expected % 2**64:016x}"
