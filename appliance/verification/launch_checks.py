"""Whether the records of each launch can be one launch: a pure function of plan and journal.

conduct.py asks whether the right launches were made; here is asked whether each of them was made
as a launch is (launch.py): every rank says each thing once, steps are numbered without a gap,
warm-up, blocks and comparisons of clocks are as long as the protocol says, what it timed fits into
the time that the journal's own clock gives it, and first outputs of the same bits are checked in
the same way. Whoever leaves a slow block out, adds one of a rank that does not exist, or
drops the one check that failed, contradicts himself here. Who makes all of it up without a
contradiction is not found by reading, only by making the launch again (`bench rerun`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from appliance.errors import EvidenceError
from appliance.planning import launch_constants
from appliance.planning.launch_constants import (
    EMPTY_BLOCK_STEPS,
    NUM_CLOCK_SPANS,
    NUM_EMPTY_BLOCKS,
    REPEATED_INPUT_BOUND,
    REPEATS_AFTER_MISMATCH,
    SEGMENTED,
)
from appliance.records.journal import (
    END,
    AheadEnded,
    AheadIdle,
    AheadThrough,
    Artifact,
    Block,
    Calibrated,
    Checked,
    Digested,
    Environment,
    Float32Products,
    InputsDrawn,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    LibrariesMapped,
    Line,
    MismatchExamined,
    PhaseBegan,
    Repeated,
    RunResumed,
    SessionBegan,
    StageTimes,
    Started,
    TimedStage,
    Warmed,
    Witnessed,
)
from appliance.records.plan import Case, Launch, Plan
from appliance.statistics.estimates import CLOCK_SLACK

SHORT = 0.999
"""A length may fall short of what was asked for by so much: the rounding of its parts."""
NAMES: Mapping[type, str] = {
    Environment: "environment",
    Started: "first step",
    Calibrated: "comparison of clocks",
    Warmed: "warm-up",
    Libraries: "libraries",
    LibrariesMapped: "libraries",
    InputsDrawn: "drawn inputs",
    Repeated: "bits in the deterministic phase",
    MismatchExamined: "repeats after a mismatch",
    StageTimes: "times of its stages",
}
"""What each rank says at most once."""
LOST, LOST_PER_STEP = 0.25, 20
"""Of a block's time what its steps need not account for: so much of it, and for each step so often
what one takes that does nothing. Of blocks of an H100 5.3 % at most were outside of their steps, of
steps of 80 to 140 us, and on busy processors 0.5 %."""
SHORTEST_NS, FEWEST_LOST = 200_000, 3
"""Steps so long, and blocks of a case so many, from which on that is said."""
STAGED, STAGE_SLACK_NS, END_SLACK_NS = 0.5, 5_000_000_000, 30_000_000_000
"""Part of a stage that what is timed in it must be, but for so much; and stages of a launch."""
OUTPUT = ("first", 0, "output")
"""Phase, step and name of the one digest that a launch reports."""

E = TypeVar("E")


@dataclass(kw_only=True)
class _RankRecords:
    """What one rank of a launch has said since the launch was last started.

    `boot` counts the resumptions and sessions before its start: the journal's clock begins anew
    with each. `ahead` is the order of a process that was started before the launch began, and
    `ordered_ns` when that was: the last one, of a process that had stood by, which was ordered and
    set up at the moments `stood_by_ns`.
    """

    plan: Plan
    case: Case
    launch: Launch
    rank: int
    begin_ns: int
    boot: int
    lines: list[Line] = field(default_factory=list)
    ahead: LaunchAhead | None = None
    ordered_ns: int | None = None
    stood_by_ns: tuple[int, int] | None = None
    ended: LaunchEnded | None = None
    wall_ns: int | None = None

    @property
    def is_completed(self) -> bool:
        return self.ended is not None and self.ended.outcome == "completed"

    @property
    def is_by_blocks(self) -> bool:
        """Whether its steps are timed in the blocks of the protocol."""
        return self.launch.is_timed and self.case.steps is None

    def of(self, kind: type[E]) -> list[E]:
        return [line.event for line in self.lines if isinstance(line.event, kind)]

    @property
    def checks(self) -> list[Checked]:
        return self.of(Checked)


def check_launches(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError at the first launch whose records contradict each other or the plan."""
    ranks = list(_gathered(plan, lines))
    for one in ranks:
        for rule in RULES:
            fault = rule(one)
            if fault:
                raise EvidenceError(f"journal.jsonl: launch {one.launch.id} {fault}")
    _check_lost(ranks)
    _check_alike(ranks)
    _check_mismatches(ranks)


