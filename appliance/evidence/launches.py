"""What the journal shows of each launch and each case, and what contradicts itself there.

Nothing is ruled here, but nothing is forgiven either. A launch is what stands between its
start and its end, once: only the untimed one may be made again, and only after an
interruption. What does not fit (a second start, an end without a start, records from outside,
a time that no clock can give) is kept as a fault, for which the verdict accepts nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from appliance.evidence.folding import Columns, Sampled, steps_fault, whole_ns
from appliance.planning import launch_constants
from appliance.planning.launch_constants import WIDEST_BRACKET
from appliance.planning.sessions import NO_TIME, judged_analyses
from appliance.records.journal import (
    Artifact,
    Block,
    Calibrated,
    Checked,
    Counted,
    Digested,
    Float32Products,
    KernelLogged,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    LibrariesMapped,
    MismatchExamined,
    NotObserved,
    PhaseBegan,
    Reading,
    ReadingsFolded,
    Repeated,
    RunResumed,
    SessionBegan,
    SessionEnded,
    StageTimes,
    Started,
    Warmed,
    Witnessed,
    WorkerEvent,
)
from appliance.records.plan import Case
from appliance.records.suite import LaunchMode, Protocol
from appliance.records.verdict import Clock
from appliance.statistics.estimates import (
    CLOCK_LIE,
    CLOCK_SLACK,
    LOST,
    UNSCHEDULED_SECONDS,
    BlockFigures,
    has_plausible_loads,
    launch_statistic,
)
from appliance.statistics.steady_state import Series, classify
from appliance.statistics.two_clocks import USUAL_MARGIN, ClockChoice, TimedBlock, choose

CLOCK_AGREEMENT = 0.005  # two clocks over a case, as the median of its spans
CLOCKS: tuple[Clock, Clock] = ("steps", "wall")
NOTHING: Mapping[Any, Any] = MappingProxyType({})
FEW = 4
E = TypeVar("E")


def _with(several: Sequence[E], one: E) -> Sequence[E]:
    """The same and one more: a few in a tuple, and many in a list that grows."""
    if isinstance(several, list):
        several.append(one)
        return several
    return [*several, one] if len(several) >= FEW else (*several, one)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReading:
    """What was read of a device at a moment at which no work of this run was on it.

    `utilisation` is a share of the last moments; None is not reported.
    """

    device: str
    memory_bytes: float | None
    utilisation: float | None
    power_watts: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersSeen:
    """Compute processes on a device beside a launch; `count` None where they cannot be seen.

    `num_ours` is how many of them may be the launch's own, and `has_ours` says that its first step
    is behind it, so that each of its own must be among them.
    """

    device: str
    count: int | None
    hint: str
    num_ours: int
    has_ours: bool


@dataclass(slots=True)
class LaunchEvidence:
    """What the journal reports of one launch; of an untimed one made again, all of it.

    `session` is the one that it is planned in; `place` is its place among the launches of the run,
    in the order in which they started;
    `warmed` are each rank's times of its warm-up, in nanoseconds;
    `phases` are those in which its steps loaded the device, in their order;
    `moments` are the times (UTC) at which its blocks were recorded. `figures` grow with `settle`.
    `blocks_before` has for each reading how many blocks had been reported by then, None before the
    steps were under way. `excursions` are minutes in which a reading stood out, by the time (UTC)
    of their line, with device and cause. `idle` holds those that no work of this run can be in,
    `has_reported` says that its process has sent a record, `has_stepped` that it has made its first
    step. `witnessed` are trains of equal work, `users` are processes on its devices. `stage_times`
    are what the ranks of the last start said that their time went to. What a launch has few of
    stands in tuples, and a list or mapping is made when there is something for it: a large node
    plans tens of thousands of launches, of which most say nothing of most.
    `warm_step_ns` is by rank what a step of its warm-up typically took, `warm_ns` what all of it
    took the fastest rank. `loads` keeps for each
    device the readings under load of so many readings and blocks.
    """

    id: str
    number: int
    session: int = 1
    mode: LaunchMode | None = None
    place: int | None = None
    ended: LaunchEnded | None = None
    ends: tuple[LaunchEnded, ...] = ()
    started: Started | None = None
    calibrated: tuple[Calibrated, ...] = ()
    warm_step_ns: tuple[tuple[int, int | None], ...] = ()
    warm_ns: int = 0
    blocks: Sequence[Block] = ()
    phases: Sequence[PhaseBegan] = ()
    moments: Sequence[str] = ()
    figures: Sequence[BlockFigures] = ()
    readings: Sequence[Sampled] = ()
    blocks_before: Sequence[int | None] = ()
    excursions: Sequence[tuple[str, str, str]] = ()
    idle: tuple[IdleReading, ...] = ()
    users: tuple[UsersSeen, ...] = ()
    witnessed: Sequence[Witnessed] = ()
    has_reported: bool = False
    has_stepped: bool = False
    checks: Sequence[Checked] = ()
    digested: tuple[Digested, ...] = ()
    repeated: Sequence[Repeated] = ()
    examined: Sequence[MismatchExamined] = ()
    libraries: tuple[Libraries | LibrariesMapped, ...] = ()
    float32_products: tuple[Float32Products, ...] = ()
    stage_times: tuple[StageTimes, ...] = ()
    artifacts: Mapping[str, set[str]] = field(default_factory=lambda: NOTHING)
    is_under_way: bool = False
    is_open: bool = False
    is_cut: bool = False
    is_of_before: bool = False
    was_interrupted: bool = False
    fault: str = ""
    loads: tuple[tuple[str, tuple[int, int], Columns], ...] = ()
    _means: tuple[int, float | None, float | None] = (-1, None, None)
    _series: tuple[tuple[Clock, int, Series], ...] = ()

    @property
    def first_step_ns(self) -> int | None:
        """Time of its first step; None where none was made, or beside the end of another launch."""
        started = self.started
        return None if started is None or started.is_beside else started.first_step_ns

    @property
    def phase(self) -> str:
        """How its steps load the device now; empty before they do, or where nothing says it."""
        is_over = len(self.blocks) > self.phases[-1].index if self.phases else True
        return "" if is_over else self.phases[-1].phase

    @property
    def is_completed(self) -> bool:
        return self.ended is not None and self.ended.outcome == "completed"

    @property
    def is_decided(self) -> bool:
        """Not made, because the launches before it had decided the case."""
        ended = self.ended
        return ended is not None and (ended.outcome, ended.reason) == ("not_run", "decided")

    @property
    def had_no_time(self) -> bool:
        """Not made, because the minutes of the run left no time for it."""
        ended = self.ended
        return ended is not None and (ended.outcome, ended.reason) == ("not_run", NO_TIME)

    @property
    def is_counted(self) -> bool:
        """Whether its times count: an interrupted one's do, as it is not made again."""
        is_cut = self.ended is not None and self.ended.outcome == "interrupted"
        return bool(self.blocks) and (self.is_completed or is_cut)

    @property
    def overhead(self) -> float | None:
        """Seconds that timing a step cost, by its steps that do nothing; None: not measured."""
        times = [time for calibrated in self.calibrated for time in calibrated.empty_ns or ()]
        return statistics.median(times) * 1e-9 if times else None

    def location(self, clock: Clock) -> float | None:
        """ln(seconds) of a step; of an interrupted launch, from the blocks that it had finished."""
        if not self.is_counted:
            return None
        if self._means[0] != len(self.figures):
            steps, wall = (launch_statistic(self.figures, by) for by in CLOCKS)
            self._means = len(self.figures), steps, wall
        return self._means[1 + CLOCKS.index(clock)]

    def samples(self, clock: Clock) -> list[tuple[str, NDArray[np.float64]]]:
        """The blocks of the first rank: when each was recorded, and the seconds of its steps.

        These are the samples that are judged and shown; other ranks make the same steps, in the
        same time.
        """
        rows = zip(self.blocks, self.moments, self.figures, strict=True)
        first = self.blocks[0].rank if self.blocks else 0
        return [
            (utc, figures.samples(clock)) for block, utc, figures in rows if block.rank == first
        ]

    @property
    def num_steps(self) -> int:
        """Timed steps of the launch, which its ranks make together."""
        first = self.blocks[0].rank if self.blocks else 0
        return sum(block.num_steps for block in self.blocks if block.rank == first)

    @property
    def steps_ns(self) -> int:
        """How long its steps ran in it: first step, warm-up, and the blocks of the first rank.

        A first step that stands in a block counts once; one that was made beside the end of another
        launch ran before this one began.
        """
        rank = self.blocks[0].rank if self.blocks else 0
        blocks = sum(block.block_wall_ns for block in self.blocks if block.rank == rank)
        is_in_block = any(block.first_step == 0 for block in self.blocks)
        return (0 if is_in_block else self.first_step_ns or 0) + self.warm_ns + blocks

    def step_seconds(self, clock: Clock) -> NDArray[np.float64]:
        """Seconds of all `samples` in one row; needs a block."""
        return np.concatenate([times for _, times in self.samples(clock)])

    def series(self, clock: Clock) -> Series:
        """What its timed steps look like over time; needs a block."""
        for by, num_blocks, series in self._series:
            if (by, num_blocks) == (clock, len(self.blocks)):
                return series
        with np.errstate(divide="ignore", invalid="ignore"):
            series = classify(np.log(self.step_seconds(clock)))
        others = tuple(one for one in self._series if one[0] != clock)
        self._series = (*others, (clock, len(self.blocks), series))
        return series

    @property
    def steps_to_target(self) -> float:
        """Steps of the first rank until its training came to the target; a miss is infinite."""
        block = self.blocks[0] if self.blocks else None
        return math.inf if block is None or block.reached_at is None else block.reached_at

    @property
    def seconds_to_target(self) -> float:
        """What those steps took by the host's clock, from the first one on, and nothing else."""
        missed = math.isinf(self.steps_to_target)
        return math.inf if missed else self.blocks[0].block_wall_ns * 1e-9

    @property
    def stall_share(self) -> float | None:
        """Part of its steps' time that loading took; None where nothing is loaded."""
        loads = [block.load_ns for block in self.blocks]
        if not loads or any(times is None for times in loads):
            return None
        whole = sum(sum(block.wall_ns) for block in self.blocks)
        loading = sum(sum(times) for times in loads if times is not None)
        return loading / whole if whole > 0 else math.nan

    def has_phase(self, phase: str, ranks: int) -> bool:
        """Whether each of so many ranks has checked its output of that phase."""
        checked_ranks = {checked.rank for checked in self.checks if checked.phase == phase}
        return checked_ranks >= set(range(ranks))

    def take(self, event: object, utc: str, place: int) -> None:
        """Add one event that names this launch."""
        self.has_reported |= isinstance(event, WorkerEvent)
        match event:
            case LaunchStarted():
                self._start(event)
                self.place = place
            case LaunchEnded():
                self._end(event)
            case Started() | Calibrated() | Warmed():
                self._inside()
                self._prepare(event)
            case PhaseBegan():
                self._inside()
                self.phases = _with(self.phases, event)
            case Block():
                self._inside()
                self.blocks = _with(self.blocks, event)
                self.moments = _with(self.moments, utc)
            case Witnessed():
                self._inside()
                self.witnessed = _with(self.witnessed, event)
            case (
                Checked()
                | Digested()
                | Libraries()
                | LibrariesMapped()
                | Float32Products()
                | Repeated()
                | MismatchExamined()
                | StageTimes()
            ):
                self._inside()
                self._keep(event)
            case Artifact():
                self._inside()
                if event.is_made and self.number != 0:
                    return  # a timed launch that makes a file itself depends on no other
                known = self.artifacts.get(event.name, set())
                self.artifacts = {**self.artifacts, event.name: {*known, event.sha256}}
            case _:  # its environment decides nothing, its counters are those of the run
                pass

    def sample(self, event: Reading | ReadingsFolded, several: Sequence[Sampled], utc: str) -> None:
        """Add readings that were taken while it ran; `several` are what the event holds."""
        num_blocks = len(self.blocks) if self.is_under_way else None
        for one in several:
            self.readings = _with(self.readings, one)
            self.blocks_before = _with(self.blocks_before, num_blocks)
        for cause in event.causes if isinstance(event, ReadingsFolded) else ():
            self.excursions = _with(self.excursions, (utc, event.device, cause))

    def settle(self, figures: BlockFigures) -> None:
        """Add the figures of the first of its blocks that has none yet."""
        self.figures = _with(self.figures, figures)

    def _prepare(self, event: Started | Calibrated | Warmed) -> None:
        match event:
            case Started():
                self.started, self.has_stepped = event, True
            case Calibrated():
                self.calibrated += (event,)
                self.is_under_way = True
            case Warmed():
                median = launch_constants.median_ns(event.wall_ns)
                others = (one for one in self.warm_step_ns if one[0] != event.rank)
                self.warm_step_ns = (*others, (event.rank, median))
                total = sum(event.wall_ns)
                self.warm_ns = min(total, self.warm_ns or total)
                self.is_under_way = True

    def _keep(
        self,
        event: Checked
        | Digested
        | Libraries
        | LibrariesMapped
        | Float32Products
        | Repeated
        | MismatchExamined
        | StageTimes,
    ) -> None:
        match event:
            case Checked():
                self.checks = _with(self.checks, event)
            case Digested():
                self.digested += (event,)
            case Libraries() | LibrariesMapped():
                self.libraries += (event,)
            case Float32Products():
                self.float32_products += (event,)
            case Repeated():
                self.repeated = _with(self.repeated, event)
            case MismatchExamined():
                self.examined = _with(self.examined, event)
            case StageTimes():
                self.stage_times += (event,)

    def cut(self) -> None:
        """The run was interrupted; a launch under way ends here, unless the journal says how."""
        if self.is_open:
            self.is_open, self.is_cut, self.was_interrupted = False, True, True

    def go_on(self) -> None:
        """The run goes on in another process; an untimed launch may have to make its files anew."""
        self.is_of_before = self.number == 0 and self.is_completed

    def _start(self, event: LaunchStarted) -> None:
        is_first = self.mode is None and not self.ends
        if not (is_first or self.is_of_before or (self.number <= 0 and self.is_cut)):
            self._note(f"launch {self.id} was made twice, and no result may be redrawn")
        self.mode, self.ended, self.is_open, self.is_cut = event.mode, None, True, False
        self.is_under_way = self.has_reported = self.has_stepped = False
        self.stage_times = ()
        if not self.is_of_before:  # launches have read what it had made
            self.artifacts = NOTHING  # made anew; what it had checked stays
        self.is_of_before = False

    def _end(self, event: LaunchEnded) -> None:
        if self.ended is not None:
            self._note(f"launch {self.id} has two ends")
        elif self.is_cut and event.outcome != "interrupted":
            self._note(f"launch {self.id} was interrupted and has another end")
        if event.outcome == "interrupted":
            self.is_cut = self.was_interrupted = True
        self.ended, self.is_open = event, False
        self.ends += (event,)

    def _inside(self) -> None:
        if not self.is_open:
            self._note(f"launch {self.id} has records from before its start or after its end")

    def _note(self, fault: str) -> None:
        self.fault = self.fault or fault


