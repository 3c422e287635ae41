"""Which rows are run within so many minutes, and with how many launches: a pure, greedy choice.

What tells most comes first. One launch of a row that is not covered yet tells more than another
one of a row that is, so

1. rows that count in the score are covered, the cheapest first, which covers the most of them;
2. then the other rows and the variants that the seed drew, the same way;
3. then launches are added one by one up to the first interim analysis, where they narrow the score
   most for a second: n launches of weight w leave a variance of w^2 / n, in units of a launch's;
4. then rows whose times are judged get the launches of their next interim analyses, likewise.

A row whose step is assumed gets its fewest launches alone: what more would tell is made of the time
that is left, once its launches have been timed.

A row has the time for its last launch when it begins: a case that is decided earlier ends earlier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.records.plan import ScheduledRow

MOST_MINUTES = 100_000
"""Ten weeks."""
ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Rows that stand or fall together, and have equally many launches."""

    rows: tuple[ScheduledRow, ...]
    place: int

    @property
    def least(self) -> int:
        return max(row.least for row in self.rows)

    @property
    def most(self) -> int:
        return max(self.least, min(row.most for row in self.rows))

    @property
    def is_assumed(self) -> bool:
        return any(row.is_assumed for row in self.rows)

    @property
    def launch_seconds(self) -> float:
        return sum(row.launch_seconds for row in self.rows)

    @property
    def least_seconds(self) -> float:
        return sum(row.fixed_seconds for row in self.rows) + self.least * self.launch_seconds

    @property
    def weight(self) -> float:
        return sum(row.weight for row in self.rows)

    def next_count(self, made: int, analyses: Sequence[int]) -> int | None:
        """The next number of launches that is worth having, None after the last."""
        later = [count for count in analyses if count > made]
        first = analyses[0]
        wanted = made + 1 if made < first else min(later, default=made)
        wanted = min(wanted, self.most)
        return wanted if wanted > made else None

    def gain(self, made: int, wanted: int) -> float:
        """How much narrower the score becomes for each second of the launches between."""
        seconds = (wanted - made) * self.launch_seconds
        less = self.weight**2 * (1 / made - 1 / wanted) if made else math.inf
        return less / seconds if seconds > 0 else math.inf


def allocated(
    rows: Sequence[ScheduledRow], minutes: int, analyses: Sequence[int]
) -> dict[str, int | None]:
    """By row its timed launches, None where it is left out.

    `analyses` are the launch counts of the protocol's interim analyses.
    """
    groups = _groups(rows)
    left = 60.0 * minutes + ROUNDING_SECONDS
    made: dict[int, int] = {}
    for group in sorted(groups, key=_coverage_key):
        is_wanted = all(_is_covered(row, groups, made) for row in group.rows if row.variant_of)
        if is_wanted and group.least_seconds <= left:
            made[group.place] = group.least
            left -= group.least_seconds
    while (step := _best_step(groups, made, analyses, left)) is not None:
        group, wanted = step
        left -= (wanted - made[group.place]) * group.launch_seconds
        made[group.place] = wanted
    return {row.name: made.get(group.place) for group in groups for row in group.rows}


def waiting(
    rows: Sequence[ScheduledRow], minutes: int, launches: Mapping[str, int | None]
) -> dict[str, int]:
    """By row its place among those that wait for time that is left, from 1 on; 0 where none.

    They wait where the minutes could hold their fewest launches, in the order in which time was to
    be given to them. A variant waits where the row that it is of is run or waits.
    """
    groups = _groups(rows)
    is_meant = {row.name: launches[row.name] is not None for row in rows}
    places = dict.fromkeys(is_meant, 0)
    num_waiting = 0
    for group in sorted(groups, key=_coverage_key):
        has_time = launches[group.rows[0].name] is not None
        is_wanted = all(is_meant.get(row.variant_of, False) for row in group.rows if row.variant_of)
        if has_time or not is_wanted or group.least_seconds > 60.0 * minutes:
            continue
        num_waiting += 1
        for row in group.rows:
            places[row.name], is_meant[row.name] = num_waiting, True
    return places


def most_launches(rows: Sequence[ScheduledRow], analyses: Sequence[int]) -> dict[str, int]:
    """By row the timed launches that it makes if all time is left.

    A row whose times are judged has those of its later interim analyses, and one whose step is
    assumed those of its first; others have no more than are made as a whole.
    """
    return {
        row.name: max(row.whole, group.most)
        if group.most > analyses[0] or group.is_assumed
        else row.whole
        for group in _groups(rows)
        for row in group.rows
    }


def has_any(rows: Sequence[ScheduledRow], launches: Mapping[str, int | None]) -> bool:
    """Whether anything is run at all, of rows of which anything can run."""
    can_run = [row for row in rows if row.fixed_seconds + row.launch_seconds > 0]
    return not can_run or any(launches[row.name] is not None for row in can_run)


def smallest(is_enough: Callable[[int], bool]) -> int | None:
    """The smallest number of minutes that is enough; None where no number is.

    More minutes may be too few where fewer were enough: they cover another row, and leave less for
    the launches that heat a device. So none below the one that halving comes to is passed over.
    """
    if not is_enough(MOST_MINUTES):
        return None
    low, high = 0, MOST_MINUTES  # not enough, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return next((minutes for minutes in range(1, high) if is_enough(minutes)), high)


def _groups(rows: Sequence[ScheduledRow]) -> list[_Group]:
    members: dict[str, list[ScheduledRow]] = {}
    for row in rows:
        members.setdefault(row.group, []).append(row)
    return [_Group(rows=tuple(some), place=place) for place, some in enumerate(members.values())]


def _coverage_key(group: _Group) -> tuple[bool, bool, float, int]:
    is_variant = any(row.variant_of for row in group.rows)
    return is_variant, group.weight <= 0, group.least_seconds, group.place


def _is_covered(row: ScheduledRow, groups: Sequence[_Group], made: Mapping[int, int]) -> bool:
    """Whether the row that this one is a variant of is run."""
    return any(
        one.name == row.variant_of for group in groups if group.place in made for one in group.rows
    )


def _best_step(
    groups: Sequence[_Group], made: Mapping[int, int], analyses: Sequence[int], left: float
) -> tuple[_Group, int] | None:
    """The group that is worth most launches more, and how many it has then; None without time."""
    steps: list[tuple[tuple[bool, bool, float, int, int], _Group, int]] = []
    for group in groups:
        count = made.get(group.place)
        wanted = None if count is None else group.next_count(count, analyses)
        if count is None or wanted is None or group.is_assumed:
            continue
        if (wanted - count) * group.launch_seconds <= left:
            key = (
                count >= analyses[0],
                group.weight <= 0,
                -group.gain(count, wanted),
                count,
                group.place,
            )
            steps.append((key, group, wanted))
    if not steps:
        return None
    _, group, wanted = min(steps, key=lambda step: step[0])
    return group, wanted
