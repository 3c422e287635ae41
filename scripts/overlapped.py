"""What launches take that begin beside the end of the one before: the rule of device-budget.md.

Of a launch, `head` is what its process may do before the one before has ended (begin, set its
device up and, where what the build holds is known, build and make a first step that no time counts
of), and `tail` what that one does once its last timed step is over. Both together take as long as
the longer one. What is between them is of one launch alone. A repeat times nothing, so the next
process begins as it begins. A build is beside another launch only where the device is known to have
room for both, by the runner's own rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from appliance.runner.overlap import GROWTH, SHARE
from appliance.runner.users_log import LOOK_NS, MOST_IN_A_ROW


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


def alone(seconds: float) -> float:
    """Part of launches of so many seconds that begin alone, so that others on a device are seen."""
    in_time = math.ceil(1e-9 * LOOK_NS / seconds) - 1
    return 1 / (max(MOST_IN_A_ROW, in_time) + 1)


def _alone(launches: Sequence[Timed], end: float) -> float:
    """That of these, which take so long where none begins alone."""
    return alone(end / len(launches))


def saved(launches: Sequence[Timed], *, setup: float) -> float:
    """Seconds that the launches of a sequence take less than one after another.

    The first launch of a case sets its device up alone (`setup`), as nobody knows what it holds,
    and so does one that finds no room.
    """
    *_, end = ends(launches, _parts(launches, setup))
    return (1 - _alone(launches, end)) * (sum(one.whole for one in launches) - end)


def saved_two_ahead(launches: Sequence[Timed], *, setup: float) -> float:
    """Seconds less again where records show that a process which waits slows no step of another.

    A timed launch sets its device up beside the end of the launch before the one before it, and
    waits while that one is timed, whose turn comes after that. Not where either begins alone.
    """
    parts = _parts(launches, setup)
    set_up = [0.0, *(0.0 for _ in launches[:1])]
    for before, later, part, own in zip(
        launches[1:], launches[2:], parts[1:], parts[2:], strict=False
    ):
        waits = part is not None and own is not None and _may_stand_by(before, later)
        set_up.append(min(setup, later.head) if waits else 0.0)
    *_, end = ends(launches, parts)
    *_, sooner = ends(launches, parts, set_up=set_up)
    return (1 - 2 * _alone(launches, sooner)) * (end - sooner)


def _parts(launches: Sequence[Timed], setup: float) -> list[float | None]:
    """Seconds of each launch's head that are beside the end of the one before it."""
    seen: set[str] = set()
    parts: list[float | None] = [None]
    for earlier, later in pairwise(launches):
        seen.add(earlier.case)
        builds = later.case in seen and _has_room(earlier, later)
        is_read = earlier.is_reference and earlier.case == later.case
        parts.append(None if is_read else later.head if builds else min(setup, later.head))
    return parts


def ends(
    launches: Sequence[Timed],
    parts: Sequence[float | None],
    gaps: Sequence[float] = (),
    set_up: Sequence[float] = (),
) -> Iterator[float]:
    """When each of these launches has ended, of which each may do a part of its head ahead.

    None of it where it begins alone. `gaps` is what passes before each; none is nothing. `set_up`
    is what of each part is beside the end of the launch before the one before, if any is.
    """
    early = [*set_up, *(0.0 for _ in range(len(launches) + 1 - len(set_up)))]
    over = end = 0.0
    for number, (one, part) in enumerate(zip(launches, parts, strict=True)):
        turn = end + (gaps[number] if gaps else 0.0)
        made = over + (0.0 if part is None else part - early[number])
        begun = max(turn, made, over + early[number + 1]) + one.head - (part or 0.0)
        over = turn if one.is_repeat else begun + one.middle
        end = begun + one.middle + one.tail
        yield end


def _may_stand_by(before: Timed, later: Timed) -> bool:
    """Whether the process of a launch may wait while the one before it is timed."""
    is_timed = not any(one.is_reference or one.is_repeat for one in (before, later))
    return is_timed and before.held is not None and GROWTH * before.held <= SHARE


def _has_room(earlier: Timed, later: Timed) -> bool:
    """Whether a device holds both, as far as is known of them."""
    if earlier.held is None or later.held is None:
        return False
    return GROWTH * earlier.held + later.held <= SHARE