@dataclass(kw_only=True)
class _Orders:
    """What processes were told before their launches began, and when those that stood by were."""

    last: dict[str, tuple[LaunchAhead, int]] = field(default_factory=dict)
    set_up: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """Note a line about a process that was started ahead."""
        event = line.event
        if isinstance(event, LaunchAhead):
            self.last[event.launch] = event, line.monotonic_ns
        elif isinstance(event, AheadIdle) and event.launch in self.last:
            self.set_up[event.launch] = self.last[event.launch][1], line.monotonic_ns
        elif isinstance(event, AheadEnded):
            self.set_up.pop(event.launch, None)

    def of(
        self, event: LaunchStarted
    ) -> tuple[LaunchAhead | None, int | None, tuple[int, int] | None]:
        """Last order of the process that makes a launch now, its moment, and those of its set-up.

        The first and the last of these are None where it was not started ahead, or never stood by.
        """
        ahead, ordered_ns = self.last.pop(event.launch, (None, None))
        stood_by_ns = self.set_up.pop(event.launch, None)
        return (ahead, ordered_ns, stood_by_ns) if event.is_ahead else (None, None, None)


def _gathered(plan: Plan, lines: Sequence[Line]) -> Iterator[_RankRecords]:
    """What each rank of each launch said; of an untimed launch that was made again, the last."""
    cases = {case.id: case for case in plan.cases}
    launches = {launch.id: launch for launch in plan.launches}
    by_launch: dict[str, dict[int, _RankRecords]] = {}
    orders = _Orders()
    boot = 0
    for number, line in enumerate(lines, 1):
        event = line.event
        boot += isinstance(event, RunResumed | SessionBegan)
        orders.take(line)
        if isinstance(event, LaunchStarted):
            launch = launches[event.launch]
            ahead, ordered_ns, stood_by_ns = orders.of(event)
            by_launch[launch.id] = {
                rank: _RankRecords(
                    plan=plan,
                    case=cases[launch.case],
                    launch=launch,
                    rank=rank,
                    begin_ns=line.monotonic_ns,
                    boot=boot,
                    ahead=ahead,
                    ordered_ns=ordered_ns,
                    stood_by_ns=stood_by_ns,
                )
                for rank in range(cases[launch.case].ranks)
            }
        elif isinstance(event, LaunchEnded):
            for one in by_launch.get(event.launch, {}).values():
                one.ended = event
                one.wall_ns = line.monotonic_ns - one.begin_ns if one.boot == boot else None
        elif (rank := getattr(event, "rank", None)) is not None:
            name = str(getattr(event, "launch", ""))
            if rank not in by_launch.get(name, {}):
                raise EvidenceError(
                    f"journal.jsonl line {number}: launch {name} has no rank {rank}"
                )
            by_launch[name][rank].lines.append(line)
    for ranks in by_launch.values():
        yield from ranks.values()


# ------------------------------------------------------------------ what a launch says


def _counts(records: _RankRecords) -> str:
    """Something that is said twice, not at all, or of a launch that has none of it."""
    counts = Counter(type(line.event) for line in records.lines)
    twice = [name for kind, name in NAMES.items() if counts[kind] > 1]
    if twice:
        return f"reports its {twice[0]} twice"
    if counts[Block] and not records.launch.is_timed:
        return "is not timed and has timed steps"
    if not records.is_completed:
        return ""
    missing = [NAMES[kind] for kind in _expected(records) if not counts[kind]]
    return f"completed and does not report its {missing[0]}" if missing else ""


