"""Long segments by the minute: what a journal has of readings and of steps that nobody judges.

A burn-in of a week makes a million readings a device. Kept one by one they are most of its journal
and say what a minute's count, sum and extremes say. So of a workload whose launches are segments,
while its steps run, a minute of readings becomes one record, and a minute of steps one part of its
block: for each value count, smallest, largest and sum, apart for each state of throttling and each
set of values that were reported. From these every figure that is shown and ruled on follows. In
full stand the first and last ten seconds of the steps, ten seconds around whatever stands out (a
harmful throttle, a temperature or a clock outside the minute before it, a value that is no number),
and the minutes of a step that took far longer than the others.

A run of so many hours and devices that its journal would grow beyond 50 MB folds two, five or ten
minutes together, with stress beside the products twenty (`fold_ns`, which follows from the plan);
what stands in full is the same. Minutes are numbered and tile the time from the launch's warm-up to
its block, so none can be left out; `fault_of` and `steps_fault` say what no honest minute can be.
The alternative, to read devices less often, would miss what lasts for a second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from appliance.planning.launch_constants import SEGMENTED
from appliance.records.journal import (
    Block,
    Reading,
    ReadingGroup,
    ReadingsFolded,
    StepsFolded,
    TimedValues,
)
from appliance.records.json import Readings
from appliance.records.plan import Plan
from appliance.records.vocabulary import HARMFUL_THROTTLES

Values = Mapping[str, float | None]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

FOLD_NS = 60 * 10**9
FOLD_MINUTES = (1, 2, 5, 10)
STRESSED_MINUTES = (*FOLD_MINUTES, 20)
"""The same of a plan with stress beside the products, whose own records need room."""
MOST_BYTES = 50 * 10**6
"""What the journal of a run may take, as far as ten minutes at once allow it."""
SEGMENT_BYTES, MINUTE_BYTES = 20_000, 1_700
"""What a segment and a minute of it take for each device, measured with 24 values a reading."""
STRESS = "stress"
STRESS_BYTES = 14_000
"""What stress may take in a segment: four kinds of 1.5 kB, and what else exceeds its measure."""
DETAIL_NS = 10 * 10**9
"""What stands in full at the begin and the end of the steps and around whatever stands out."""
MOST_EVENTS = 4
"""Moments of a device in a segment around which readings stand in full; all of them are counted."""
KELVINS, CLOCK_PART = 5.0, 0.8
"""A temperature so far outside the minute before it, or a clock below this part of its lowest."""
LONG_STEP = 4
"""A step of so many times the block's median has its minute in full, of at most MOST_EVENTS."""
STATE = "throttle"
"""How the names of readings begin that say why a device is slowed down."""
SLACK = 1e-9
BUSY = 0.5
"""Share of the time in which something must have run on a device that says how busy it was."""


def fold_ns(plan: Plan) -> int:
    """Nanoseconds that are folded together: of FOLD_MINUTES the fewest that keep to MOST_BYTES."""
    cases = {case.id: case for case in plan.cases if case.workload in SEGMENTED}
    number = sum(len(cases[one.case].all_devices) for one in plan.launches if one.case in cases)
    minutes = plan.protocol.blocks * plan.protocol.block_seconds * 1e9 / FOLD_NS
    is_stressed = any(case.parameters.get(STRESS) for case in cases.values())
    widths = STRESSED_MINUTES if is_stressed else FOLD_MINUTES
    segment = SEGMENT_BYTES + STRESS_BYTES * is_stressed
    for wide in widths:
        if number * (segment + MINUTE_BYTES * minutes / wide) <= MOST_BYTES:
            return wide * FOLD_NS
    return widths[-1] * FOLD_NS


# ------------------------------------------------------------------ readings


@dataclass(kw_only=True)
class _Read:
    at_ns: int
    values: Values
    is_detail: bool = False


