"""Runs on a virtual clock: real plans, real journals and the real judge, over times from a model.

What the judge does to a slow device, to noise or to a forged record can only be shown where the
truth is known. So the step times of a run are drawn from a model, and everything else is what
production uses: launches and interim analyses are settled by the same history, each interim
analysis asks the same judge, and the lines may be stored by the journal itself.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from appliance.evidence.run_state import History
from appliance.judging.verdict import Judge
from appliance.planning.check_sampling import sampled_steps
from appliance.planning.launch_constants import EMPTY_BLOCK_STEPS, NUM_EMPTY_BLOCKS
from appliance.planning.plan import case_analyses, case_seed
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import (
    Block,
    Calibrated,
    Check,
    Checked,
    Counted,
    Digested,
    Event,
    Float32Products,
    Injected,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    LibrariesHashed,
    LibrariesMapped,
    Line,
    Outcome,
    Phase,
    RunEnded,
    RunResumed,
    RunStarted,
    Started,
    Warmed,
)
from appliance.records.json import sha256
from appliance.records.plan import Case, Launch
from appliance.records.verdict import Verdict
from appliance.scheduling.left_time import LeftTime
from appliance.selftest.time_model import Array, Shape
from appliance.selftest.virtual_node import BUILD_SECONDS, EPOCH, Node, utc
from appliance.storage.journal import Clock

STOPPED = "the appliance was stopped"
EMPTY_NS = 12_000
"""What timing a step costs, as on an H100."""
VIRTUAL_FILE = "1:2:7:3:3"
"""The one file that virtual launches have mapped."""
COUNTERS = ("thermal_violation_ns", "power_brake_violation_ns")
UNKNOWN = ("throttled_current",)
"""What a device that counts these has no reason for."""
Alter = Callable[[Launch, Event], Event | None]
"""What becomes of an event of a launch before it is written down; None leaves it out."""


# ------------------------------------------------------------------ the clock and the journal


@dataclass
class VirtualClock:
    """Time that passes on command."""

    nanoseconds: int = 0

    def advance_to(self, nanoseconds: int) -> None:
        """Move on; a moment that has passed changes nothing, for no clock runs backwards."""
        self.nanoseconds = max(self.nanoseconds, nanoseconds)

    @property
    def of_journal(self) -> Clock:
        """The same clock, as a journal asks it."""
        return Clock(
            utc=lambda: EPOCH + timedelta(microseconds=self.nanoseconds // 1000),
            monotonic_ns=lambda: self.nanoseconds,
        )


class Keeper(Protocol):
    """What keeps the lines: a journal on disk, or a tape in memory."""

    def append(self, event: Event, *, sync: bool = False) -> Line: ...


@dataclass
class Tape:
    """Lines in memory, without a chain: enough for the judge, and fast."""

    clock: VirtualClock
    lines: list[Line] = field(default_factory=list)

    def append(self, event: Event, *, sync: bool = False) -> Line:
        """Keep one event with the time of the virtual clock."""
        del sync
        now = self.clock.nanoseconds
        line = Line(seq=len(self.lines), utc=utc(now), monotonic_ns=now, prev="", event=event)
        self.lines.append(line)
        return line


# ------------------------------------------------------------------ the run


def as_it_is(launch: Launch, event: Event) -> Event:
    """Nothing is altered."""
    del launch
    return event


@dataclass(frozen=True, kw_only=True)
class Hand:
    """What someone does to a run: records altered, slow launches cut short and the run resumed.

    The first `kills` launches that are slower than `slow_factor` are cut short after half of
    their blocks.
    """

    alter: Alter = as_it_is
    kills: int = 0
    slow_factor: float = 1.04


HONEST = Hand()


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What a simulated run leaves."""

    node: Node
    lines: tuple[Line, ...]
    verdict: Verdict

    @property
    def num_made(self) -> int:
        """Timed launches that were started."""
        timed = {launch.id for launch in self.node.plan.launches if launch.is_timed}
        return sum(
            isinstance(line.event, LaunchStarted) and line.event.launch in timed
            for line in self.lines
        )


def simulate(
    node: Node,
    *,
    seed: int,
    gap_seconds: float = 0.0,
    hand: Hand = HONEST,
    keeper: Keeper | None = None,
    clock: VirtualClock | None = None,
) -> Simulated:
    """Make every launch and every interim analysis of the node's plan, and the verdict.

    `seed` draws all times; the times of a case do not depend on the other cases. `gap_seconds`
    pass between two groups of launches. `keeper` must use `clock`; without one the lines stay in
    memory.
    """
    clock = clock or VirtualClock()
    run = _Run(
        node=node,
        seed=seed,
        gap_ns=round(gap_seconds * 1e9),
        hand=hand,
        clock=clock,
        keeper=keeper or Tape(clock),
        judge=node.judge(),
    )
    run.all()
    return Simulated(node=node, lines=tuple(run.lines), verdict=run.judge.verdict())


