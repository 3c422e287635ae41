"""The health ledger: what each device's counters, sensors and links did while it worked.

Error counters are judged by how they grew, never by where they stand, because a used part has a
past: they are read when the run begins and ends and around every launch, and what grew is put
down to the launch that ran meanwhile. A counter that was not reported, that vanished or that went
backwards says nothing, and nothing is never healthy. States (a row that waits to be replaced, a
link that is down) count by their worst value.

Telemetry counts under load only: readings between the begin of a launch's steps and its last
block, and none in which the device itself says that it was mostly idle. A device says so late, as a
mean over up to a second: of blocks of 0.2 s hardly any reading counts. Readings inside of such a
block say nothing either, as the reasons lag 0.1 to 0.2 s behind the work (H100, driver 580). Of
readings under load come:

- `throttle_share`: the part of them in which a healthy device's reasons not to slow down were
  active (vocabulary.HARMFUL_THROTTLES); `throttle_share_NAME` that of one reason. Reasons are
  reported one by one, so that a power cap hides no heat. Where the device counts the time of all
  these reasons that it can have, its share of the time decides (`throttled_time`, an upper bound),
  and of the two shares the worse. One reading of fewer than LEAST_READINGS decides nothing;
- `lost_clock`: 1 - mean clock / highest clock of the part;
- `unused_power`: 1 - mean power / power limit in force, of readings in which that limit held back a
  device at work (`power_limit`), and 0 where it never did;
- `power_limit_lowered`: 1 - power limit in force / the part's default, by its facts;
- `power_fraction`: mean power in hot phases / power limit in force, of the case that drew least, by
  the readings between the records that begin and end these phases. Where a record does not say its
  phases it is no more than the mean of the highest six of seven parts of the readings under load,
  of devices that were busy, which can show too little and never enough;
- `core_use`: processor time in hot phases / what a launch's threads could have, of the least case;
- `pcie_lanes_missing`, `pcie_generations_missing`: what the link's best reading in a launch falls
  short of the part's own maximum. The best, because idle links slow down; the worst launch counts;
- `kernel_faults`, `kernel_faults_fatal`: lines of the kernel's log that the vendor calls faults.

A share or a mean is taken over all cases of a device, and over each case that has enough readings,
of which the worst counts: a device that throttles in one long case is not saved by fifty others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from appliance.evidence.folding import BUSY, Columns, Sampled
from appliance.evidence.launches import CaseEvidence, LaunchEvidence, RunEvidence
from appliance.linux.fact_reader import value_of
from appliance.load.phases import core_use, speed_over, stretches
from appliance.load.power_limit import CAPPED, settled_watts
from appliance.load.throttled_time import (
    LEAST_STEPS_NS,
    ThrottledTime,
    counters_of,
    joined,
    of_launch,
)
from appliance.planning.launch_constants import HOT, PLAIN, PROVEN
from appliance.records.journal import Counted, KernelLogged
from appliance.records.system import Device
from appliance.records.vocabulary import COUNTERS, HARMFUL_THROTTLES, THROTTLES, Behaviour

LEAST_READINGS = 50
"""Readings under load for which a case is judged on its own; one stray reading is then 2 %."""
SHARE = "throttle_share"
CLOCKS = (
    ("graphics_clock_hertz", "highest_graphics_clock"),
    ("frequency_hertz", "highest_frequency"),
)
"""A clock's reading, and the fact that is its highest value."""
MADE = (
    "kernel_faults",
    "kernel_faults_fatal",
    "lost_clock",
    "power_fraction",
    "core_use",
    "pcie_lanes_missing",
    "pcie_generations_missing",
    "power_limit_lowered",
    "unused_power",
    SHARE,
    *(f"{SHARE}_{name}" for name in THROTTLES),
)
"""Metrics that the ledger makes; counters and readings are metrics beside them."""
HOT_PART = 6 / 7
"""Of readings under load, at most those of hot phases, where a burn-in does not say its phases."""
UNTAGGED = "the record does not say when its hot phases began and ended: run it with this version"
FIFTHS = 5
SETTLED_KELVINS = 2.0
"""By which a temperature that has settled may still rise from one fifth of the time to the next."""
UNREPORTED = "its tool does not report it"
UNLOADED = "no telemetry was read while its steps ran: use a suite with longer launches"
ONE_READING = (
    "one of {} readings under load only said so: use a suite with longer launches, which tells "
    "whether it comes back"
)
BRIEFLY = "it was held back too briefly for its power to be read: use a suite with longer launches"
BY_COUNTERS = "by its counters"
UNENDED = "it was not read when the run ended"
UNREAD = "the kernel's log was not read to the end of the run"
BETWEEN = "between launches"
NONE_READ = Columns(())

