"""How long a run still takes, by what its launches have taken so far.

A launch that is left is expected to take what launches of its case and kind have taken. Where none
has ended yet, it is the plan's figure times how far launches of its kind, or all, were off theirs.
Rows whose step the plan assumes are a kind apart: they may be off by several times, and say nothing
of others.
What passes between launches, imports of fork servers among it, is spread over the groups. The first
launches say little of the others: they import, compile and fill caches. So the plan counts as much
as a quarter of its launches would, of a kind of which none has ended as much as all; and until that
quarter is measured, no run is expected to exceed the minutes that it was asked to keep to. Timed
launches count up to the next interim analysis of their case, and none of a decided case. Launches
that are made where time is left count once it was given to them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from appliance.planning.sessions import judged_analyses
from appliance.records.journal import Outcome
from appliance.records.plan import Case, Launch, Plan

REPEAT_PART = 1 / 3
"""Of the untimed launch's time, what a repeat takes: it builds and steps, and checks nothing."""
Kind = tuple[Literal["reference", "timed", "repeat"], bool]
"""Of a launch, and whether the step of its row is assumed."""
PLAN_SHARE = 0.25
"""Of the planned time, what the plan counts for against launches that were measured."""
MINUTE = 60.0
_OWN_TIME_SHARE = 1.01
"""A plan of less time than its launches take, by more than rounding, makes what it has time for."""


def launch_seconds(case: Case, launch: Launch) -> float:
    """What the plan expects of a launch, in seconds; 0 where none is made."""
    if case.unsupported or case.software:
        return 0.0
    if launch.is_repeat:
        return REPEAT_PART * case.reference_seconds
    return case.expected_seconds if launch.is_timed else case.reference_seconds


class RemainingTime:
    """Is told of each launch that ends and each interim analysis; `seconds` may be asked any time.

    Of a run that goes on, `num_done` launches were settled before, the first ones of the order.
    Launches after `session` are left out, and pauses between sessions are not counted.
    """

    def __init__(self, plan: Plan, num_done: int = 0, session: int = 0) -> None:
        launches = {launch.id: launch for launch in plan.launches}
        order = [name for group in plan.groups for name in group]
        self._plan = plan
        self._cases = {case.id: case for case in plan.cases}
        self._left = {
            name: launches[name]
            for name in islice(order, num_done, None)
            if not session or launches[name].session <= session
        }
        self._given: set[tuple[int, str]] = set()
        self._next = dict.fromkeys(self._cases, 0)
        for case in self._cases:
            self.analysed(case, 0, is_decided=False)
        rows = plan.schedule.rows if plan.schedule else ()
        assumed = {row.name for row in rows if row.is_assumed}
        self._assumed = {name for name in self._cases if name.partition("@")[0] in assumed}
        self._measured: dict[tuple[str, Kind], list[float]] = {}
        self._planned: dict[Kind, list[float]] = {}
        self._group_of = {name: at for at, group in enumerate(plan.groups) for name in group}
        self._groups: dict[int, float] = {}
        self._prior_seconds = self._prior_groups = 0.0
        planned = self._launches_left()
        self._prior_seconds = PLAN_SHARE * planned
        self._prior_groups = PLAN_SHARE * self._num_groups_left()
        self._is_cut = planned > _OWN_TIME_SHARE * plan.expected_seconds
        self._most_seconds = MINUTE * plan.schedule.minutes if plan.schedule else math.inf

    def analysed(self, case: str, launches: int, *, is_decided: bool) -> None:
        """An interim analysis of a case after so many launches."""
        planned, plan = self._cases[case].launches, self._plan
        judged = judged_analyses(plan.protocol.interim_analyses, planned, plan.sessions)
        later = [number for number in judged if number > launches]
        self._next[case] = 0 if is_decided else min(later, default=planned)

    def time_given(self, wave: int, cases: Iterable[str]) -> None:
        """The time that is left was given to these cases, by their ids, in a wave of launches."""
        self._given |= {(wave, case) for case in cases}

    def launch_ended(self, launch: Launch, seconds: float, outcome: Outcome = "completed") -> None:
        """A launch has ended after so many seconds, or 0 where it was settled without being made.

        After an untimed launch that failed its case has no others.
        """
        self._left.pop(launch.id, None)
        if not (launch.is_timed or launch.is_repeat or outcome == "completed"):
            of_case = [name for name, one in self._left.items() if one.case == launch.case]
            for name in of_case:
                del self._left[name]
        if not seconds:
            return
        kind = self._kind(launch)
        self._measured.setdefault((launch.case, kind), []).append(seconds)
        expected = launch_seconds(self._cases[launch.case], launch)
        self._planned.setdefault(kind, []).append(expected)
        group = self._group_of[launch.id]
        self._groups[group] = max(self._groups.get(group, 0.0), seconds)

    def seconds(self, elapsed: float) -> float:
        """Seconds that the launches left will take, `elapsed` seconds after the first began."""
        left = self._launches_left() + self._between(elapsed) * self._num_groups_left()
        if self._is_cut:
            return min(left, max(0.0, self._plan.expected_seconds - elapsed))
        if sum(self._groups.values()) < self._prior_seconds:
            return min(left, max(0.0, self._most_seconds - elapsed))
        return left

    def _between(self, elapsed: float) -> float:
        """Seconds that pass before a group, beside its launches; the plan has none."""
        beside = max(0.0, elapsed - sum(self._groups.values()))
        return beside / (len(self._groups) + self._prior_groups) if self._groups else 0.0

    def _launches_left(self) -> float:
        """Groups one after another, each as long as its slowest launch."""
        groups: dict[int, float] = {}
        for launch in self._made():
            group = self._group_of[launch.id]
            groups[group] = max(groups.get(group, 0.0), self._expected(launch))
        return sum(groups.values())

    def _num_groups_left(self) -> int:
        return len({self._group_of[launch.id] for launch in self._made()})

    def _made(self) -> Sequence[Launch]:
        return [
            launch
            for launch in self._left.values()
            if launch.number <= self._next[launch.case]
            and (not launch.wave or (launch.wave, launch.case) in self._given)
            and launch_seconds(self._cases[launch.case], launch)
        ]

    def _expected(self, launch: Launch) -> float:
        kind = self._kind(launch)
        if measured := self._measured.get((launch.case, kind)):
            return statistics.fmean(measured)
        return launch_seconds(self._cases[launch.case], launch) * self._factor(kind)

    def _factor(self, kind: Kind) -> float:
        """Measured over planned time, of launches of this kind if any has ended, else of all.

        All of rows whose step is assumed too, or of the others.
        """
        is_own = kind in self._planned
        kinds = [kind] if is_own else [one for one in self._planned if one[1] == kind[1]]
        prior = self._prior_seconds if is_own else self._prior_seconds / PLAN_SHARE
        planned = prior + sum(sum(self._planned[one]) for one in kinds)
        measured = prior + sum(
            sum(seconds) for (_, one), seconds in self._measured.items() if one in kinds
        )
        return measured / planned if planned > 0 else 1.0

    def _kind(self, launch: Launch) -> Kind:
        is_assumed = launch.case in self._assumed
        if launch.is_repeat:
            return "repeat", is_assumed
        return "timed" if launch.is_timed else "reference", is_assumed