@dataclass
class _Interruptions:
    """Counts interruptions of the run: resumptions, and launches cut short without one.

    Launches cut short together are one interruption, and so are they and the resumption that
    follows; a run that goes on without one was interrupted all the same.
    """

    num: int = 0
    is_pending: bool = False

    def take(self, event: object, *, was_open: bool) -> None:
        if isinstance(event, RunResumed) or (self.is_pending and isinstance(event, LaunchStarted)):
            self.num, self.is_pending = self.num + 1, False
        elif isinstance(event, LaunchEnded) and event.outcome == "interrupted" and was_open:
            self.is_pending = True

    @property
    def total(self) -> int:
        return self.num + self.is_pending


@dataclass
class RunEvidence:
    """What the journal reports of the run and not of one launch.

    `counted` has the error counters of each device in the order in which they were read, those of
    launches among them, with their values also where these were not written again. `spans` are
    neighbouring ones of a device, by the launch that ran between them, or "" where none did, and
    `span_ns` is how much time passed between these, by the journal's clock. `reported` are the
    counters of each device that ever had a value.
    `hints` say why something is None, and `absent` what a device cannot have. `logged` are faults
    that the kernel logged, `log_gap` is why its log was not read, or not all of it;
    `num_log_marks` counts the places up to which it was, and `is_log_read` says whether no launch
    has started since the last. `booted` has for each device the places in `counted` before which
    the node was booted in a pause, which sets counters to zero.
    """

    fault: str = ""
    injected: list[str] = field(default_factory=list)
    counted: dict[str, list[Counted]] = field(default_factory=dict)
    spans: dict[tuple[str, str], list[tuple[Counted, Counted]]] = field(default_factory=dict)
    span_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    reported: dict[str, set[str]] = field(default_factory=dict)
    hints: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, frozenset[str]] = field(default_factory=dict)
    logged: dict[tuple[int, str], KernelLogged] = field(default_factory=dict)
    log_gap: str = ""
    num_log_marks: int = 0
    is_log_read: bool = False
    last_boot: str = ""
    is_rebooted: bool = False
    booted: dict[str, set[int]] = field(default_factory=dict)
    interruptions: _Interruptions = field(default_factory=_Interruptions)
    _counted_ns: dict[str, int] = field(default_factory=dict)

    @property
    def num_interruptions(self) -> int:
        return self.interruptions.total

    def count(self, event: Counted, now_ns: int) -> None:
        """Keep one reading of counters, and when its line was written."""
        past = self.counted.setdefault(event.device, [])
        is_after_boot = self.is_rebooted and not event.launch and event.moment == "before"
        if is_after_boot:
            self.booted.setdefault(event.device, set()).add(len(past))
        if event.is_same:  # without a reading before it, it says nothing
            event = replace(event, counters=past[-1].counters if past else {})
        if past and not is_after_boot:
            launch = past[-1].launch if past[-1].moment == "before" else ""
            key = event.device, launch
            self.spans.setdefault(key, []).append((past[-1], event))
            passed = max(0, now_ns - self._counted_ns[event.device])
            self.span_ns[key] = self.span_ns.get(key, 0) + passed
        self._counted_ns[event.device] = now_ns
        past.append(event)
        known = self.reported.setdefault(event.device, set())
        known.update(name for name, value in event.counters.items() if value is not None)
        if not event.launch and event.moment == "before":
            self.hints.setdefault(event.device, {}).update(event.hints)
            absent = frozenset(event.absent)
            self.absent[event.device] = self.absent.get(event.device, absent) & absent

    def pause(self, event: SessionEnded | SessionBegan) -> None:
        """Note the end of a session, or that the next begins, perhaps after another boot."""
        if isinstance(event, SessionEnded):
            self.last_boot = event.boot
        else:
            self.is_rebooted = event.boot != self.last_boot

    def log(self, event: KernelLogRead | KernelLogged | NotObserved) -> None:
        """Keep what was read of the kernel's log; a record that was read twice counts once."""
        match event:
            case KernelLogRead():
                self.num_log_marks += 1
                self.is_log_read = True
            case KernelLogged():
                self.logged.setdefault((event.sequence, event.text), event)
            case NotObserved():
                self.log_gap = self.log_gap or event.hint


