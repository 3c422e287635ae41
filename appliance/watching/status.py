"""What a run is at, by the lines of its journal so far.

Everything shown was recorded: launches by their outcome, the last reading of each device with its
age (a segment of a burn-in records its readings by the minute), and of a burn-in the products that
ended segments proved and the mismatches that they reported. No time of a step is shown, because
whoever watches a number is tempted to stop when it pleases him.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from appliance.evidence.folding import of_folded
from appliance.planning.launch_constants import SEGMENTED
from appliance.planning.remaining_time import RemainingTime
from appliance.records.journal import (
    Block,
    Calibrated,
    Checked,
    Environment,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Line,
    MismatchExamined,
    Reading,
    ReadingsFolded,
    RunEnded,
    RunResumed,
    SessionBegan,
    SessionEnded,
    Started,
    Warmed,
)
from appliance.records.json import Number, Record
from appliance.records.plan import Plan
from appliance.stress.aggregates import Aggregate
from appliance.stress.table import KindTotal, aggregates_of, totals

Phase = Literal["waiting", "preparing", "checking the first step", "at work", "checking"]
State = Literal["running", "stopped", "paused", "ended"]

PRODUCTS = re.compile(r"digested blocks: ([\d,]{1,26}) products")
SHOWN = ("power_watts", "temperature_celsius", "graphics_clock_hertz", "frequency_hertz")
"""Readings that are shown, where they are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNow(Record):
    """The last readings of a device; `age_seconds` is how long ago they were taken."""

    device: str
    values: Mapping[str, Number]
    age_seconds: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNow(Record):
    """A launch that is under way; of `launches` of its case it is the `number`-th."""

    launch: str
    number: int
    launches: int
    phase: Phase
    seconds: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class StressNow(Record):
    """What ended segments say of a kind of stress; `share` of the time it was at work."""

    kind: str
    proven_bytes: int
    bytes_a_second: Number
    share: Number
    mismatches: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Record):
    """What a run is at. `mismatches` and `products` are None where no case is a burn-in's.

    `stress` is empty where no segment with stress beside its products has ended; its mismatches
    count among `mismatches` too.

    `remaining_seconds` is None where nothing remains or the run does not go on by itself.
    """

    schema: Literal["bench/status/1"] = "bench/status/1"
    folder: str
    run_id: str
    suite: str
    state: State
    launches: int
    done: int
    outcomes: Mapping[str, int]
    running: tuple[LaunchNow, ...]
    cases: int
    cases_done: int
    devices: tuple[DeviceNow, ...]
    products: int | None
    mismatches: int | None
    seconds_under_test: Number
    checks_outside: int
    interruptions: int
    remaining_seconds: Number | None
    last_utc: str
    stress: tuple[StressNow, ...] = ()


@dataclass(kw_only=True)
class _Running:
    begin: datetime
    phase: Phase = "preparing"


