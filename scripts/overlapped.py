"""What launches take that begin beside the end of the one before: the rule of device-budget.md.

Of a launch, `head` is what its process may do before the one before has ended (begin, set its
device up and, where what the build holds is known, build and make a first step that no time counts
of), and `tail` what that one does once its last timed step is over. Both together take as long as
the longer one. What is between them is of one launch alone. A repeat times nothing, so the next
process begins as it begins. A build is beside another launch only where the device is known to have
room for both, by the runner's own rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from appliance.runner.overlap import GROWTH, SHARE
from appliance.runner.users_log import MOST_IN_A_ROW

ALONE = 1 / (MOST_IN_A_ROW + 1)
"""Part of the launches that begin alone all the same, so that others on a device are looked for."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A launch of a case, in seconds; `is_reference`: what it makes, the case's others read.

    `held` is the part of its device's memory that it holds, None where nobody knows; `is_repeat` is
    one of the deterministic phase.
    """

    case: str
    head: float
    middle: float
    tail: float
    is_reference: bool = False
    held: float | None = 0.0
    is_repeat: bool = False

    @property
    def whole(self) -> float:
        return self.head + self.middle + self.tail


def saved(launches: Sequence[Timed], *, setup: float) -> float:
    """Seconds that the launches of a sequence take less than one after another.

    The first launch of a case sets its device up alone (`setup`), as nobody knows what it holds,
    and so does one that finds no room.
    """
    seen: set[str] = set()
    parts: list[float | None] = [None]
    for earlier, later in pairwise(launches):
        seen.add(earlier.case)
        builds = later.case in seen and _has_room(earlier, later)
        is_read = earlier.is_reference and earlier.case == later.case
        parts.append(None if is_read else later.head if builds else min(setup, later.head))
    *_, end = ends(launches, parts)
    return (1 - ALONE) * (sum(one.whole for one in launches) - end)


def ends(
    launches: Sequence[Timed], parts: Sequence[float | None], gaps: Sequence[float] = ()
) -> Iterator[float]:
    """When each of these launches has ended, of which each may do a part of its head ahead.

    None of it where it begins alone. `gaps` is what passes before each; none is nothing.
    """
    over = end = 0.0
    for number, (one, part) in enumerate(zip(launches, parts, strict=True)):
        turn = end + (gaps[number] if gaps else 0.0)
        begun = turn + one.head if part is None else max(turn, over + part) + one.head - part
        over = turn if one.is_repeat else begun + one.middle
        end = begun + one.middle + one.tail
        yield end


def _has_room(earlier: Timed, later: Timed) -> bool:
    """Whether a device holds both, as far as is known of them."""
    if earlier.held is None or later.held is None:
        return False
    return GROWTH * earlier.held + later.held <= SHARE