@dataclass
class CaseEvidence:
    """All that one case has shown.

    `version` counts its events, so that the answer of an interim analysis can be stored.

    `launches` are the untimed one and the timed ones, `repeats` those of the deterministic phase.
    `decision` is None until an interim analysis has decided the case, then what is wrong with that,
    or empty. `known` keeps what is said of the clocks, and of launches, which several rulings ask.
    `sessions` are those that the run is planned in, `margin` is the smallest that the case is
    judged with, like 0.03.
    """

    case: Case
    protocol: Protocol
    launches: tuple[LaunchEvidence, ...]
    run: RunEvidence
    repeats: tuple[LaunchEvidence, ...] = ()
    sessions: int = 1
    decision: str | None = None
    version: int = 0
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    margin: float = USUAL_MARGIN
    _choice: tuple[int, ClockChoice] | None = None

    @property
    def clock_choice(self) -> ClockChoice:
        """Which clock all of its launches are judged by; of settled figures."""
        if self._choice is None or self._choice[0] != self.version:
            blocks = [
                TimedBlock(figures=figures, overhead=launch.overhead)
                for launch in self.counted
                for figures in launch.figures
            ]
            self._choice = self.version, choose(blocks, self.margin)
        return self._choice[1]

    @property
    def clock(self) -> Clock:
        return self.clock_choice.clock

    @property
    def checks(self) -> list[Checked]:
        return [checked for launch in self.launches for checked in launch.checks]

    @property
    def ruled_checks(self) -> list[Checked]:
        """The checks without comparisons of bits in the default mode, which show only an order."""
        return [checked for checked in self.checks if not is_default_mode_bits(checked)]

    @property
    def all_launches(self) -> tuple[LaunchEvidence, ...]:
        return (*self.launches, *self.repeats)

    @property
    def interim_analyses(self) -> tuple[int, ...]:
        """Launch counts at which its times are judged."""
        return judged_analyses(self.protocol.interim_analyses, self.case.launches, self.sessions)

    @property
    def timed(self) -> list[LaunchEvidence]:
        return [launch for launch in self.launches if launch.number > 0]

    @property
    def counted(self) -> list[LaunchEvidence]:
        """Timed launches whose times count."""
        return [launch for launch in self.launches if launch.number > 0 and launch.is_counted]

    @property
    def num_made(self) -> int:
        """Timed launches that have ended, without those left out as decided or for want of time."""
        return sum(
            launch.ended is not None and not (launch.is_decided or launch.had_no_time)
            for launch in self.timed
        )

    @property
    def num_interruptions(self) -> int:
        return self.run.num_interruptions

    @property
    def was_touched(self) -> bool:
        """Whether an interruption of the run fell into one of its launches."""
        return any(launch.was_interrupted for launch in self.all_launches)

    @property
    def fault(self) -> str:
        """Why the records of this case cannot be what happened, or nothing."""
        fault = evidence_fault(self)
        if fault or not any(launch.is_decided for launch in self.launches):
            return fault
        if self.decision is None:
            return "launches were left out, but no interim analysis had decided the case"
        return self.decision