Scope = Literal["interim", "cases", "run"]
"""One case so far; the launches of some cases; everything from the begin of the run to its end."""
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one metric was on one device: its extremes, None if it is not known at all.

    `where` is the case or launch in which the highest was seen, `gap` why it is not known or not
    in whole. `is_absent`: the device cannot have it, as its vendor says. `is_counted`: it is a
    share of time that the device counted, of `count` launches, not of so many readings.
    """

    device: str
    low: float | None = None
    high: float | None = None
    count: int = 0
    where: str = ""
    gap: str = ""
    is_absent: bool = False
    is_counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One counter: first and last value, growth between, worst value, and where it grew.

    `growth` is what was seen to grow, None if nothing is known of it; `gap` says what is wrong.
    """

    name: str
    behaviour: Behaviour
    before: int | None
    after: int | None
    growth: int | None
    worst: int | None
    where: tuple[str, ...]
    count: int
    gap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something of a device that was not observed, and what would allow it."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLoop:
    """A burn-in beside bare products of the same shapes on the same device, of the least case.

    `power` is mean power in hot phases over that of the plain loop, None where none was read;
    `speed` the products a second of the proven loop over those of the plain one before it.
    """

    power: float | None
    speed: float


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """One device in these cases; `cases` that do not use it are left out."""

    device: Device
    run: RunEvidence
    cases: tuple[CaseEvidence, ...]
    scope: Scope

    @property
    def hints(self) -> Mapping[str, str]:
        return self.run.hints.get(self.device.id, {})

    @property
    def absent(self) -> frozenset[str]:
        """Counters and readings that the device cannot have."""
        return self.run.absent.get(self.device.id, frozenset())

    def observe(self, metric: str) -> Observed:
        """What was seen of a counter, a reading, or one of the metrics named above."""
        observers: Mapping[str, Callable[[], Observed]] = {
            "kernel_faults": lambda: self._logged(is_fatal=False),
            "kernel_faults_fatal": lambda: self._logged(is_fatal=True),
            "lost_clock": self._lost_clock,
            "power_fraction": self._power_fraction,
            "core_use": self._core_use,
            "unused_power": self._unused_power,
            "power_limit_lowered": self._power_limit_lowered,
            "pcie_lanes_missing": lambda: self._missing("pcie_width", is_idle_same=True),
            "pcie_generations_missing": lambda: self._missing("pcie_generation"),
            SHARE: lambda: self._share(HARMFUL_THROTTLES),
        }
        if metric in observers:
            return observers[metric]()
        reason = metric.removeprefix(f"{SHARE}_")
        if reason in THROTTLES and reason != metric:
            return self._share((reason,))
        if metric in COUNTERS or metric in self.counter_names:
            return self._counted(metric)
        return self._read(metric)

    # -------------------------------------------------------------- counters

    @property
    def counter_names(self) -> tuple[str, ...]:
        """Counters that were asked of the device, in the order in which it reports them."""
        past = self.run.counted.get(self.device.id, [])
        return tuple(dict.fromkeys(name for one in past for name in one.counters))

    def counter(self, name: str) -> Count:
        """What one counter did."""
        spans = list(self._spans())
        ends = self._reads(spans)
        values = [one.counters.get(name) for one in ends]
        known = [value for value in values if value is not None]
        behaviour = COUNTERS[name][0] if name in COUNTERS else "growth"
        growth, where, fault = _growth(name, spans)
        if not known:
            gap = self.hints.get(name) or UNREPORTED
        elif len(known) < len(values):
            gap = f"it was there in {len(known)} of {len(values)} readings only"
        else:
            gap = (fault if behaviour == "growth" else "") or self._uncovered()
        return Count(
            name=name,
            behaviour=behaviour,
            before=values[0] if values else None,
            after=values[-1] if len(values) > 1 else None,
            growth=growth,
            worst=max(known, default=None),
            where=where,
            count=len(known),
            gap=gap,
        )

    def _uncovered(self) -> str:
        """Why the readings do not reach over all that they are for, or nothing."""
        if self.scope == "run":
            past = self.run.counted.get(self.device.id, [])
            is_whole = bool(past) and (past[-1].launch, past[-1].moment) == ("", "after")
            return "" if is_whole else UNENDED
        for case in self.cases:
            for launch in case.launches if self.device.id in case.case.all_devices else ():
                if launch.mode is not None and (self.device.id, launch.id) not in self.run.spans:
                    return f"it was not read before and after {launch.id}"
        return ""

    def _reads(self, spans: Iterable[tuple[Counted, Counted]]) -> list[Counted]:
        if self.scope == "run":
            return self.run.counted.get(self.device.id, [])
        return [one for span in spans for one in span]

    def _spans(self) -> Iterator[tuple[Counted, Counted]]:
        """Neighbouring readings; but for the run, those with a launch of the cases between."""
        if self.scope == "run":
            past = self.run.counted.get(self.device.id, [])
            booted = self.run.booted.get(self.device.id, set())
            pairs = enumerate(pairwise(past), 1)
            yield from (pair for place, pair in pairs if place not in booted)
            return
        for launch in self._launches():
            yield from self.run.spans.get((self.device.id, launch.id), [])

    def _counted(self, name: str) -> Observed:
        counter = self.counter(name)
        value = counter.growth if counter.behaviour == "growth" else counter.worst
        if value is None and name in self.absent:
            return self._absent()
        grew = counter.where if counter.behaviour == "growth" else ()
        return Observed(
            device=self.device.id,
            low=None if value is None else float(value),
            high=None if value is None else float(value),
            count=counter.count,
            where=grew[0] + (f" and {len(grew) - 1} more" if len(grew) > 1 else "") if grew else "",
            gap=counter.gap,
        )

    def _logged(self, *, is_fatal: bool) -> Observed:
        """Faults in the kernel's log; one that names no device may be of any."""
        faults = [one for one in self.logged() if one.is_fatal or not is_fatal]
        marks = self.run.num_log_marks
        gap = self.run.log_gap or ("" if marks > 1 and self.run.is_log_read else UNREAD)
        return Observed(
            device=self.device.id,
            low=float(len(faults)),
            high=float(len(faults)),
            count=marks,
            where=f"{faults[0].code}: {faults[0].meaning}" if faults else "",
            gap=gap,
        )

    def logged(self) -> list[KernelLogged]:
        """What the kernel logged of this device, and of none by name."""
        own = {launch.id for launch in self._launches()}
        return [
            one
            for one in self.run.logged.values()
            if one.device in (self.device.id, "") and (self.scope == "run" or one.launch in own)
        ]

    # -------------------------------------------------------------- telemetry

    def _read(self, name: str) -> Observed:
        """The extremes of a reading, at any time in the launches."""
        readings = self._readings()
        lows = [value for one in readings if (value := one.lows.get(name)) is not None]
        highs = [
            (value, one.launch) for one in readings if (value := one.highs.get(name)) is not None
        ]
        if not highs:
            return self._unseen(name)
        return Observed(
            device=self.device.id,
            low=_worst(min, lows),
            high=_worst(max, [value for value, _ in highs]),
            count=sum(one.count for one in readings if one.values.get(name) is not None),
            where=max(highs)[1],
        )

    def _share(self, reasons: Sequence[str]) -> Observed:
        """The part of the time under load in which one of the reasons was active, as far as known.

        Readings can only add to what a device counts: where they see no more, they decide nothing.
        """
        counted, read = self._counted_share(reasons), self._read_share(reasons)
        if counted is None:
            return read
        is_worse = read.high is not None and read.high > (counted.high or 0.0)
        return replace(read, gap=counted.gap) if is_worse else counted

    def _counted_share(self, reasons: Sequence[str]) -> Observed | None:
        """The worst by the device's counters; None where it does not count all of the reasons."""
        reported = self.run.reported.get(self.device.id, set())
        names = counters_of(reasons, self.absent, reported)
        if not names:
            return None
        each = [(case.case.id, self._throttled_time(case, names)) for case in self.cases]
        whole = joined([time for _, time in each])
        pools = [(name, time) for name, time in each if time.steps_ns >= LEAST_STEPS_NS]
        if self.scope != "interim" and whole.steps_ns:
            pools.append(("all of its cases", whole))
        if not pools:
            return None
        where, worst = max(pools, key=lambda one: one[1].share)
        unread = next((gap for name in names if (gap := self.counter(name).gap)), "")
        if self.scope == "run":
            unread = unread or self._of_span("", names, steps_ns=0).fault
        return Observed(
            device=self.device.id,
            low=worst.share,
            high=worst.share,
            count=whole.num_launches,
            where=f"{where}, {BY_COUNTERS}",
            gap=unread or next((time.gap for _, time in pools if time.gap), ""),
            is_counted=True,
        )

    def _throttled_time(self, case: CaseEvidence, names: Sequence[str]) -> ThrottledTime:
        """Of all launches of a case around which the counters were read."""
        return joined(
            [
                self._of_span(launch.id, names, steps_ns=launch.steps_ns)
                for launch in case.launches
                if (self.device.id, launch.id) in self.run.spans
            ]
        )

    def _of_span(self, launch: str, names: Sequence[str], *, steps_ns: int) -> ThrottledTime:
        """Around one launch, or with no name in all of the time between launches."""
        key = self.device.id, launch
        return of_launch(
            f"in {launch}" if launch else BETWEEN,
            self.run.spans.get(key, []),
            names,
            passed_ns=self.run.span_ns.get(key, 0),
            steps_ns=steps_ns,
        )

    def _read_share(self, reasons: Sequence[str]) -> Observed:
        """The part of the readings under load in which one of the reasons was active."""
        names = [f"throttled_{reason}" for reason in reasons]
        possible = [name for name in names if name not in self.absent]

        def share(readings: Columns) -> tuple[float, str] | None:
            is_active, is_known = np.zeros((2, len(readings)), dtype=np.bool_)
            is_known |= True
            for name in names:
                numbers, known = readings.row(name)
                is_active |= known & (numbers > 0.0)
                is_known &= known | (name not in possible)
            total = readings.num_readings
            num_active = int(readings.counts[is_active].sum())
            num_silent = int(readings.counts[~is_active & ~is_known].sum())
            unknown = [name for name in possible if not readings.row(name)[1].any()]
            gap = "" if 2 * num_silent <= total else self._hint(*unknown)
            if num_active == 1 and total < LEAST_READINGS:
                return 0.0, gap or ONE_READING.format(total)
            return None if num_silent == total else (num_active / total, gap)

        return self._worst_of(share, names)

    def _lost_clock(self) -> Observed:
        reading, fact = next((pair for pair in CLOCKS if pair[1] in self.device.facts), CLOCKS[0])
        highest = self._fact(fact)

        def lost(readings: Columns) -> tuple[float, str] | None:
            numbers, known = readings.row(reading)
            counts = readings.counts[known]
            if not len(counts) or highest is None:
                return None
            num_known = int(counts.sum())
            gap = "" if 2 * num_known >= readings.num_readings else self._hint(reading)
            total = math.fsum(counts * numbers[known])
            return max(0.0, 1.0 - total / num_known / highest), gap

        if highest is None and reading not in self.absent:
            return Observed(device=self.device.id, gap=self._fact_hint(fact))
        return self._worst_of(lost, [reading])

    def _power_fraction(self) -> Observed:
        """The least of all cases; readings that do not stand in full count by their means."""
        limit = self._fact("power_limit")
        hot = {case.case.id: self._hot_power(case) for case in self.cases}
        known = {name: value for name, value in hot.items() if value is not None}
        if not known and "power_watts" in self.absent and not self._is_reported(["power_watts"]):
            return self._absent()
        if not known or limit is None:
            is_silent = not known and any(len(self._loaded(case)) for case in self.cases)
            gap = self._hint("power_watts") if is_silent else UNLOADED
            gap = self._fact_hint("power_limit") if known else gap
            return Observed(device=self.device.id, gap=gap)
        where = min(known, key=known.__getitem__)
        least, most = known[where] / limit, max(known.values()) / limit
        counts = [
            (self.of_phase(case, HOT) if _has_phases(case) else self._loaded(case)).num_readings
            for case in self.cases
        ]
        is_tagged = all(map(_has_phases, self.cases))
        return Observed(
            device=self.device.id,
            low=least,
            high=most,
            count=sum(counts),
            where=where,
            gap="" if is_tagged else UNTAGGED,
        )

    def _unused_power(self) -> Observed:
        """Of all cases together, weighted by the readings in which the limit held the device."""
        limit = self._fact("power_limit")
        loaded = Columns.joined([self._loaded(case) for case in self.cases])
        held, known = loaded.row(CAPPED)
        if not (held[known] > 0.0).any():
            return self._never_held(loaded, is_known=bool(known.any()))
        watts = [
            one
            for case in self.cases
            for launch in case.launches
            for one in settled_watts((one.values, one.count) for one in self._loads(launch).sampled)
        ]
        number = sum(count for _, count in watts)
        if not number or limit is None:
            gap = BRIEFLY if limit is not None else self._fact_hint("power_limit")
            return Observed(device=self.device.id, gap=gap)
        mean = math.fsum(value * count for value, count in watts) / number
        return self._all(max(0.0, 1.0 - mean / limit), number)

    def _never_held(self, loaded: Columns, *, is_known: bool) -> Observed:
        """Of a device that no reading shows held back, where readings or counters were there."""
        counted = self._counted_share(["power_cap"])
        if is_known:
            return self._all(0.0, loaded.num_readings)
        if counted is not None and counted.high == 0.0:
            return counted
        if CAPPED in self.absent and not self._is_reported([CAPPED]):
            return self._absent()
        gap = BRIEFLY if counted is not None else UNLOADED
        return Observed(device=self.device.id, gap=self._hint(CAPPED) if len(loaded) else gap)

    def _power_limit_lowered(self) -> Observed:
        """By its facts when the run began; 0 where somebody raised the limit.

        Absent where the vendor's facts know no default.
        """
        if "power_limit_default" not in self.device.facts:
            return self._absent()
        limits = {name: self._fact(name) for name in ("power_limit", "power_limit_default")}
        missing = next((name for name, value in limits.items() if value is None), "")
        if missing:
            return Observed(device=self.device.id, gap=self._fact_hint(missing))
        now, default = (value or 0.0 for value in limits.values())
        where = f"{now:g} W of {default:g} W"
        return replace(self._all(max(0.0, 1.0 - now / default), 1), where=where)

    def _all(self, value: float, number: int) -> Observed:
        """One value for all that was read of the device."""
        return Observed(
            device=self.device.id, low=value, high=value, count=number, where="all of its cases"
        )

    def _core_use(self) -> Observed:
        """Of the least case; nothing is known of a record that does not say its phases."""
        use = {case.case.id: _core_use_of(case) for case in self.cases}
        known = {name: value for name, value in use.items() if value is not None}
        if not known or len(known) < len(use):
            return Observed(device=self.device.id, gap=UNTAGGED)
        where = min(known, key=known.__getitem__)
        least, most = known[where], max(known.values())
        return Observed(device=self.device.id, low=least, high=most, count=len(known), where=where)

    def of_phase(self, case: CaseEvidence, phase: str) -> Columns:
        """All readings of the device in a phase, also those that say that it was idle."""
        own = [
            one
            for launch in case.launches
            for one in (launch.readings if launch.blocks else ())  # a killed one covers nothing
            if one.phase == phase and one.device == self.device.id
        ]
        return Columns(own)

    def plain_loop(self) -> PlainLoop | None:
        """What the plain loops of its cases reached; None where none was made."""
        speeds = [speed for case in self.cases if (speed := _speed_of(case)) is not None]
        if not speeds:
            return None
        ratios = [
            hot / plain
            for case in self.cases
            if (plain := self._mean_watts(case, PLAIN)) and (hot := self._mean_watts(case, HOT))
        ]
        return PlainLoop(power=min(ratios, default=None), speed=min(speeds))

    def _mean_watts(self, case: CaseEvidence, phase: str) -> float | None:
        readings = self.of_phase(case, phase)
        watts, known = readings.row("power_watts")
        counts = readings.counts[known]
        total = int(counts.sum())
        return math.fsum(counts * watts[known]) / total if total else None

    def _hot_power(self, case: CaseEvidence) -> float | None:
        """Mean watts of the hot phases of a case; None where no power was read under load."""
        if _has_phases(case):
            return self._mean_watts(case, HOT)
        loaded = self._loaded(case)
        watts, known = loaded.row("power_watts")
        counts = loaded.counts[known].tolist()
        return mean_of_highest(list(zip(watts[known].tolist(), counts, strict=True)), HOT_PART)

    def temperature(self) -> tuple[float, bool] | None:
        """Highest temperature under load in celsius, and whether it had settled; None if unread.

        It has settled where the last fifth of the readings is no hotter than the one before.
        """
        read = [one for one in self.loaded() if one.values.get("temperature_celsius") is not None]
        if len(read) < FIFTHS:
            return None
        fifth = len(read) // FIFTHS
        before, last = (
            statistics.fmean(one.values["temperature_celsius"] or 0.0 for one in part)
            for part in (read[-2 * fifth : -fifth], read[-fifth:])
        )
        highest = max(one.highs.get("temperature_celsius") or 0.0 for one in read)
        return highest, last - before <= SETTLED_KELVINS

    def _worst_of(
        self,
        figure: Callable[[Columns], tuple[float, str] | None],
        names: Sequence[str],
    ) -> Observed:
        """The highest figure of those over each long case and over all of them."""
        if set(names) <= self.absent and not self._is_reported(names):
            return self._absent()
        each = [(case.case.id, self._loaded(case)) for case in self.cases]
        pools = [(name, part) for name, part in each if part.num_readings >= LEAST_READINGS]
        whole = Columns.joined([part for _, part in each])
        if self.scope != "interim":
            pools.append(("all of its cases", whole))
        figures = [
            (where, answer) for where, part in pools if len(part) and (answer := figure(part))
        ]
        if not figures:
            return Observed(
                device=self.device.id, gap=self._hint(*names) if len(whole) else UNLOADED
            )
        where, (value, _) = max(figures, key=lambda item: item[1][0])
        gap = next((gap for _, (_, gap) in figures if gap), "")
        return Observed(
            device=self.device.id,
            low=value,
            high=value,
            count=whole.num_readings,
            where=where,
            gap=gap,
        )

    def _missing(self, reading: str, *, is_idle_same: bool = False) -> Observed:
        """How far the best reading of each launch is from what the part has; the worst of these.

        `is_idle_same`: idle devices keep it, so that any reading does where none is under load.
        """
        fact = f"{reading}_highest"
        highest = self._fact(fact)
        missing: dict[str, float] = {}
        for name, loaded in self._linked(is_idle_same=is_idle_same):
            known = [value for one in loaded if (value := one.highs.get(reading)) is not None]
            if known and highest is not None:
                missing[name] = max(0.0, highest - max(known))
        if not missing:
            gap = UNLOADED if self._is_reported([reading]) else ""
            gap = gap if highest is not None else self._fact_hint(fact)
            is_absent = reading in self.absent and not self._is_reported([reading])
            return self._absent() if is_absent else self._unseen(reading, gap)
        where = max(missing, key=missing.__getitem__)
        worst = missing[where]
        return Observed(
            device=self.device.id, low=worst, high=worst, count=len(missing), where=where
        )

    def _linked(self, *, is_idle_same: bool) -> Iterator[tuple[str, Sequence[Sampled]]]:
        """The readings under load of each launch; of a case without any, all that it has."""
        for case in self.cases:
            loaded = [(launch.id, self._loads(launch).sampled) for launch in case.launches]
            if is_idle_same and not any(values for _, values in loaded):
                every = [one for launch in case.launches for one in self._of_device(launch)]
                loaded = [(case.case.id, every)]
            yield from loaded

    def _launches(self) -> Iterator[LaunchEvidence]:
        for case in self.cases:
            yield from case.launches

    def _of_device(self, launch: LaunchEvidence) -> list[Sampled]:
        return [one for one in launch.readings if one.device == self.device.id]

    def _loaded(self, case: CaseEvidence) -> Columns:
        return Columns.joined([self._loads(launch) for launch in case.launches])

    def _loads(self, launch: LaunchEvidence) -> Columns:
        """Its readings under load; kept with the launch until it has more of them, or blocks."""
        if not launch.readings:
            return NONE_READ
        now = len(launch.readings), len(launch.blocks)
        for device, then, columns in launch.loads:
            if (device, then) == (self.device.id, now):
                return columns
        columns = Columns([one for one in under_load(launch) if one.device == self.device.id])
        others = (one for one in launch.loads if one[0] != self.device.id)
        launch.loads = (*others, (self.device.id, now, columns))
        return columns

    def loaded(self) -> list[Sampled]:
        """All readings under load."""
        return [one for case in self.cases for one in self._loaded(case).sampled]

    # -------------------------------------------------------------- what is not there

    def gaps(self) -> tuple[Gap, ...]:
        """What was never observed of the device, and what would allow it; not what is absent."""
        reported = self._reported()
        read = [name for one in self._readings() for name in one.values]
        names = dict.fromkeys((*self.counter_names, *self.hints, *read))
        named = [
            Gap(what=name, hint=self._hint(name))
            for name in names
            if name not in self.absent and name not in reported
        ]
        hint = self.run.log_gap or ("" if self.run.num_log_marks else UNREAD)
        return (*named, *([Gap(what="kernel_log", hint=hint)] if hint else []))

    def _is_reported(self, names: Sequence[str]) -> bool:
        """Whether a value of one of them was ever reported."""
        return not self._reported().isdisjoint(names)

    def _reported(self) -> set[str]:
        """Everything of which a value was reported at least once."""
        readings = [one.values for one in self._readings()]
        return self.run.reported.get(self.device.id, set()) | {
            name for values in readings for name, value in values.items() if value is not None
        }

    def _readings(self) -> list[Sampled]:
        return [one for launch in self._launches() for one in self._of_device(launch)]

    def _unseen(self, name: str, gap: str = "") -> Observed:
        if name in self.absent:
            return self._absent()
        return Observed(device=self.device.id, gap=gap or self._hint(name))

    def _absent(self) -> Observed:
        return Observed(device=self.device.id, is_absent=True)

    def _hint(self, *names: str) -> str:
        return next((self.hints[name] for name in names if name in self.hints), UNREPORTED)

    def _fact(self, name: str) -> float | None:
        value = value_of(self.device.facts, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and value > 0 else None  # type: ignore[operator,arg-type]

    def _fact_hint(self, name: str) -> str:
        fact = self.device.facts.get(name)
        return (fact.hint if fact is not None else "") or f"{name} of the part is not reported"


def _growth(
    name: str, spans: Iterable[tuple[Counted, Counted]]
) -> tuple[int | None, tuple[str, ...], str]:
    """What grew between readings, where, and what makes that less than the whole."""
    growth: int | None = None
    where: dict[str, None] = {}
    fault = ""
    for sooner, later in spans:
        begin, end = sooner.counters.get(name), later.counters.get(name)
        if begin is None or end is None:
            continue  # which the caller has seen
        if end < begin:
            fault = fault or f"it went back from {begin:,} to {end:,}, so it was reset"
            continue
        growth = (growth or 0) + end - begin
        if end > begin:
            where[sooner.launch if sooner.moment == "before" and sooner.launch else BETWEEN] = None
    if growth is None and not fault:
        fault = "it was not read both before and after"
    return growth, tuple(where), fault


def _has_phases(case: CaseEvidence) -> bool:
    """Whether every launch of a case that has steps says how they loaded its device."""
    worked = [launch for launch in case.launches if launch.blocks]
    return bool(worked) and all(launch.phases for launch in worked)


def _core_use_of(case: CaseEvidence) -> float | None:
    every = (one for launch in case.launches for one in stretches(launch.phases))
    return core_use(one for one in every if one.phase == HOT)


def _speed_of(case: CaseEvidence) -> float | None:
    """Median over launches, of the plain loop's time for a product over the proven one's."""
    speeds = [
        speed
        for launch in case.launches
        for plain, proven in pairwise(stretches(launch.phases))
        if (plain.phase, proven.phase) == (PLAIN, PROVEN)
        and (speed := speed_over(proven, plain)) is not None
    ]
    return statistics.median(speeds) if speeds else None


def mean_of_highest(weighted: Sequence[tuple[float, int]], part: float) -> float | None:
    """The mean of the highest part of values that count so often each; None without any."""
    left = total = part * sum(count for _, count in weighted)
    if not total:
        return None
    amount = 0.0
    for value, count in sorted(weighted, reverse=True):
        taken = min(left, count)
        amount += taken * value
        left -= taken
    return amount / total


def under_load(launch: LaunchEvidence) -> list[Sampled]:
    """Readings that were taken while the launch's steps ran, of devices that were not idle."""
    return [
        reading
        for reading, num_blocks in zip(launch.readings, launch.blocks_before, strict=True)
        if num_blocks is not None and num_blocks < len(launch.blocks) and _is_busy(reading.values)
    ]


def _is_busy(values: Values) -> bool:
    share = values.get("utilisation_fraction")
    return share is None or share >= BUSY


def _worst(pick: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """The extreme of readings; nonsense among them is the worst of all."""
    return pick(values) if all(map(math.isfinite, values)) else math.nan


def of_devices(
    devices: Sequence[Device], cases: Sequence[CaseEvidence], scope: Scope
) -> tuple[Ledger, ...]:
    """A ledger for each device that one of the cases runs on."""
    ledgers = []
    used = {name for case in cases for name in case.case.all_devices}
    for device in devices:
        if device.id not in used:
            continue
        own = tuple(case for case in cases if device.id in case.case.all_devices)
        ledgers.append(Ledger(device=device, run=own[0].run, cases=own, scope=scope))
    return tuple(ledgers)