@dataclass(kw_only=True)
class ReadingFold:
    """Folds the readings of one device while a launch's steps run.

    `begin_ns` is where the next minute begins, by the journal's clock; `fold_ns` how long one is.
    """

    launch: str
    device: str
    begin_ns: int
    fold_ns: int = FOLD_NS
    index: int = 0
    _minute_ns: int = 0
    _pending: list[_Read] = field(default_factory=list)
    _causes: dict[str, None] = field(default_factory=dict)
    _before: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    _detail_until_ns: int = 0
    _num_events: int = 0
    _last: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._minute_ns = self.begin_ns
        self._detail_until_ns = self.begin_ns + DETAIL_NS

    def add(self, at_ns: int, values: Values) -> ReadingsFolded | None:
        """Take a reading; the minute that it ends, if it does."""
        cut = at_ns - DETAIL_NS  # what is later may yet be the last, or around what stands out
        self._remember(cut)
        ended = self._folded(cut) if cut - self.begin_ns >= self.fold_ns else None
        cause = self._stands_out(values)
        if cause:
            self._keep_around(at_ns, cause)
        is_detail = at_ns <= self._detail_until_ns
        self._pending.append(_Read(at_ns=at_ns, values=values, is_detail=is_detail))
        self._last = values
        return ended

    def close(self, now_ns: int) -> ReadingsFolded | None:
        """The last, shorter minute, which ends with its end in full; None without a reading."""
        for one in self._pending:
            one.is_detail |= one.at_ns >= now_ns - DETAIL_NS
        return self._folded(now_ns)

    def cut(self, now_ns: int) -> ReadingsFolded | None:
        """The minute up to now, however short: what comes is of another phase of load."""
        return self._folded(now_ns)  # not `close`: the steps go on

    def _remember(self, cut_ns: int) -> None:
        """What later readings are held to: the last whole minute up to this moment."""
        if cut_ns - self._minute_ns < FOLD_NS:
            return
        own = [one.values for one in self._pending if self._minute_ns < one.at_ns <= cut_ns]
        if own:
            self._before, self._minute_ns = _ranges(own), cut_ns

    def _stands_out(self, values: Values) -> str:
        """Why this reading stands out, or nothing."""
        for name in HARMFUL_THROTTLES:
            reading = f"throttled_{name}"
            if (values.get(reading) or 0.0) > 0.0 and not (self._last.get(reading) or 0.0) > 0.0:
                return f"throttled: {name}"
        for name, value in values.items():
            if value is not None and not math.isfinite(value):
                return f"{name} is no number"
            if value is None or name not in self._before:
                continue
            low, high = self._before[name]
            is_hot = "temperature" in name and not low - KELVINS <= value <= high + KELVINS
            is_slow = name.endswith(("clock_hertz", "frequency_hertz")) and value < CLOCK_PART * low
            if is_hot or is_slow:
                return f"{name} outside the minute before"
        return ""

    def _keep_around(self, at_ns: int, cause: str) -> None:
        is_new = at_ns > self._detail_until_ns
        if is_new and self._num_events >= MOST_EVENTS and "no number" not in cause:
            return
        self._num_events += is_new
        self._causes[cause] = None
        self._detail_until_ns = max(self._detail_until_ns, at_ns + DETAIL_NS)
        for one in self._pending:
            one.is_detail |= one.at_ns >= at_ns - DETAIL_NS

    def _folded(self, end_ns: int) -> ReadingsFolded | None:
        """The minute of what was read up to this moment; None, and it goes on, if nothing was."""
        own = [one for one in self._pending if one.at_ns <= end_ns]
        if not own:
            return None
        moments = [self.begin_ns, *(one.at_ns for one in own), end_ns]
        gaps = [later - sooner for sooner, later in pairwise(moments)]
        detail = [one for one in own if one.is_detail]
        common = _common([one.values for one in detail])
        folded = ReadingsFolded(
            launch=self.launch,
            device=self.device,
            index=self.index,
            begin_ns=self.begin_ns,
            end_ns=end_ns,
            longest_gap_ns=max(gaps),
            groups=tuple(groups([one.values for one in own if not one.is_detail])),
            detail_common=common,
            detail=tuple(
                TimedValues(
                    at_ns=one.at_ns,
                    values={k: value for k, value in one.values.items() if k not in common},
                )
                for one in detail
            ),
            causes=tuple(self._causes),
        )
        self._pending, self._causes = self._pending[len(own) :], {}
        self.begin_ns, self.index = end_ns, self.index + 1
        return folded


def _common(several: Sequence[Values]) -> dict[str, float | None]:
    """Values that are the same in all of at least two readings."""
    if len(several) < 2:  # noqa: PLR2004 - one shares nothing
        return {}
    first, *others = several
    return {
        name: value
        for name, value in first.items()
        if all(name in one and one[name] == value for one in others)
    }