def values_by_session(evidence: CaseEvidence) -> tuple[tuple[float, ...], ...]:
    """ln(seconds) of a step of each launch that counts, by session in their order.

    By the clock that the case is judged by, over all sessions.
    """
    return tuple(
        tuple(
            value
            for launch in evidence.counted
            if launch.session == session and (value := launch.location(evidence.clock)) is not None
        )
        for session in range(1, evidence.sessions + 1)
    )


def is_default_mode_bits(checked: Checked) -> bool:
    """Whether a check compares two outputs bit by bit where kernels may add up in any order.

    No launch makes such a check any more; journals of earlier versions have them.
    """
    return checked.phase == "repeatability" and checked.check.bound == 0


def evidence_fault(evidence: CaseEvidence) -> str:
    """Why the records of this case cannot be what happened, or nothing."""
    numbers = [launch.number for launch in evidence.launches]
    if numbers != list(range(evidence.case.launches + 1)):
        return "the planned launches are not those that the case asks for"
    return evidence.run.fault or _cached(evidence, "launches", _launches_fault)


def _launches_fault(evidence: CaseEvidence) -> str:
    faults = (launch.fault or _length_fault(launch, evidence) for launch in evidence.all_launches)
    return next(filter(None, faults), "")


def _length_fault(launch: LaunchEvidence, evidence: CaseEvidence) -> str:
    """A completed timed launch that did not make the steps that it was to make."""
    if not launch.is_completed or launch.number <= 0:
        return ""
    wanted = evidence.case.steps
    for rank in range(evidence.case.ranks):
        blocks = [block for block in launch.blocks if block.rank == rank]
        lengths = [block.num_steps for block in blocks]
        least = wanted
        if least is None:
            step_ns = dict(launch.warm_step_ns).get(rank)
            least = launch_constants.block_steps(evidence.protocol, step_ns)
        number = evidence.protocol.blocks if wanted is None else 1
        has_all = [block.index for block in blocks] == list(range(number))
        for block in blocks:
            fault = _target_fault(block, evidence.case)
            if fault:
                return f"launch {launch.id} {fault}"
        if any(block.reached_at is not None for block in blocks):
            least = 1  # training came to its target
        if not has_all or min(lengths, default=0) < least:
            return (
                f"launch {launch.id} completed with {sum(lengths)} timed steps in {len(blocks)} "
                f"blocks, where {number} of {least} steps were planned"
            )
    return ""