def _expected(records: _RankRecords) -> list[type]:
    """What each rank of a completed launch reports."""
    if records.launch.is_repeat:
        return [Repeated]
    untimed = [] if records.launch.is_timed else [_libraries(records)]
    return [Started, Calibrated, *([Warmed] if records.is_by_blocks else []), *untimed]


def _libraries(records: _RankRecords) -> type:
    """How it lists what it runs: with digests, as up to version 0.12, or to be hashed beside it."""
    return Libraries if records.of(Libraries) else LibrariesMapped


def _phase(records: _RankRecords) -> str:
    """Records of the deterministic phase in another launch, or of another one in the phase."""
    own = (Environment, Float32Products, Artifact, Repeated, MismatchExamined, StageTimes)
    for line in records.lines:
        is_of_phase = isinstance(line.event, Repeated | MismatchExamined)
        if records.launch.is_repeat and not isinstance(line.event, own):
            return "is of the deterministic phase, which neither times nor checks, and does"
        if is_of_phase and not records.launch.is_repeat:
            return "reports repeats, and is not of the deterministic phase"
    return ""


def _numbers(records: _RankRecords) -> str:
    """Blocks or steps that were left out, or are there twice."""
    number = sum(len(one.wall_ns) for one in records.of(Warmed)) + 1 if records.is_by_blocks else 0
    for index, block in enumerate(records.of(Block)):
        if block.index != index:
            return f"has block {block.index} where block {index} comes"
        if block.first_step != number:
            return f"begins block {index} with step {block.first_step}, where step {number} comes"
        number += block.num_steps
    return ""


def _lengths(records: _RankRecords) -> str:
    """A warm-up or a block that is shorter than the protocol says; several ranks go by steps."""
    protocol = records.plan.protocol
    if not records.is_by_blocks or records.plan.repeat is not None:
        return ""
    is_alone = records.case.ranks == 1
    least = protocol.block_steps
    for warmed in records.of(Warmed):
        passed = sum(warmed.wall_ns)
        is_short = is_alone and passed < SHORT * protocol.warmup_seconds * 1e9
        num_steps = len(warmed.wall_ns)
        is_cut = num_steps < protocol.warmup_steps and not (
            is_alone and launch_constants.is_warm(protocol, num_steps, passed)
        )
        if is_short or is_cut:
            return "warmed up for less than the protocol says"
        least = launch_constants.block_steps(protocol, launch_constants.median_ns(warmed.wall_ns))
    for block in records.of(Block):
        is_short = is_alone and block.block_wall_ns < SHORT * protocol.block_seconds * 1e9
        if is_short or block.num_steps < least:
            return f"has a block {block.index} that is shorter than the protocol says"
    return ""


def _clocks(records: _RankRecords) -> str:
    """Clocks that were not compared as a launch compares them.

    What they reported is for the judge: a clock that stands is a fault of the machine, no forgery.
    """
    has_events = any(block.event_ns is not None for block in records.of(Block))
    least = SHORT * records.plan.protocol.calibration_seconds * 1e9
    for calibrated in records.of(Calibrated):
        spans = [
            calibrated.wall_ns,
            calibrated.raw_ns,
            *([calibrated.event_ns] if calibrated.event_ns else []),
            *([calibrated.inner_ns] if calibrated.inner_ns else []),
        ]
        if any(len(times) != NUM_CLOCK_SPANS for times in spans):
            return f"did not compare its clocks over {NUM_CLOCK_SPANS} spans of time"
        if sum(calibrated.wall_ns) < least:
            return "compared its clocks for less time than the protocol says"
        if has_events and calibrated.event_ns is None:
            return "times its steps by a clock of the device that it did not compare with another"
        has_both = (calibrated.event_ns is None) == (calibrated.inner_ns is None)
        if not has_both and not records.plan.converted_from:
            return "compared the device's clock without the host's time inside of its spans"
        pairs = zip(calibrated.inner_ns or (), calibrated.wall_ns, strict=False)
        if any(not 0 <= inner <= outer for inner, outer in pairs):
            return "compared its clocks over spans that are longer inside than outside"
    return ""