def _ranges(several: Sequence[Values]) -> dict[str, tuple[float, float]]:
    """Smallest and largest of each value that is a number."""
    known: dict[str, list[float]] = {}
    for values in several:
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                known.setdefault(name, []).append(value)
    return {name: (min(numbers), max(numbers)) for name, numbers in known.items()}


def groups(several: Sequence[Values]) -> Iterator[ReadingGroup]:
    """Readings by their state of throttling and by what was reported, each folded to one group.

    A value that is the same in all readings of a group stands alone; others as (smallest, largest,
    sum). A reading of a value that is no number must not be among them.
    """
    alike: dict[tuple[object, ...], list[Values]] = {}
    for values in several:
        alike.setdefault(_state(values), []).append(values)
    for members in alike.values():
        common: dict[str, float | None] = {}
        ranged: dict[str, tuple[float, float, float]] = {}
        for name, first in members[0].items():
            numbers = [value for one in members if (value := one[name]) is not None]
            if first is None or min(numbers) == max(numbers):
                common[name] = first
            else:
                ranged[name] = (min(numbers), max(numbers), math.fsum(numbers))
        yield ReadingGroup(count=len(members), common=common, ranged=ranged)


def _state(values: Values) -> tuple[object, ...]:
    """What readings must share to be folded together."""
    states = (value if name.startswith(STATE) else value is None for name, value in values.items())
    use = values.get("utilisation_fraction")
    return (tuple(values), tuple(states), use is None or use >= BUSY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Readings of a device that are alike: one, or a group of `count` of which `values` are means.

    `lows` and `highs` are the extremes of each value, `phase` is how its launch loaded the device,
    empty where it did not say. `at_ns` is when it was read by the journal's
    clock, of a group the middle of its minute; None: when its line was written.
    """

    launch: str
    device: str
    count: int
    values: Values
    lows: Values
    highs: Values
    phase: str = ""
    at_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A value over readings: extremes, and the median in which a group counts by its mean.

    `num_read` of `num_readings` reported it.
    """

    low: float
    middle: float
    high: float
    num_read: int
    num_readings: int


def spread_of(name: str, several: Sequence[Sampled]) -> Spread | None:
    """How a value was spread; None where no reading has it."""
    known = [one for one in several if one.values.get(name) is not None]
    if not known:
        return None
    values = np.array([one.values[name] for one in known], dtype=np.float64)
    counts = np.array([one.count for one in known])
    return Spread(
        low=min(_numbers(one.lows[name] for one in known)),
        middle=_weighted_median(values, counts),
        high=max(_numbers(one.highs[name] for one in known)),
        num_read=int(counts.sum()),
        num_readings=sum(one.count for one in several if name in one.values),
    )


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _weighted_median(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Median of a row in which each value stands so many times."""
    order = np.argsort(values, kind="stable")
    ends, total = np.cumsum(counts[order]), int(counts.sum())
    places = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
    return float(values[order[places]].mean())


MANY = 2**12
"""Readings from which on it takes long to make their rows anew, and little memory to keep them."""


class Columns:
    """Readings, and their values by name in a row; rows are made when asked for, and kept.

    A burn-in of a week has a hundred thousand readings and groups of them, of which each ruling
    asks for a few values, to be counted all at once. What is not reported is no number in its row
    and is not known in its mask; what is reported as no number is known.
    """

    def __init__(self, sampled: Sequence[Sampled], parts: Sequence[Columns] = ()) -> None:
        self.sampled = sampled
        self._parts = parts
        self._rows: dict[str, tuple[Numbers, Mask]] = {}
        self.counts = np.array([one.count for one in sampled], dtype=np.int64)

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Those of all parts, in their order; rows of many are put together of what parts keep."""
        if len(parts) == 1:
            return parts[0]
        sampled = [one for part in parts for one in part.sampled]
        return cls(sampled, parts if len(sampled) >= MANY else ())

    def __len__(self) -> int:
        return len(self.sampled)

    @property
    def num_readings(self) -> int:
        """How many readings they are; a group counts as many times as it has."""
        return int(self.counts.sum())

    def row(self, name: str) -> tuple[Numbers, Mask]:
        """The values of a name, of a group its mean, and which of them are reported."""
        known = self._rows.get(name)
        if known is None:
            known = self._rows[name] = self._joined(name) if self._parts else self._made(name)
        return known

    def _made(self, name: str) -> tuple[Numbers, Mask]:
        values = [one.values.get(name) for one in self.sampled]
        numbers = np.array(values, dtype=np.float64)  # None becomes no number
        return numbers, np.array([value is not None for value in values], dtype=np.bool_)

    def _joined(self, name: str) -> tuple[Numbers, Mask]:
        rows = [part.row(name) for part in self._parts]
        numbers, masks = zip(*rows, strict=True)
        return np.concatenate(numbers), np.concatenate(masks)


def of_reading(reading: Reading, phase: str = "") -> Sampled:
    """One reading, in this phase of load."""
    values = reading.values
    return Sampled(
        launch=reading.launch,
        device=reading.device,
        count=1,
        values=values,
        lows=values,
        highs=values,
        phase=phase,
    )


def sampled_of(event: Reading | ReadingsFolded, phase: str = "") -> list[Sampled]:
    """What a record of readings holds, in this phase of load."""
    if isinstance(event, Reading):
        return [of_reading(event, phase)]
    return list(of_folded(event, phase))


def of_folded(folded: ReadingsFolded, phase: str = "") -> Iterator[Sampled]:
    """What a minute holds: its readings in full, and its groups."""
    for one in in_detail(folded):
        yield Sampled(
            launch=folded.launch,
            device=folded.device,
            count=1,
            values=one.values,
            lows=one.values,
            highs=one.values,
            phase=phase,
            at_ns=one.at_ns,
        )
    for group in folded.groups:
        means = {name: total / group.count for name, (_, _, total) in group.ranged.items()}
        lows = {name: low for name, (low, _, _) in group.ranged.items()}
        highs = {name: high for name, (_, high, _) in group.ranged.items()}
        yield Sampled(
            launch=folded.launch,
            device=folded.device,
            count=group.count,
            values=Readings.of_known({**group.common, **means}),
            lows=Readings.of_known({**group.common, **lows}),
            highs=Readings.of_known({**group.common, **highs}),
            phase=phase,
            at_ns=(folded.begin_ns + folded.end_ns) // 2,
        )


def in_detail(folded: ReadingsFolded) -> Iterator[TimedValues]:
    """The readings of a minute that stand in full, each with all of its values."""
    for one in folded.detail:
        values = Readings.of_known({**folded.detail_common, **one.values})
        yield TimedValues(at_ns=one.at_ns, values=values)


def fault_of(folded: ReadingsFolded) -> str:
    """What no minute of readings can be, as a clause; or nothing."""
    count = sum(group.count for group in folded.groups) + len(folded.detail)
    span = folded.end_ns - folded.begin_ns
    if min((group.count for group in folded.groups), default=1) < 1 or not count:
        return "counts no reading"
    if not 0 <= folded.longest_gap_ns <= span:
        return "ends before it begins, or has a gap that is longer than itself"
    if (count + 1) * folded.longest_gap_ns < span:
        return f"has {count} readings, which leave more of its time unread than it says"
    moments = [one.at_ns for one in folded.detail]
    if moments != sorted(moments) or not all(
        folded.begin_ns <= moment <= folded.end_ns for moment in moments
    ):
        return "has readings that are not of its time, or not in order"
    if any(name in folded.detail_common for one in folded.detail for name in one.values):
        return "has a value twice"
    return next(filter(None, map(_group_fault, folded.groups)), "")


def _group_fault(group: ReadingGroup) -> str:
    for name, (low, high, total) in group.ranged.items():
        if not _is_possible(low, high, total, group.count):
            return f"has a sum of {name} that its extremes and its count cannot give"
    return "has a value twice" if set(group.common) & set(group.ranged) else ""


def _is_possible(low: float, high: float, total: float, count: int) -> bool:
    """Whether so many numbers between these extremes, both of them among them, have this sum."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high and count > 1):
        return False
    slack = SLACK * count * max(abs(low), abs(high))
    least, most = high + (count - 1) * low, low + (count - 1) * high
    return least - slack <= total <= most + slack


# ------------------------------------------------------------------ steps


@dataclass(frozen=True, kw_only=True)
class FoldedSteps:
    """Steps in full, in their order, and the stretches between them."""

    wall_ns: tuple[int, ...]
    event_ns: tuple[int, ...] | None
    folded: tuple[StepsFolded, ...]


def fold_steps(
    wall_ns: Sequence[int], event_ns: Sequence[int] | None, fold_ns: int = FOLD_NS
) -> FoldedSteps:
    """Fold the steps of a block by minutes of their own time; short blocks stay as they are.

    The first and last DETAIL_NS stand in full, and each minute with a step of LONG_STEP medians;
    others are folded by `fold_ns`, a multiple of FOLD_NS.
    """
    kept: list[int] = []
    stretches: list[tuple[int, int]] = []
    wide = fold_ns // FOLD_NS
    key = -1
    for begin, end, minute in _kept_and_folded(wall_ns):
        if minute < 0:
            kept.extend(range(begin, end))
            key = -1
        elif minute // wide == key:
            stretches[-1] = stretches[-1][0], end
        else:
            stretches.append((begin, end))
            key = minute // wide
    return FoldedSteps(
        wall_ns=tuple(wall_ns[place] for place in kept),
        event_ns=None if event_ns is None else tuple(event_ns[place] for place in kept),
        folded=tuple(_stretch(wall_ns, event_ns, *ends) for ends in stretches),
    )


def _kept_and_folded(wall_ns: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(begin, end, number of the minute) of a block; the number is below 0 if it stands in full."""
    middle = statistics.median(wall_ns) if wall_ns else 0
    num_long = 0
    for begin, end, minute in _minutes(wall_ns):
        is_long = minute >= 0 and max(wall_ns[begin:end]) > LONG_STEP * middle
        num_long += is_long
        is_kept = end - begin < 2 or (is_long and num_long <= MOST_EVENTS)  # noqa: PLR2004
        yield begin, end, -1 if is_kept else minute


def _stretch(
    wall_ns: Sequence[int], event_ns: Sequence[int] | None, begin: int, end: int
) -> StepsFolded:
    return StepsFolded(
        first=begin,
        count=end - begin,
        wall_ns=_figures(wall_ns[begin:end]),
        event_ns=None if event_ns is None else _figures(event_ns[begin:end]),
    )


def in_full(wall_ns: Sequence[int], event_ns: Sequence[int] | None) -> FoldedSteps:
    """Steps of which none is folded."""
    events = None if event_ns is None else tuple(event_ns)
    return FoldedSteps(wall_ns=tuple(wall_ns), event_ns=events, folded=())


def _minutes(wall_ns: Sequence[int]) -> list[tuple[int, int, int]]:
    """(begin, end, number) of the minutes of a block; of its edges the number is below 0."""
    whole, passed = sum(wall_ns), 0
    pieces: list[tuple[int, int, int]] = []
    begin, key = 0, -1
    for place, time in enumerate(wall_ns):
        is_edge = passed < DETAIL_NS or passed + time > whole - DETAIL_NS
        now = -1 - (2 * passed > whole) if is_edge else (passed - DETAIL_NS) // FOLD_NS
        if now != key and place > begin:
            pieces.append((begin, place, key))
            begin = place
        key = now
        passed += time
    if wall_ns:
        pieces.append((begin, len(wall_ns), key))
    return pieces


def _figures(times: Sequence[int]) -> tuple[int, int, int]:
    return min(times), max(times), sum(times)


def whole_ns(block: Block) -> list[int]:
    """Nanoseconds of all steps of a block by each of its clocks."""
    whole = [sum(block.wall_ns) + sum(one.wall_ns[2] for one in block.folded)]
    if block.event_ns is not None:
        events = (one.event_ns[2] for one in block.folded if one.event_ns is not None)
        whole.append(sum(block.event_ns) + sum(events))
    return whole


def steps_fault(block: Block) -> str:
    """What no folded steps can be, as a clause; or nothing."""
    stop = 0
    for one in block.folded:
        if one.count < 2:  # noqa: PLR2004 - a single step stands in full
            return "has a minute of less than two steps"
        if one.first < stop:
            return "has minutes that overlap, or not in order"
        stop = one.first + one.count
        if (one.event_ns is None) != (block.event_ns is None):
            return "has minutes without the device's time, or with it where the others have none"
        for low, high, total in (one.wall_ns, *([one.event_ns] if one.event_ns else [])):
            least, most = high + (one.count - 1) * low, low + (one.count - 1) * high
            if not (0 < low <= high and least <= total <= most):
                return "has a sum of steps that their extremes and their count cannot give"
    if stop > block.num_steps:
        return "has minutes that begin after its last step"
    return ""