def _target_fault(block: Block, case: Case) -> str:
    """A hit of a target that the case does not have, or where it was not asked for; or nothing."""
    if block.reached_at is None:
        return ""
    steps = block.num_steps
    has_target = case.evaluate_every > 0 and case.steps is not None
    if not has_target or block.reached_at != steps:
        return f"came to a target after {block.reached_at} of {steps} steps, which it cannot have"
    if steps % case.evaluate_every and steps != case.steps:
        return f"came to its target after {steps} steps, where it was not asked for"
    return ""


# ------------------------------------------------------------------ clocks


def clock_fault(evidence: CaseEvidence) -> str:
    """Times that no honest clock can give, or nothing.

    Not positive, longer than what holds them, or another length by a second clock.
    """
    return _cached(evidence, "fault", _clock_fault)


def device_clock_fault(evidence: CaseEvidence) -> str:
    """A device's clock that differs from its host's by more than any slip explains, or nothing.

    It is what `clock_fault` says where no other clock is at fault.
    """
    return _cached(evidence, "device", _device_clock_fault)


def clock_doubt(evidence: CaseEvidence) -> str:
    """Clocks that differ by more than they may and by less than a lie, or nothing."""
    return _cached(evidence, "doubt", _clock_doubt)


def lost_steps(evidence: CaseEvidence) -> str:
    """Steps that their device's clock makes far shorter than their host's does, or nothing.

    Their case is judged by the wall. That both are honest remains open: a device that is shared,
    and one whose clock lies, look alike.
    """
    for launch in evidence.launches:
        for block, figures in zip(launch.blocks, launch.figures, strict=True):
            if figures.is_lost:
                return f"launch {launch.id}, block {block.index} {LOST}"
    return ""