@dataclass(kw_only=True)
class _Run:
    """One run under way; settles launches and interim analyses as the runner does."""

    node: Node
    seed: int
    gap_ns: int
    hand: Hand
    clock: VirtualClock
    keeper: Keeper
    judge: Judge
    lines: list[Line] = field(default_factory=list)
    num_killed: int = 0
    has_hashed: bool = False
    drawn: dict[str, Array] = field(default_factory=dict)
    held_ns: dict[str, float] = field(default_factory=dict)
    """What the counters of each device show."""

    @cached_property
    def cases(self) -> dict[str, Case]:
        return {case.id: case for case in self.node.plan.cases}

    @cached_property
    def history(self) -> History:
        return History(self.node.plan, ())

    @cached_property
    def left_time(self) -> LeftTime:
        return LeftTime(self.node.plan)

    def all(self) -> None:
        plan = self.node.plan
        launches = {launch.id: launch for launch in plan.launches}
        started = RunStarted(
            run_id=plan.run_id,
            plan=self.node.digests["plan.json"],
            system=self.node.digests["system.json"],
            pid=1,
        )
        self._record(started)
        for injector in plan.injectors:
            names = tuple(case.id for case in plan.cases if case.injector == injector)
            self._record(Injected(injector=injector, cases=names))
        self._count(self._devices, moment="before")
        for group in plan.groups:
            members = [launches[name] for name in group]
            to_make = [launch for launch in members if self._is_to_make(launch)]
            if to_make:
                self._make(to_make)
            for name in dict.fromkeys(launch.case for launch in members):
                self._interim_analyses(self.cases[name])
        self._count(self._devices, moment="after")
        self._record(RunEnded(launches=len(plan.launches)))

    def _is_to_make(self, launch: Launch) -> bool:
        case = self.cases[launch.case]
        if launch.is_timed and self.history.is_decided(case):
            self._record(_ended(launch, "not_run", "decided"))
            return False
        if not self.left_time.allows(launch):
            self._record(_ended(launch, "not_run", NO_TIME))
            return False
        return True

    def _make(self, group: Sequence[Launch]) -> None:
        """Make launches that start together; a slow one may be cut short, and with it the others.

        Their events are written in the order of their times.
        """
        begin = self.clock.nanoseconds + self.gap_ns
        courses = {launch.id: self._course(launch, begin) for launch in group}
        end = self._kill(group, courses)
        open_launches: dict[str, Launch] = {}
        for moment, _, launch, event in heapq.merge(*courses.values(), key=lambda item: item[:2]):
            if moment > end:
                break
            self._take(moment, launch, event, open_launches)
        if open_launches and end < math.inf:
            self._resume(tuple(open_launches.values()))

    def _take(
        self, moment: int, launch: Launch, event: Event, open_launches: dict[str, Launch]
    ) -> None:
        altered = self.hand.alter(launch, event)
        self.clock.advance_to(moment)
        devices = self.cases[launch.case].all_devices
        if isinstance(event, LaunchStarted):
            self._count(devices, launch.id, moment="before")
        if altered is not None:
            self._record(altered)
        if isinstance(event, LibrariesMapped) and not self.has_hashed:
            self._record(LibrariesHashed(digests={VIRTUAL_FILE: sha256(b"virtual")}))
            self.has_hashed = True
        self._hold_back(devices, event)
        if isinstance(event, LaunchEnded):
            self._count(devices, launch.id, moment="after")
        if isinstance(event, LaunchStarted):
            open_launches[launch.id] = launch
        elif isinstance(event, LaunchEnded):
            del open_launches[launch.id]

    @property
    def _devices(self) -> tuple[str, ...]:
        return tuple(one.id for one in self.node.system.identity.devices)

    def _hold_back(self, devices: Sequence[str], event: Event) -> None:
        """Let the counters of a launch's devices grow by the share of the time of its steps."""
        for device in devices:
            grown = (self.node.held_back or 0.0) * _steps_ns(event)
            self.held_ns[device] = self.held_ns.get(device, 0.0) + grown

    def _count(
        self, devices: Sequence[str], launch: str = "", *, moment: Literal["before", "after"]
    ) -> None:
        """Read the counters of devices, where the node has any."""
        for device in devices if self.node.held_back is not None else ():
            counters = dict(zip(COUNTERS, (round(self.held_ns.get(device, 0.0)), 0), strict=True))
            absent = UNKNOWN if (launch, moment) == ("", "before") else ()
            self._record(
                Counted(
                    device=device, counters=counters, launch=launch, moment=moment, absent=absent
                )
            )

    def _kill(self, group: Sequence[Launch], courses: Mapping[str, list[_Timed]]) -> float:
        """The moment at which a launch of the group is cut short; infinite if none is."""
        if self.num_killed == self.hand.kills:
            return math.inf
        for launch in group:
            if launch.is_timed and self._is_slow(launch):
                self.num_killed += 1
                blocks = [item for item in courses[launch.id] if isinstance(item[3], Block)]
                return blocks[len(blocks) // 2 - 1][0]
        return math.inf

    def _is_slow(self, launch: Launch) -> bool:
        times = self._times(self.cases[launch.case])[launch.number - 1]
        usual = self.node.timings[launch.case].step_seconds
        return bool(np.median(times) > usual * self.hand.slow_factor)

    def _resume(self, launches: Sequence[Launch]) -> None:
        """What a parent that goes on writes first."""
        self.clock.advance_to(self.clock.nanoseconds + 10**9)
        interrupted = tuple(launch.id for launch in launches)
        self._record(
            RunResumed(interruption=self.num_killed, interrupted=interrupted, dropped="", pid=1)
        )
        for launch in launches:
            self._record(_ended(launch, "interrupted", STOPPED))

    def _interim_analyses(self, case: Case) -> None:
        interim_analyses, most = case_analyses(self.node.plan, case), case.launches
        while (count := self.history.due_analysis(case, interim_analyses, most)) is not None:
            is_decided, reason = self.judge.interim_analysis(case.id)
            self._record(
                InterimAnalysis(case=case.id, launches=count, is_decided=is_decided, reason=reason)
            )

    def _record(self, event: Event) -> None:
        line = self.keeper.append(event)
        self.lines.append(line)
        self.history.take(event)
        self.left_time.take(line)
        self.judge.take(line)

    # -------------------------------------------------------------- one launch

    def _times(self, case: Case) -> Array:
        """Seconds of all steps of all launches of a case, but for the pace."""
        if case.id not in self.drawn:
            protocol = self.node.plan.protocol
            number = self.node.plan.cases.index(case)
            self.drawn[case.id] = self.node.timings[case.id].draw(
                np.random.default_rng([self.seed, number]),
                launches=case.launches,
                warm=protocol.warmup_steps,
                shape=Shape(blocks=protocol.blocks, steps=protocol.block_steps),
            )
        return self.drawn[case.id]

    def _course(self, launch: Launch, begin: int) -> list[_Timed]:
        """Events of a launch with their moments, from its start to its end."""
        events = self._timed(launch, begin) if launch.is_timed else self._untimed(launch, begin)
        return [(moment, number, launch, event) for number, (moment, event) in enumerate(events)]

    def _first(self, launch: Launch, begin: int) -> Iterator[tuple[int, Event]]:
        """Start, first step and its check, and the comparison of the clocks."""
        step_ns = round(self.node.timings[launch.case].step_seconds * 1e9)
        build_ns = round(BUILD_SECONDS * 1e9)
        yield begin, LaunchStarted(launch=launch.id, mode=self.node.plan.protocol.mode)
        yield begin, self._products(launch, "before")
        after = begin + build_ns + 2 * step_ns
        started = Started(launch=launch.id, rank=0, build_ns=build_ns, first_step_ns=2 * step_ns)
        yield after, started
        if self.cases[launch.case].is_repeatable:
            yield after, _digested(launch)
        yield after, _checked(launch, "first", step=0)
        span = round(self.node.plan.protocol.calibration_seconds * 1e9)
        has_events = self.node.timings[launch.case].has_events
        yield (
            after + 3 * span + NUM_EMPTY_BLOCKS * EMPTY_BLOCK_STEPS * EMPTY_NS,
            Calibrated(
                launch=launch.id,
                rank=0,
                wall_ns=(span,) * 3,
                raw_ns=(span,) * 3,
                event_ns=(span - span // 10_000,) * 3 if has_events else None,
                inner_ns=(span - span // 5_000,) * 3 if has_events else None,
                empty_ns=(EMPTY_NS,) * NUM_EMPTY_BLOCKS,
            ),
        )

    def _products(self, launch: Launch, moment: Literal["before", "after"]) -> Float32Products:
        """Float32 products made as the case asks for them."""
        formats = {"matmul": "tf32" if self.cases[launch.case].in_tf32 else "ieee"}
        return Float32Products(launch=launch.id, rank=0, moment=moment, formats=formats)

    def _untimed(self, launch: Launch, begin: int) -> Iterator[tuple[int, Event]]:
        moment = begin
        for moment, event in self._first(launch, begin):
            yield moment, event
        files = {"/virtual.so": VIRTUAL_FILE}
        yield moment, LibrariesMapped(launch=launch.id, rank=0, files=files)
        moment += round(BUILD_SECONDS * 1e9)
        yield moment, self._products(launch, "after")
        yield moment, _ended(launch, "completed", wall_ns=moment - begin)

    def _timed(self, launch: Launch, begin: int) -> Iterator[tuple[int, Event]]:
        protocol = self.node.plan.protocol
        case = self.cases[launch.case]
        timing = self.node.timings[case.id]
        moment = begin
        for moment, event in self._first(launch, begin):
            yield moment, event
        seconds = self._times(case)[launch.number - 1]
        since = moment * 1e-9 + np.cumsum(seconds)
        nanoseconds = np.rint(seconds * timing.pace(since) * 1e9).astype(np.int64)
        warm = protocol.warmup_steps
        moment += int(nanoseconds[:warm].sum())
        yield moment, Warmed(launch=launch.id, rank=0, wall_ns=tuple(nanoseconds[:warm].tolist()))
        blocks = nanoseconds[warm:].reshape(protocol.blocks, protocol.block_steps)
        for index, row in enumerate(blocks):
            block_ns = int(row.sum()) + 1000 * len(row)
            moment += block_ns
            yield (
                moment,
                Block(
                    launch=launch.id,
                    rank=0,
                    index=index,
                    first_step=1 + warm + index * len(row),
                    wall_ns=tuple(row.tolist()),
                    event_ns=tuple((row - row // 10_000).tolist()) if timing.has_events else None,
                    block_wall_ns=block_ns,
                    block_raw_ns=block_ns,
                ),
            )
        first, number = 1 + warm, protocol.blocks * protocol.block_steps
        if case.scenario and case.steps is None:
            seed = case_seed(self.node.plan.seed, case)
            drawn = sampled_steps(seed, launch.id, protocol.block_steps)
            for step in (step for step in drawn if step < number):
                yield moment, _checked(launch, "sampled", step=first + step)
        if self.history.checks_last(case, launch.number):
            yield moment, _checked(launch, "last", step=first + number - 1)
        yield moment, self._products(launch, "after")
        yield moment, _ended(launch, "completed", wall_ns=moment - begin)


_Timed = tuple[int, int, Launch, Event]


def _steps_ns(event: Event) -> int:
    """The time of steps that an event reports."""
    match event:
        case Started():
            return event.first_step_ns
        case Warmed():
            return sum(event.wall_ns)
        case Block():
            return event.block_wall_ns
        case _:
            return 0


def _checked(launch: Launch, phase: Phase, *, step: int) -> Checked:
    check = Check(name=f"{phase} output", error=1e-6, bound=1e-5)
    return Checked(launch=launch.id, rank=0, phase=phase, step=step, check=check)


def _digested(launch: Launch) -> Digested:
    """The same on every device: a virtual one computes nothing, so nothing can be wrong with it."""
    digest = sha256(launch.case.partition("@")[0].encode())
    return Digested(launch=launch.id, rank=0, phase="first", step=0, what="output", digest=digest)


def _ended(launch: Launch, outcome: Outcome, reason: str = "", wall_ns: int = 0) -> LaunchEnded:
    return LaunchEnded(
        launch=launch.id,
        outcome=outcome,
        reason=reason,
        detail="",
        exit_code=0 if outcome == "completed" else None,
        wall_ns=wall_ns,
        peak_memory_bytes=2**20 if outcome == "completed" else None,
    )


# ------------------------------------------------------------------ what a liar would hand in


def concealed(simulated: Simulated) -> tuple[Node, tuple[Line, ...]]:
    """The same run with no word of its injectors: only what was measured can betray it."""
    plan = simulated.node.plan
    cases = tuple(replace(case, injector="") for case in plan.cases)
    node = replace(simulated.node, plan=replace(plan, cases=cases, injectors=()))
    lines = tuple(line for line in simulated.lines if not isinstance(line.event, Injected))
    return node, lines