def _witnesses(records: _RankRecords) -> str:
    """A device that was watched by a clock of its own that it has not."""
    watched, calibrated = records.of(Witnessed), records.of(Calibrated)
    if watched and calibrated and all(one.event_ns is None for one in calibrated):
        return "watched its device by a clock of the device that it did not compare with another"
    return ""


def _empty_steps(records: _RankRecords) -> str:
    """Steps that do nothing which were not timed as a launch times them."""
    for calibrated in records.of(Calibrated):
        times = calibrated.empty_ns
        if times is None and records.plan.converted_from:
            continue
        if times is None or len(times) != NUM_EMPTY_BLOCKS or min(times) < 0:
            return f"did not time {NUM_EMPTY_BLOCKS} blocks of steps that do nothing"
    return ""


def _spans(records: _RankRecords) -> str:
    """Parts that together take longer than the journal's clock saw the launch take by then."""
    ended = records.ended
    if (
        ended is not None
        and records.wall_ns is not None
        and ended.wall_ns > records.wall_ns * CLOCK_SLACK
    ):
        return "took longer by its own record than the journal's clock says"
    inside = 0
    for line in records.lines:
        inside += _inside(records, line.event)
        if inside > (line.monotonic_ns - _since_ns(records, line.event)) * CLOCK_SLACK:
            return "has steps that take longer than the journal's clock says"
        if isinstance(line.event, Started) and records.ordered_ns is not None:
            inside -= line.event.build_ns  # which may be older than the launch
            inside -= line.event.first_step_ns if _steps_ahead(records) else 0
    return ""


def _since_ns(records: _RankRecords, event: object) -> int:
    """From when on the journal's clock saw what a record says: some may have been made ahead."""
    is_early = isinstance(event, Started) and records.ordered_ns is not None
    return (records.ordered_ns or 0) if is_early else records.begin_ns


def _beside(records: _RankRecords) -> str:
    """A first step that says otherwise than its order whether another launch ended beside it."""
    if all(one.is_beside == _steps_ahead(records) for one in records.of(Started)):
        return ""
    return "says otherwise than its order whether its first step was made beside another's end"


def _stages(records: _RankRecords) -> str:
    """Times of stages that no launch of this length can have, or records after them."""
    for place, line in enumerate(records.lines):
        if not isinstance(line.event, StageTimes):
            continue
        times = line.event.wall_ns
        if not times or min(times.values()) < 0:
            return "reports stages of no time, or of less"
        if fault := _stages_ahead(records, line.event.ahead_ns):
            return fault
        if place + 1 < len(records.lines):
            return "reports something after the times of its stages, which come last"
        whole = line.monotonic_ns - records.begin_ns
        if records.ended is not None:
            whole = min(whole, records.ended.wall_ns)
        if sum(times.values()) > whole * CLOCK_SLACK:
            return "has stages that together take longer than it did"
    return ""


def _accounted(records: _RankRecords) -> str:
    """Blocks and steps that were made shorter than the stage that they were timed in."""
    for stages in records.of(StageTimes):
        times = stages.wall_ns
        for stage, what, timed in _timed_stages(records):
            if timed < STAGED * times.get(stage, 0) - STAGE_SLACK_NS:
                return f"spent {times[stage] / 1e9:.3g} s on its {what}, and timed it as less"
        whole = records.ended.wall_ns if records.ended is not None else 0
        if sum(times.values()) < STAGED * whole - END_SLACK_NS:
            return "has stages that together take much less than it did"
    return ""


