"""What every kind of stress makes: turns of well below a second, each says what it proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from workloads.parts.burning.mismatches import Event

FEW = 10
"""Times that what was wrong is read or copied again."""


class OutOfRoom(Exception):
    """There is no room left for what was asked, which is no fault of a device; says where."""


class CannotJoin(Exception):
    """The devices cannot work together in this way, which is no fault of one; says why."""


class Ended(Exception):
    """A kind cannot go on, which is a fault; says why. What was done until then is reported."""


class WithoutPartners(Ended):
    """A kind has nobody to go on with, whose own record says what became of it; names them."""


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

    def begin(self) -> None:
        """Come to where turns can begin. Raises CannotJoin and Ended."""

    def turn(self) -> Turn:
        """Do the next piece of work. Raises OutOfRoom and Ended."""

    def ends(self, *, is_asked: bool) -> bool:
        """Whether it is over, where this process was asked to stop or not. Raises Ended."""

    def watched_by(self, give_up: Callable[[Ended], None]) -> None:
        """Have this called, from a thread, where a turn does not end by itself."""


class Independent:
    """A kind that needs no other process."""

    def begin(self) -> None:
        """It can begin at once."""

    def ends(self, *, is_asked: bool) -> bool:
        """As it was asked."""
        return is_asked

    def watched_by(self, give_up: Callable[[Ended], None]) -> None:
        """Its turns end, or the launch ends its process."""


def again(where: str, times: int, repeats: int = FEW) -> Event:
    """A mismatch that was looked at."""
    return Event(where=f"{where}, wrong again in {times} of {repeats} repeats", num_again=times)


def difference(read: int, expected: int) -> str:
    """Two 64-bit words that should be the same."""
    return f"{read % 2**64:016x} for {expected % 2**64:016x}"