@dataclass(kw_only=True)
class Tracker:
    """Takes the lines of a run in their order; `status` says at any time what it is at."""

    plan: Plan
    _running: dict[str, _Running] = field(default_factory=dict)
    _ended: dict[str, str] = field(default_factory=dict)
    _read: dict[str, tuple[datetime, Mapping[str, float | None]]] = field(default_factory=dict)
    _products: int = 0
    _mismatches: int = 0
    _stress: list[Aggregate] = field(default_factory=list)
    _outside: int = 0
    _interruptions: int = 0
    _seconds: float = 0.0
    _elapsed: float = 0.0
    _last: datetime | None = None
    _begin: datetime | None = None
    _last_utc: str = ""
    _is_over: bool = False
    _is_paused: bool = False

    def __post_init__(self) -> None:
        self._launches = {one.id: one for one in self.plan.launches}
        self._cases = {one.id: one for one in self.plan.cases}
        self._remaining = RemainingTime(self.plan)

    def take(self, line: Line) -> None:
        """Add the next line."""
        event, now = line.event, datetime.fromisoformat(line.utc)
        self._begin = self._begin or now
        self._last, self._last_utc = now, line.utc
        match event:
            case LaunchStarted():
                self._running[event.launch] = _Running(begin=now)
            case LaunchEnded():
                self._end(event)
            case Reading():
                self._read[event.device] = now, event.values
            case ReadingsFolded():
                for one in of_folded(event):
                    self._read[event.device] = now, one.values
            case Checked() | MismatchExamined():
                self._check(event)
            case InterimAnalysis():
                self._remaining.analysed(event.case, event.launches, is_decided=event.is_decided)
            case _:
                self._take_of_run(event)
        self._advance(event)

    def _take_of_run(self, event: object) -> None:
        match event:
            case RunResumed():
                self._interruptions += 1
                self._running.clear()
            case SessionEnded():
                self._is_paused = True
            case SessionBegan():
                self._is_paused = False
            case RunEnded():
                self._is_over = True
            case Block():
                self._seconds += event.block_wall_ns * 1e-9

    def _advance(self, event: object) -> None:
        """How far the launch of an event has come by it."""
        running = self._running.get(getattr(event, "launch", ""))
        if running is None:
            return
        match event:
            case Environment():
                running.phase = "preparing"
            case Started():
                running.phase = "checking the first step"
            case Calibrated() | Warmed():
                running.phase = "at work"
            case Block():
                running.phase = "checking"

    def _end(self, event: LaunchEnded) -> None:
        self._running.pop(event.launch, None)
        self._ended[event.launch] = event.outcome
        launch = self._launches.get(event.launch)
        if launch is not None:
            self._remaining.launch_ended(launch, event.wall_ns * 1e-9, event.outcome)

    def _check(self, event: Checked | MismatchExamined) -> None:
        if isinstance(event, MismatchExamined):
            return
        check, launch = event.check, self._launches.get(event.launch)
        self._outside += not check.is_within
        is_segment = launch is not None and self._cases[launch.case].workload in SEGMENTED
        if not is_segment or event.phase != "last":
            return
        if (found := PRODUCTS.search(check.detects_what)) is not None:
            self._products += int(found[1].replace(",", ""))
        self._stress += aggregates_of([check])
        if "mismatch" in check.name and check.error == check.error:
            self._mismatches += int(check.error)

    def status(self, folder: str, now: datetime, *, is_written: bool) -> Status:
        """What the run is at, `now`; `is_written` says whether somebody writes its journal."""
        is_burn_in = any(one.workload in SEGMENTED for one in self.plan.cases)
        state = self._state(is_written=is_written)
        return Status(
            folder=folder,
            run_id=self.plan.run_id,
            suite=self.plan.suite,
            state=state,
            launches=len(self._launches),
            done=len(self._ended),
            outcomes=dict(sorted(Counter(self._ended.values()).items())),
            running=tuple(self._now(name, one, now) for name, one in self._running.items()),
            cases=len(self._cases),
            cases_done=self._cases_done(),
            devices=tuple(self._device(name, now) for name in sorted(self._read)),
            products=self._products if is_burn_in else None,
            mismatches=self._mismatches if is_burn_in else None,
            seconds_under_test=self._seconds,
            checks_outside=self._outside,
            interruptions=self._interruptions,
            remaining_seconds=self._left(now) if state == "running" else None,
            last_utc=self._last_utc,
            stress=tuple(map(_stress_now, totals(self._stress))),
        )

    def _state(self, *, is_written: bool) -> State:
        if self._is_over:
            return "ended"
        if is_written:
            return "running"
        return "paused" if self._is_paused else "stopped"

    def _cases_done(self) -> int:
        left = {one.case for one in self.plan.launches if one.id not in self._ended}
        return len(self._cases) - len(left)

    def _now(self, name: str, running: _Running, now: datetime) -> LaunchNow:
        launch = self._launches.get(name)
        return LaunchNow(
            launch=name,
            number=0 if launch is None else launch.number,
            launches=0 if launch is None else self._cases[launch.case].launches,
            phase=running.phase,
            seconds=max(0.0, (now - running.begin).total_seconds()),
        )

    def _device(self, name: str, now: datetime) -> DeviceNow:
        moment, values = self._read[name]
        shown = {key: value for key in SHOWN if (value := values.get(key)) is not None}
        age = max(0.0, (now - moment).total_seconds())
        return DeviceNow(device=name, values=shown, age_seconds=age)

    def _left(self, now: datetime) -> float:
        elapsed = 0.0 if self._begin is None else (now - self._begin).total_seconds()
        begins = [one.begin for one in self._running.values()]
        passed = max(((now - one).total_seconds() for one in begins), default=0.0)
        return max(0.0, self._remaining.seconds(max(0.0, elapsed - passed)) - passed)


def _stress_now(total: KindTotal) -> StressNow:
    return StressNow(
        kind=total.kind,
        proven_bytes=total.total.proven,
        bytes_a_second=total.bytes_a_second,
        share=total.share,
        mismatches=total.total.mismatches,
        lost=total.lost,
    )