def _timed_stages(records: _RankRecords) -> Iterator[tuple[TimedStage, str, int]]:
    """Stages of which nearly all is timed, in words, with what was timed of them.

    A build and a first step may be made ahead, and of a block's last step the state is copied for
    its check.
    """
    for started in records.of(Started):
        if records.ahead is None:
            yield "build", "build", started.build_ns
        if not _steps_ahead(records):
            yield "first_step", "first step", started.first_step_ns
    if not records.is_by_blocks:
        return
    yield "warm_up", "warm-up", sum(sum(one.wall_ns) for one in records.of(Warmed))
    is_checked = any(one.phase in ("last", "sampled") for one in records.checks)
    if not is_checked and records.case.ranks == 1 and not records.case.evaluate_every:
        yield "timed", "blocks", sum(block.block_wall_ns for block in records.of(Block))


BEFORE_BUILD: tuple[TimedStage, ...] = ("start", "import", "device")
"""Stages of a process that waits with its device set up."""
AFTER_DEVICE: Mapping[AheadThrough, tuple[TimedStage, ...]] = {
    "device": (),
    "build": ("build",),
    "first_step": ("build", "first_step", "other"),
}
"""Stages after these of one that goes so far; a repeat digests what its first step gave, too."""


def _steps_ahead(records: _RankRecords) -> bool:
    """Whether it was ordered to make its first step before it began."""
    return records.ahead is not None and records.ahead.through == "first_step"


def _ended_well(records: _RankRecords) -> str:
    """A completed launch that says why it failed, or what no process can have held."""
    ended = records.ended
    if ended is None:
        return ""
    peak = ended.peak_memory_bytes
    if peak is not None and peak < 0:  # one that ends at once may be seen with none
        return f"held {peak} bytes of memory, as no process does"
    if ended.outcome != "completed":
        return ""
    if ended.reason or ended.detail or ended.exceptions or ended.exit_code:
        return "completed, and says why it did not"
    return ""


def _stages_ahead(records: _RankRecords, times: Mapping[TimedStage, int]) -> str:
    """What a process did before its launch began: no more than it was ordered, nor for longer."""
    if records.ahead is None or records.ordered_ns is None:
        return "reports what it did before it began, and was not started ahead" if times else ""
    allowed = {*BEFORE_BUILD, *AFTER_DEVICE[records.ahead.through]}
    if records.launch.is_repeat and "first_step" in allowed:
        allowed.add("digest")
    if not allowed.issuperset(times):
        (stage, *_) = sorted(set(times) - allowed)
        return f"reports {stage} from before it began, which no process does that waits"
    if min(times.values(), default=0) < 0:
        return "reports stages of no time, or of less"
    ordered_ns, waited = records.ordered_ns, sum(times.values())
    if records.stood_by_ns is not None:
        begin_ns, idle_ns = records.stood_by_ns
        set_up = sum(times.get(stage, 0) for stage in BEFORE_BUILD)
        waited -= set_up
        if set_up > (idle_ns - begin_ns) * CLOCK_SLACK:
            return "took longer to set its device up than it had before others were timed"
    if waited > (records.begin_ns - ordered_ns) * CLOCK_SLACK:
        return "has stages before its begin that together take longer than it waited"
    return ""


def _load_phases(records: _RankRecords) -> str:
    """Phases of load that do not tile a block in order, or go back in what they count."""
    phases, blocks = records.of(PhaseBegan), records.of(Block)
    is_segment = records.case.workload in SEGMENTED and records.is_by_blocks
    if is_segment and records.is_completed and not phases and not records.plan.converted_from:
        return "completed and does not say how its steps loaded the device"
    for before, after in pairwise(phases):
        if before.phase == END and (after.index, after.step) != (before.index + 1, 0):
            return f"has a phase of load after block {before.index} had ended"
        is_later = before.phase == END or (after.step, after.passed_ns) > (
            before.step,
            before.passed_ns,
        )
        counts = zip(
            (before.units, before.processor_ns), (after.units, after.processor_ns), strict=True
        )
        if not is_later or any(one > other for one, other in counts):
            return f"has a phase of load ({after.phase}) that begins before the one before it"
    if phases and phases[0].step:
        return "has steps before its first phase of load"
    for end in (one for one in phases if one.phase == END):
        block = next((one for one in blocks if one.index == end.index), None)
        if block is not None and (
            end.step != block.num_steps or end.passed_ns > CLOCK_SLACK * block.block_wall_ns
        ):
            return f"has phases of load that do not end with block {end.index}"
    return ""


