"""What the journal says has been done, so that the runner knows what is left.

Pure: events go in, in their order, those of an earlier run of the program included; the answers
follow. No timed launch is ever made twice, whatever became of it: one that was interrupted
counts, for otherwise a slow one could be cut short and drawn again. Only untimed launches are
made again after an interruption, as they have no timing to draw; bits that a repeat reported before
stay and count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.planning.sessions import NO_TIME
from appliance.records.journal import (
    Artifact,
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Line,
    Repeated,
    Started,
)
from appliance.records.plan import Case, Launch, Plan


@dataclass
class _CaseState:
    started: list[int] = field(default_factory=list)
    ended: dict[int, LaunchEnded] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    interim_analyses: set[int] = field(default_factory=set)
    first_bits: dict[str, Mapping[str, str]] = field(default_factory=dict)
    is_decided: bool = False
    has_stepped: bool = False

    def is_interrupted(self, number: int) -> bool:
        ended = self.ended.get(number)
        return number in self.started and (ended is None or ended.outcome == "interrupted")

    def is_incomplete(self, number: int) -> bool:
        ended = self.ended.get(number)
        return number in self.started and (ended is None or ended.outcome != "completed")

    def had_no_time(self, number: int) -> bool:
        ended = self.ended.get(number)
        return ended is not None and ended.reason == NO_TIME

    def is_settled(self, number: int) -> bool:
        if number <= 0:
            return number in self.ended and not self.is_interrupted(number)
        return number in self.started or number in self.ended


class History:
    """What has been done of a plan."""

    def __init__(self, plan: Plan, lines: Sequence[Line]) -> None:
        self._launches = {launch.id: launch for launch in plan.launches}
        self._cases = {case.id: _CaseState() for case in plan.cases}
        for line in lines:
            self.take(line.event)

    def take(self, event: Event) -> None:
        """Note one more event."""
        if isinstance(event, InterimAnalysis):
            case = self._cases[event.case]
            case.interim_analyses.add(event.launches)
            case.is_decided |= event.is_decided
        elif isinstance(event, Repeated):
            bits = self._cases[self._launches[event.launch].case].first_bits
            bits.setdefault(str(event.rank), event.digests)
        elif isinstance(event, LaunchStarted | LaunchEnded | Artifact | Started):
            launch = self._launches[event.launch]
            self._take(self._cases[launch.case], launch.number, event)

    def _take(
        self, case: _CaseState, number: int, event: LaunchStarted | LaunchEnded | Artifact | Started
    ) -> None:
        if isinstance(event, Started):
            case.has_stepped = True
        elif isinstance(event, LaunchEnded):
            case.ended[number] = event
        elif isinstance(event, LaunchStarted):
            case.started.append(number)
            case.ended.pop(number, None)
            if number == 0:
                case.artifacts.clear()
        elif number == 0:
            case.artifacts[event.name] = event.sha256

    @property
    def num_settled(self) -> int:
        """Launches that need not be made any more."""
        return sum(self.is_settled(launch) for launch in self._launches.values())

    def incomplete(self) -> tuple[str, ...]:
        """Launches that were started and did not complete, whose logs the bundle keeps."""
        return tuple(
            launch.id
            for launch in self._launches.values()
            if self._cases[launch.case].is_incomplete(launch.number)
        )

    def is_settled(self, launch: Launch) -> bool:
        """Whether a launch is not to be made any more, whatever became of it."""
        return self._cases[launch.case].is_settled(launch.number)

    def was_begun(self, launch: Launch) -> bool:
        """Whether a launch was started once, whatever became of it."""
        return launch.number in self._cases[launch.case].started

    def is_decided(self, case: Case) -> bool:
        """Whether an interim analysis has decided the case: its other launches are not made."""
        return self._cases[case.id].is_decided

    def has_stepped(self, case: Case) -> bool:
        """Whether a launch of the case has made its first step."""
        return self._cases[case.id].has_stepped

    def failed_reference(self, case: Case) -> LaunchEnded | None:
        """The end of the case's untimed launch, if it was made and did not complete."""
        ended = self._cases[case.id].ended.get(0)
        return None if ended is None or ended.outcome == "completed" else ended

    def artifacts(self, case: Case) -> dict[str, str]:
        """Digests of the files that the case's untimed launch made or used, by name."""
        return dict(self._cases[case.id].artifacts)

    def first_bits(self, case: Case) -> Mapping[str, Mapping[str, str]]:
        """By rank, the digests of all tensors that the case's first repeat reported, if any."""
        return dict(self._cases[case.id].first_bits)

    def make_again(self, case: Case) -> None:
        """Have the case's untimed launch made again, because the files that it made are gone."""
        self._cases[case.id].ended.pop(0, None)

    def checks_last(self, case: Case, number: int, running: Sequence[int] = ()) -> bool:
        """Whether the launch that starts now checks its last output.

        The drawn launch does. Where it was interrupted the next to start takes the check over,
        and so on. Of a launch that is ordered ahead, those that are `running`, or are to run
        before it, are taken for such that complete.
        """
        if case.checked_launch is None:
            return True
        past = self._cases[case.id]
        if case.checked_launch not in past.started:
            return number == case.checked_launch
        begin = past.started.index(case.checked_launch)
        holders = [other for other in past.started[begin:] if other > 0]
        is_taken = any(other > 0 for other in running)
        return not is_taken and all(past.is_interrupted(holder) for holder in holders)

    def due_analysis(self, case: Case, interim_analyses: Sequence[int], reached: int) -> int | None:
        """The first of these analyses that is due and was not made; None if there is none.

        It is due when all of its launches are settled, no more than `reached`, and one of them was
        made; never when there was no time for one of them.
        """
        past = self._cases[case.id]
        for count in interim_analyses:
            numbers = range(1, count + 1)
            is_due = all(map(past.is_settled, numbers)) and any(n in past.started for n in numbers)
            is_due &= not any(map(past.had_no_time, numbers))
            is_left = count not in past.interim_analyses and not past.is_decided
            if count <= reached and is_due and is_left:
                return count
        return None
