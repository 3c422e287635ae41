"""What is made of the time that a run within so many minutes has left: a pure rule, stated ahead.

Cases that are decided early, and launches that take less than was planned for them, leave time. The
plan says in which waves launches follow those that are assured: first each row that waits, whole
(its untimed launch, its repeats and its fewest timed launches), then the next interim analyses of
all cases, and so on. When a wave begins, with nothing running, its parts are gone through in their
order, and each is made for which the rest of the minutes is long enough:

- a row that waits takes what the plan has for it;
- launches up to the next interim analysis take each as long as the longest one that the case has
  made, and are made where the case is not decided and has made all launches before.

A row whose step nobody has timed stands among those that are assured by an estimate that may be
wrong by several times. It pays for that itself: once its launches have taken longer than was
planned for them, its next one is made only where the minutes hold it, as long as its launches have
been against their plan, beside all that is planned of other rows; and none of it begins when the
minutes are over. So a wrong estimate takes no time of other rows, and exceeds the minutes by what
one launch of it takes longer.

The rest of the minutes is what they leave to the session's clock at the last launch or interim
analysis of the wave before. So all of the rule follows from plan and journal, and is made once more
by whoever verifies. Looking further is no second chance: the bounds of every test are those of the
largest number of launches that the plan has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from appliance.planning.remaining_time import launch_seconds
from appliance.planning.sessions import SessionClock
from appliance.records.journal import InterimAnalysis, LaunchEnded, LaunchStarted, Line
from appliance.records.plan import Case, Launch, Plan, ScheduledRow
from appliance.scheduling.rows import row_name

MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is made whole or not at all in a wave: launches of rows that stand or fall together.

    `launches` are the timed ones of each case, by its id; `first` is the number of the first.
    """

    wave: int
    rows: tuple[ScheduledRow, ...]
    cases: tuple[Case, ...]
    launches: int
    first: int

    @property
    def is_waiting(self) -> bool:
        """Whether it is a row of which nothing was made before."""
        return self.first <= 1 and any(row.waits for row in self.rows)

    @property
    def key(self) -> tuple[float, float, str]:
        """The order in a wave: first what narrows the score most for a second, as planned."""
        weight = sum(row.weight for row in self.rows)
        seconds = self.launches * sum(row.launch_seconds for row in self.rows)
        made = self.first - 1
        less = weight**2 * (1 / made - 1 / (made + self.launches)) if made else weight
        return (weight <= 0, -less / seconds if seconds > 0 else 0.0, self.rows[0].name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a wave is given: the cases that are made in it, and the seconds that there were."""

    wave: int
    cases: frozenset[str]
    left_seconds: float


class LeftTime:
    """Takes the lines of a run in their order, and says which launches there is time for."""

    def __init__(self, plan: Plan) -> None:
        self._minutes = 0 if plan.schedule is None else plan.schedule.minutes
        self._clock = SessionClock(plan)
        self._launches = {launch.id: launch for launch in plan.launches}
        self._parts = _parts(plan)
        self._settled_seconds = 0.0
        self._given: dict[int, Given] = {}
        self._decided: set[str] = set()
        self._made: dict[str, int] = {}
        self._referenced: dict[str, bool] = {}
        self._longest: dict[str, float] = {}
        self._assumed = _assumed_rows(plan)
        self._cases = {case.id: case for case in plan.cases}
        self._groups = tuple(plan.groups) if self._assumed else ()
        self._group_of = {name: at for at, group in enumerate(self._groups) for name in group}
        self._allowed: dict[int, bool] = {}
        self._settled: set[str] = set()
        self._spent: dict[str, tuple[float, float]] = {}

    def take(self, line: Line) -> None:
        """Note one more line."""
        event = line.event
        if isinstance(event, LaunchStarted | LaunchEnded):
            launch = self._launches.get(event.launch)
            if launch is not None:
                self.allows(launch)  # which is settled with the first launch of a wave or group
                self._take_launch(launch, event)
        self._clock.take(line)
        if isinstance(event, InterimAnalysis) and event.is_decided:
            self._decided.add(event.case)
        if isinstance(event, InterimAnalysis | LaunchEnded):
            self._settled_seconds = self._clock.seconds

    def allows(self, launch: Launch) -> bool:
        """Whether a launch that is to be settled next is made, as far as it is a matter of time.

        The first answer for a wave, and for a group of a row with an assumed step, stands.
        """
        if self._minutes and launch.wave:
            self._begin(launch.wave)
        elif self._minutes and (row := row_name(launch.case)) in self._assumed:
            group = self._group_of[launch.id]
            if group not in self._allowed:
                self._allowed[group] = self._has_room(group, row)
        return self.would_allow(launch)

    def would_allow(self, launch: Launch) -> bool:
        """What `allows` would say if the launch were settled now.

        It settles nothing: lines that come before the launch's turn may change the answer. Of a
        wave that has not begun it is no.
        """
        if not self._minutes:
            return True
        if launch.wave:
            given = self._given.get(launch.wave)
            return given is not None and launch.case in given.cases
        if (row := row_name(launch.case)) not in self._assumed:
            return True
        group = self._group_of[launch.id]
        settled = self._allowed.get(group)
        return self._has_room(group, row) if settled is None else settled

    def given(self, wave: int) -> Given:
        """What a wave is given, which begins now if it has not begun."""
        return self._begin(wave)

    def _take_launch(self, launch: Launch, event: LaunchStarted | LaunchEnded) -> None:
        self._settled.add(launch.id)
        if isinstance(event, LaunchEnded) and event.wall_ns:
            measured, planned = self._spent.get(launch.case, (0.0, 0.0))
            expected = launch_seconds(self._cases[launch.case], launch)
            self._spent[launch.case] = measured + event.wall_ns * 1e-9, planned + expected
        if isinstance(event, LaunchStarted):
            if launch.is_timed:
                self._made[launch.case] = max(launch.number, self._made.get(launch.case, 0))
        elif launch.is_timed:
            seconds = event.wall_ns * 1e-9
            self._longest[launch.case] = max(seconds, self._longest.get(launch.case, 0.0))
        elif launch.number == 0:
            self._referenced[launch.case] = event.outcome == "completed"

    def _has_room(self, group: int, row: str) -> bool:
        """Whether the minutes hold launches of a row with an assumed step, by the lines so far.

        `group` is the place of theirs in the plan.
        """
        left = MINUTE * self._minutes - self._settled_seconds
        excess = max(self._excess(name) for name in self._groups[group])
        needed = excess * self._planned(group)
        is_late = excess > 1.0 and needed > left - self._others_seconds(row)
        return left > 0 and not is_late

    def _excess(self, launch: str) -> float:
        """How many times as long as planned the launches of a case have taken so far; 1 of none."""
        measured, planned = self._spent.get(self._launches[launch].case, (0.0, 0.0))
        return measured / planned if planned > 0 else 1.0

    def _others_seconds(self, row: str) -> float:
        """What is planned of other rows and assured, and has not begun."""
        return sum(
            self._planned(at)
            for at, names in enumerate(self._groups)
            if row_name(self._launches[names[0]].case) != row
        )

    def _planned(self, group: int) -> float:
        """Seconds of a group's launches that are assured, still to come and not decided."""
        left = [
            one
            for name in self._groups[group]
            if (one := self._launches[name]).wave == 0
            and name not in self._settled
            and not (one.is_timed and one.case in self._decided)
            and (one.number == 0 or self._referenced.get(one.case, True))
        ]
        return max((launch_seconds(self._cases[one.case], one) for one in left), default=0.0)

    def _begin(self, wave: int) -> Given:
        """Chooses what a wave is given, when its first launch is to be settled."""
        if wave not in self._given:
            left = MINUTE * self._minutes - self._settled_seconds
            self._given[wave] = Given(
                wave=wave, cases=frozenset(self._chosen(wave, left)), left_seconds=left
            )
        return self._given[wave]

    def _chosen(self, wave: int, left: float) -> Iterator[str]:
        for part in sorted(self._parts.get(wave, ()), key=lambda part: part.key):
            cases = [case for case in part.cases if self._is_wanted(part, case)]
            seconds = self._seconds(part)
            if cases and seconds <= left:
                left -= seconds
                yield from (case.id for case in cases)

    def _is_wanted(self, part: Part, case: Case) -> bool:
        if case.unsupported or case.software:
            return False
        if part.is_waiting:
            return not case.variant_of or self._referenced.get(case.variant_of, False)
        has_all = self._made.get(case.id, 0) == part.first - 1
        is_open = self._referenced.get(case.id, False) and case.id not in self._decided
        return has_all and is_open

    def _seconds(self, part: Part) -> float:
        if part.is_waiting:
            return sum(row.fixed_seconds + part.launches * row.launch_seconds for row in part.rows)
        return part.launches * sum(self._launch_seconds(part, row) for row in part.rows)

    def _launch_seconds(self, part: Part, row: ScheduledRow) -> float:
        """Seconds of one launch on all devices that still make it: at once, or one by one."""
        shared, alone = [0.0], 0.0
        for case in part.cases:
            if row_name(case.id) != row.name or not self._is_wanted(part, case):
                continue
            seconds = self._longest.get(case.id, case.expected_seconds)
            if case.alone:
                alone += seconds
            else:
                shared.append(seconds)
        return alone + max(shared)


def _assumed_rows(plan: Plan) -> frozenset[str]:
    """Names of the rows whose step is assumed; none of a plan without minutes."""
    rows = () if plan.schedule is None else plan.schedule.rows
    return frozenset(row.name for row in rows if row.is_assumed)


def _parts(plan: Plan) -> Mapping[int, list[Part]]:
    """The parts of each wave; none of a plan without minutes."""
    if plan.schedule is None:
        return {}
    cases = {case.id: case for case in plan.cases}
    rows = {row.name: row for row in plan.schedule.rows}
    members: dict[tuple[int, str], list[Launch]] = {}
    for launch in plan.launches:
        if launch.wave:
            group = rows[row_name(launch.case)].group
            members.setdefault((launch.wave, group), []).append(launch)
    waves: dict[int, list[Part]] = {}
    for (wave, group), launches in members.items():
        own = [cases[name] for name in dict.fromkeys(launch.case for launch in launches)]
        timed = [launch.number for launch in launches if launch.is_timed]
        waves.setdefault(wave, []).append(
            Part(
                wave=wave,
                rows=tuple(row for row in rows.values() if row.group == group),
                cases=tuple(own),
                launches=len(set(timed)),
                first=min(timed, default=0),
            )
        )
    return waves
