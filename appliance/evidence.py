"""What the journal shows of each launch and each case: its lines sorted, and their faults named.

Nothing is ruled here, but nothing is forgiven either. A launch is what stands between its
start and its end, once: only the untimed one may be made again, and only after an
interruption. What does not fit (a second start, an end without a start, records from outside,
a time that no clock can give) is kept as a fault, for which the verdict accepts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from appliance.records import (
    Artifact,
    Block,
    Case,
    Checked,
    LaunchEnded,
    LaunchMode,
    LaunchStarted,
    Line,
    Looked,
    Plan,
    Protocol,
    RunResumed,
    RunStarted,
    Started,
)
from appliance.statistics import launch_statistic, planned_looks

CLOCK_SLACK = 1.005  # steps may exceed the block that holds them by the error of the clocks only


@dataclass
class LaunchEvidence:
    """What the journal tells of one launch; of an untimed one made again, all of it."""

    id: str
    number: int
    mode: LaunchMode | None = None
    ended: LaunchEnded | None = None
    ends: list[LaunchEnded] = field(default_factory=list)
    started: Started | None = None
    blocks: list[Block] = field(default_factory=list)
    checks: list[Checked] = field(default_factory=list)
    artifacts: dict[str, set[str]] = field(default_factory=dict)
    is_open: bool = False
    is_cut: bool = False
    was_interrupted: bool = False
    fault: str = ""

    @property
    def is_completed(self) -> bool:
        return self.ended is not None and self.ended.outcome == "completed"

    @property
    def is_decided(self) -> bool:
        """Not made, because the launches before it had decided the case."""
        ended = self.ended
        return ended is not None and (ended.outcome, ended.reason) == ("not_run", "decided")

    @property
    def statistic(self) -> float | None:
        """ln(seconds) of a step; of an interrupted launch, from the blocks that it had finished."""
        is_cut = self.ended is not None and self.ended.outcome == "interrupted"
        return launch_statistic(self.blocks) if self.is_completed or is_cut else None

    def has_phase(self, phase: str) -> bool:
        return any(checked.phase == phase for checked in self.checks)

    def take(self, event: object) -> None:
        """Add one event that names this launch."""
        match event:
            case LaunchStarted():
                self._start(event)
            case LaunchEnded():
                self._end(event)
            case Started():
                self._inside()
                self.started = event
            case Block():
                self._inside()
                self.blocks.append(event)
            case Checked():
                self._inside()
                self.checks.append(event)
            case Artifact():
                self._inside()
                if event.is_made and self.number > 0:
                    return  # a timed launch that makes a file itself depends on no other
                self.artifacts.setdefault(event.name, set()).add(event.sha256)
            case _:  # readings and environments decide nothing
                pass

    def cut(self) -> None:
        """The run was interrupted; a launch under way ends here, unless the journal says how."""
        if self.is_open:
            self.is_open, self.is_cut, self.was_interrupted = False, True, True

    def _start(self, event: LaunchStarted) -> None:
        is_first = self.mode is None and not self.ends
        if not is_first and not (self.number == 0 and self.is_cut):
            self._note(f"launch {self.id} was made twice, and no result may be redrawn")
        self.mode, self.ended, self.is_open, self.is_cut = event.mode, None, True, False
        self.artifacts.clear()  # made anew; what it had checked stays

    def _end(self, event: LaunchEnded) -> None:
        if self.ended is not None:
            self._note(f"launch {self.id} has two ends")
        elif self.is_cut and event.outcome != "interrupted":
            self._note(f"launch {self.id} was interrupted and has another end")
        if event.outcome == "interrupted":
            self.is_cut = self.was_interrupted = True
        self.ended, self.is_open = event, False
        self.ends.append(event)

    def _inside(self) -> None:
        if not self.is_open:
            self._note(f"launch {self.id} has records from before its start or after its end")

    def _note(self, fault: str) -> None:
        self.fault = self.fault or fault


@dataclass(frozen=True, kw_only=True)
class CaseEvidence:
    """All that one case has shown, how often the run was interrupted, and where it was decided.

    `decided_at` is the index of the first line that says that this case is decided.
    """

    case: Case
    protocol: Protocol
    launches: tuple[LaunchEvidence, ...]
    num_interruptions: int
    decided_at: int | None
    fault: str

    @property
    def checks(self) -> list[Checked]:
        return [checked for launch in self.launches for checked in launch.checks]

    @property
    def looks(self) -> tuple[int, ...]:
        return planned_looks(self.protocol.looks, self.case.launches)

    @property
    def timed(self) -> list[LaunchEvidence]:
        return [launch for launch in self.launches if launch.number > 0]

    @property
    def was_touched(self) -> bool:
        """Whether an interruption of the run fell into one of its launches."""
        return any(launch.was_interrupted for launch in self.launches)


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


def gather(plan: Plan, lines: Sequence[Line]) -> dict[str, CaseEvidence]:
    """Evidence of every planned case, by its id."""
    launches = {launch.id: LaunchEvidence(launch.id, launch.number) for launch in plan.launches}
    decided: dict[str, int] = {}
    interruptions, fault = _Interruptions(), ""
    for index, line in enumerate(lines):
        event = line.event
        match event:
            case RunResumed():
                for launch in launches.values():
                    launch.cut()
            case RunStarted() if event.run_id != plan.run_id:
                fault = fault or f"the journal is of the run {event.run_id}"
            case Looked() if event.is_decided:
                decided.setdefault(event.case, index)
        name: str = getattr(event, "launch", "")
        interruptions.take(event, was_open=name in launches and launches[name].is_open)
        if name in launches:
            launches[name].take(event)
        elif name:
            fault = fault or f"the journal tells of {name}, which was not planned"
    return {
        case.id: CaseEvidence(
            case=case,
            protocol=plan.protocol,
            launches=tuple(launches[item.id] for item in plan.launches if item.case == case.id),
            num_interruptions=interruptions.total,
            decided_at=decided.get(case.id),
            fault=fault,
        )
        for case in plan.cases
    }


def evidence_fault(evidence: CaseEvidence) -> str:
    """Why the records of this case cannot be what happened, or nothing."""
    numbers = [launch.number for launch in evidence.launches]
    if numbers != list(range(evidence.case.launches + 1)):
        return "the planned launches are not those that the case asks for"
    faults = (launch.fault or _length_fault(launch, evidence) for launch in evidence.launches)
    return evidence.fault or next(filter(None, faults), "")


def _length_fault(launch: LaunchEvidence, evidence: CaseEvidence) -> str:
    """A completed timed launch that did not make the steps that it was to make."""
    if not launch.is_completed or launch.number == 0:
        return ""
    wanted = evidence.case.steps
    for rank in {block.rank for block in launch.blocks} or {0}:
        blocks = [block for block in launch.blocks if block.rank == rank]
        lengths = [len(block.wall_ns) for block in blocks]
        least = evidence.protocol.block_steps if wanted is None else wanted
        number = evidence.protocol.blocks if wanted is None else 1
        if [block.index for block in blocks] != list(range(number)) or min(lengths) < least:
            return (
                f"launch {launch.id} completed with {sum(lengths)} timed steps in {len(blocks)} "
                f"blocks, where {number} of {least} steps were planned"
            )
    return ""


def clock_fault(evidence: CaseEvidence) -> str:
    """Times that no clock can give: not positive, or longer than the block that holds them."""
    for launch in evidence.launches:
        started = launch.started
        if started is not None and (started.build_ns < 0 or started.first_step_ns <= 0):
            return f"launch {launch.id} has a first step or a build of no time"
        for block in launch.blocks:
            fault = _block_fault(block)
            if fault:
                return f"launch {launch.id}, block {block.index} {fault}"
    return ""


def _block_fault(block: Block) -> str:
    clocks = [block.wall_ns] if block.event_ns is None else [block.wall_ns, block.event_ns]
    if any(min(times, default=1) <= 0 for times in clocks):
        return "has a step time that is not positive"
    if any(len(times) != len(block.wall_ns) for times in clocks):
        return "has not one device time for each step"
    if any(sum(times) > block.block_wall_ns * CLOCK_SLACK for times in clocks):
        return "has steps that take longer than the block that holds them"
    return ""