def _cached(evidence: CaseEvidence, name: str, find: Callable[[CaseEvidence], str]) -> str:
    version, sentence = evidence.known.get(name, (-1, ""))
    if version != evidence.version:
        sentence = find(evidence)
        evidence.known[name] = evidence.version, sentence
    return sentence


def _clock_fault(evidence: CaseEvidence) -> str:
    for launch in evidence.launches:
        started = launch.started
        if started is not None and (started.build_ns < 0 or started.first_step_ns <= 0):
            return f"launch {launch.id} has a first step or a build of no time"
        for block, figures in zip(launch.blocks, launch.figures, strict=True):
            if not figures.is_plausible or steps_fault(block):
                return f"launch {launch.id}, block {block.index} {_block_fault(block)}"
        fault = _whole_fault(launch)
        if fault:
            return f"launch {launch.id} {fault}"
    return _host_disagreement(evidence) or device_clock_fault(evidence)


def _device_clock_fault(evidence: CaseEvidence) -> str:
    return _device_disagreement(evidence, CLOCK_LIE, is_certain=True)


def _clock_doubt(evidence: CaseEvidence) -> str:
    differing = _device_disagreement(evidence, CLOCK_AGREEMENT, is_certain=False)
    if differing:
        return differing
    for launch in evidence.launches:
        for ratio in _raw_ratios([launch]):
            if abs(ratio - 1) > CLOCK_LIE:
                return f"launch {launch.id} was cut off between two readings of its clocks"
        for block, figures in zip(launch.blocks, launch.figures, strict=True):
            if figures.doubt:
                return f"launch {launch.id}, block {block.index} {figures.doubt}"
    return _open_bracket(evidence)