def _inside(records: _RankRecords, event: object) -> int:
    """Nanoseconds that this record accounts for; a first step that stands in a block, not twice."""
    match event:
        case Started():
            is_in_block = records.launch.is_timed and records.case.steps is not None
            return event.build_ns + (0 if is_in_block else event.first_step_ns)
        case Calibrated():
            return sum(event.wall_ns) + EMPTY_BLOCK_STEPS * sum(event.empty_ns or ())
        case Warmed():
            return sum(event.wall_ns)
        case Block():
            return event.block_wall_ns
        case _:
            return 0


# ------------------------------------------------------------------ what a launch checks


def _checked_steps(records: _RankRecords) -> str:
    """A first or last output that is of another step."""
    last = _last_step(records)
    for checked in records.checks:
        wanted = {"first": 0, "last": last}.get(checked.phase)
        if wanted is not None and checked.step != wanted:
            return (
                f"checked step {checked.step} as its {checked.phase} one, and that is step {wanted}"
            )
    return ""


def _last_step(records: _RankRecords) -> int | None:
    """Number of the last step as it must have been; None where that is unknown."""
    steps, blocks = records.case.steps, records.of(Block)
    if records.launch.is_timed:
        return blocks[-1].first_step + blocks[-1].num_steps - 1 if blocks else -1
    return None if steps is None or records.case.evaluate_every else steps - 1


def _first_checks(records: _RankRecords) -> str:
    """A first output that is judged between a timed launch's clocks and its last block.

    It is so before anything is timed, or when nothing is any more.
    """
    if not records.launch.is_timed:
        return ""
    is_timing = False
    for place, line in enumerate(records.lines):
        event = line.event
        is_of_first = isinstance(event, Checked | Digested) and event.phase == "first"
        if is_of_first and is_timing and _times_later(records, place):
            return "judges its first output beside what it times"
        is_timing |= isinstance(event, Calibrated | Warmed | Block)
    return ""


def _times_later(records: _RankRecords, place: int) -> bool:
    return any(isinstance(line.event, Warmed | Block) for line in records.lines[place:])


def _own_bounds(records: _RankRecords) -> str:
    """A bound that the appliance itself sets, and that is another here."""
    for checked in records.checks:
        check = checked.check
        if checked.phase == "repeatability" and records.case.is_repeatable and check.bound != 0:
            return "holds outputs to a spread that are reproducible bit by bit"
        if checked.phase == "repeated" and check.bound != REPEATED_INPUT_BOUND:
            saved = f"lets a repeated input save {check.bound:g} of a step's time"
            return f"{saved}, not {REPEATED_INPUT_BOUND:g}"
        if checked.phase in ("repeatability", "repeated") and records.launch.is_timed:
            return f"is timed and has a check of the phase {checked.phase}"
    return ""


def _digests(records: _RankRecords) -> str:
    """A digest that no other launch's would be compared with."""
    digests = [(one.phase, one.step, one.what) for one in records.of(Digested)]
    if set(digests) <= {OUTPUT} and len(digests) <= records.case.is_repeatable:
        return ""
    return "reports other digests than that of its first output"


def _target(records: _RankRecords) -> str:
    """Training that did not come to its target, where no check says so."""
    if not (records.is_completed and records.launch.is_timed and records.case.evaluate_every):
        return ""
    is_missed = all(block.reached_at is None for block in records.of(Block))
    last = [checked.check for checked in records.checks if checked.phase == "last"]
    if is_missed and all(check.is_within for check in last):
        return "did not come to its target, and no check of it says so"
    return ""