def _block_fault(block: Block) -> str:
    """What makes a block implausible."""
    clocks = [block.wall_ns] if block.event_ns is None else [block.wall_ns, block.event_ns]
    if any(min(times, default=1) <= 0 for times in clocks):
        return "has a step time that is not positive"
    if any(len(times) != len(block.wall_ns) for times in clocks):
        return "has not one device time for each step"
    folded = steps_fault(block)
    if folded:
        return folded
    if any(whole > block.block_wall_ns * CLOCK_SLACK for whole in whole_ns(block)):
        return "has steps that take longer than the block that holds them"
    if not has_plausible_loads(block):
        return "has not one time of loading for each step, inside of it"
    held, raw = block.block_wall_ns * 1e-9, block.block_raw_ns * 1e-9
    return f"took {held:.4g} s by one clock of the host and {raw:.4g} s by another"


def _whole_fault(launch: LaunchEvidence) -> str:
    """Blocks that together take longer than the parent, by its own clock, saw the launch take."""
    if launch.ended is None or not launch.is_completed or not launch.blocks:
        return ""
    rank = launch.blocks[0].rank
    inside = sum(block.block_wall_ns for block in launch.blocks if block.rank == rank)
    whole = launch.ended.wall_ns * CLOCK_SLACK + UNSCHEDULED_SECONDS * 1e9
    return "has blocks that take longer than the launch that holds them" if inside > whole else ""


def _host_disagreement(evidence: CaseEvidence) -> str:
    """The host's two clocks, whose spans differ in the median of the case by more than they may."""
    blocks = [
        figures.clock_ratio
        for launch in evidence.timed
        for figures in launch.figures
        if math.isfinite(figures.clock_ratio)
    ]
    ratios = [*blocks, *_raw_ratios(evidence.launches)]
    return _differing("the clock of the samples", ratios, CLOCK_AGREEMENT)


def _device_disagreement(evidence: CaseEvidence, allowed: float, *, is_certain: bool) -> str:
    """The device's clock, by how far its spans lie outside of the bracket that its host gives them.

    A record without bracket leaves open how long the device waited at its begin. So a span that is
    too short is no certain fault there.
    """
    ratios = [
        statistics.median(
            _outside(calibrated, span, is_certain=is_certain)
            for span in range(len(calibrated.event_ns))
        )
        for calibrated in _device_comparisons(evidence)
        if calibrated.event_ns
    ]
    return _differing("the device's clock", ratios, allowed)


def _outside(calibrated: Calibrated, span: int, *, is_certain: bool) -> float:
    """A span of the device over the nearer end of its bracket; 1 inside of it."""
    event = (calibrated.event_ns or ())[span]
    outer = calibrated.wall_ns[span]
    least = outer if calibrated.inner_ns is None else calibrated.inner_ns[span]
    if event > outer:
        return event / outer if outer > 0 else math.inf
    if event >= least or (calibrated.inner_ns is None and is_certain):
        return 1.0
    return event / least


def _open_bracket(evidence: CaseEvidence) -> str:
    """Brackets that leave more open than they may, in the median of the case; or nothing."""
    widths = [
        statistics.median(
            1 - inner / outer if outer > 0 else math.inf
            for inner, outer in zip(calibrated.inner_ns, calibrated.wall_ns, strict=True)
        )
        for calibrated in _device_comparisons(evidence)
        if calibrated.inner_ns
    ]
    width = statistics.median(widths) if widths else 0.0
    if width <= WIDEST_BRACKET:
        return ""
    return (
        f"the device's clock can be compared to within {100 * width:.2g} % only, "
        "for the device was late to begin what it was given"
    )


def _device_comparisons(evidence: CaseEvidence) -> Iterator[Calibrated]:
    """Comparisons of the device's clock, as many spans of each clock in each."""
    for launch in evidence.launches:
        for one in launch.calibrated:
            spans = [one.event_ns, *([] if one.inner_ns is None else [one.inner_ns])]
            if one.event_ns and all(s is not None and len(s) == len(one.wall_ns) for s in spans):
                yield one


def _differing(name: str, ratios: Sequence[float], allowed: float) -> str:
    ratio = statistics.median(ratios) if ratios else 1.0
    if abs(ratio - 1) <= allowed:
        return ""
    return f"{name} runs at {ratio:.4f} of the one that it is compared with"


def _raw_ratios(launches: Sequence[LaunchEvidence]) -> Iterator[float]:
    """Of each launch the median ratio of the samples' clock over the raw one.

    It is infinite where the raw one stood still.
    """
    for launch in launches:
        for one in launch.calibrated:
            if one.wall_ns and len(one.wall_ns) == len(one.raw_ns):
                pairs = zip(one.wall_ns, one.raw_ns, strict=True)
                yield statistics.median(a / b if b > 0 else math.inf for a, b in pairs)