def _check_lost(ranks: Sequence[_RankRecords]) -> None:
    """EvidenceError for a case whose steps are no more than a part of their blocks.

    In half of its blocks, or more: a busy host may stop a process between two steps.
    """
    lost: dict[str, list[bool]] = {}
    for one in ranks:
        empty = [empty for made in one.of(Calibrated) for empty in made.empty_ns or ()]
        for block in one.of(Block) if empty else ():
            if block.folded or block.block_wall_ns < SHORTEST_NS * block.num_steps:
                continue
            outside = block.block_wall_ns - sum(block.wall_ns)
            most = LOST * block.block_wall_ns + LOST_PER_STEP * max(empty) * block.num_steps
            lost.setdefault(one.case.id, []).append(outside > most)
    for case, blocks in lost.items():
        if len(blocks) >= FEWEST_LOST and 2 * sum(blocks) > len(blocks):
            raise EvidenceError(
                f"journal.jsonl: {sum(blocks)} of {len(blocks)} blocks of {case} have steps that "
                "are no more than a part of them"
            )


def _check_alike(ranks: Sequence[_RankRecords]) -> None:
    """EvidenceError where launches with the same bits as first output did not check it alike.

    Which checks an output gets may depend on its values, so others are not compared: where the
    bits differ, determinism is judged. A launch with a check that is not within is left aside, as
    what a wrong output is not even asked.
    """
    known: dict[tuple[str, int, str], tuple[str, Counter[str]]] = {}
    for one in ranks:
        is_whole = one.is_completed and all(checked.check.is_within for checked in one.checks)
        for digested in one.of(Digested) if is_whole else ():
            names = Counter(
                checked.check.name for checked in one.checks if checked.phase == "first"
            )
            key = (one.case.id, one.rank, digested.digest)
            first, others = known.setdefault(key, (one.launch.id, names))
            if names != others:
                name = next(iter((names - others) + (others - names)))
                raise EvidenceError(
                    f"journal.jsonl: launches {first} and {one.launch.id} do not both check "
                    f'"{name}" of the first output, whose bits are the same'
                )


def _check_mismatches(ranks: Sequence[_RankRecords]) -> None:
    """EvidenceError where a repeat gave other bits than the case's first and none followed it.

    Of several ranks all repeat where the bits of one differ.
    """
    first: dict[tuple[str, int], tuple[str, Mapping[str, str]]] = {}
    owing: dict[str, str] = {}
    for one in ranks:
        for repeated in one.of(Repeated):
            name, digests = first.setdefault(
                (one.case.id, one.rank), (one.launch.id, repeated.digests)
            )
            if digests != repeated.digests:
                owing.setdefault(one.launch.id, name)
    for one in ranks:
        examined = one.of(MismatchExamined)
        if one.launch.id in owing and one.is_completed and not examined:
            raise EvidenceError(
                f"journal.jsonl: launch {one.launch.id} gave other bits than "
                f"{owing[one.launch.id]} and did not repeat them"
            )
        for record in examined:
            wanted = record.num_wanted
            if wanted != REPEATS_AFTER_MISMATCH or len(record.answers) > wanted:
                raise EvidenceError(
                    f"journal.jsonl: launch {one.launch.id} did not follow its mismatch by "
                    f"{REPEATS_AFTER_MISMATCH} repeats"
                )


RULES: tuple[Callable[[_RankRecords], str], ...] = (
    _counts,
    _phase,
    _numbers,
    _lengths,
    _clocks,
    _witnesses,
    _empty_steps,
    _spans,
    _beside,
    _stages,
    _accounted,
    _ended_well,
    _checked_steps,
    _first_checks,
    _load_phases,
    _own_bounds,
    _digests,
    _target,
)
