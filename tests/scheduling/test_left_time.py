"""What the time is given to that decided cases and quick launches leave."""

from __future__ import annotations

from dataclasses import replace

from support.builders import FUNCTIONAL, PROTOCOL, limited
from support.planned_suites import plan_inputs, suite, suite_case

from appliance.planning.sessions import NO_TIME
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Line,
    Outcome,
    RunStarted,
)
from appliance.records.plan import Launch, Plan
from appliance.scheduling.left_time import LeftTime
from appliance.scheduling.within import plan_within
from appliance.scheduling.words import table

SECOND = 10**9
ANALYSES = (2, 4, 8)


def a_plan(minutes: int, criteria: Criteria = FUNCTIONAL, repeats: int = 0) -> Plan:
    """Gemm needs 6 s and 3 s a launch, bert 12 s and 10 s, llama 60 s and 60 s."""
    given = suite(
        replace(suite_case("gemm"), expected_seconds=3.0, reference_seconds=6.0),
        replace(suite_case("bert"), expected_seconds=10.0, reference_seconds=12.0),
        replace(suite_case("llama"), expected_seconds=60.0, reference_seconds=60.0),
        protocol=replace(PROTOCOL, interim_analyses=ANALYSES, repeats=repeats),
        limit=1e6,
    )
    return plan_within(plan_inputs(given, criteria=criteria), minutes, ())


class Walk:
    """A run that is played by hand: events in, the second at which each of them comes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.left = LeftTime(plan)
        self.lines: list[Line] = []
        self.now = 0.0
        self.add(RunStarted(run_id="run", plan="", system="", pid=1))

    def add(self, event: Event) -> None:
        line = Line(
            seq=len(self.lines),
            utc="2026-11-25T00:00:00Z",
            monotonic_ns=round(self.now * SECOND),
            prev="",
            event=event,
        )
        self.lines.append(line)
        self.left.take(line)

    def make(self, launch: Launch, seconds: float, outcome: Outcome = "completed") -> None:
        self.add(LaunchStarted(launch=launch.id, mode="forked"))
        self.now += seconds
        self.end(launch, outcome, "", seconds)

    def end(self, launch: Launch, outcome: Outcome, reason: str, seconds: float = 0.0) -> None:
        self.add(
            LaunchEnded(
                launch=launch.id,
                outcome=outcome,
                reason=reason,
                detail="",
                exit_code=None,
                wall_ns=round(seconds * SECOND),
                peak_memory_bytes=None,
            )
        )

    def analyse(self, case: str, launches: int, *, is_decided: bool) -> None:
        self.add(InterimAnalysis(case=case, launches=launches, is_decided=is_decided, reason=""))

    def of_wave(self, wave: int) -> list[Launch]:
        return [launch for launch in self.plan.launches if launch.wave == wave]

    def assured(self, seconds: float) -> None:
        """Make all that is assured, each launch in so many seconds."""
        for launch in self.of_wave(0):
            self.make(launch, seconds)

    def allowed(self, wave: int) -> list[str]:
        return [launch.id for launch in self.of_wave(wave) if self.left.allows(launch)]


def assured(plan: Plan) -> dict[str, tuple[int, int | None, int]]:
    return {case.workload: (case.launches, case.assured, case.waits) for case in plan.cases}


def assumed_plan(minutes: int) -> Plan:
    """As `a_plan`, where the step of bert is assumed."""
    plan = a_plan(minutes)
    assert plan.schedule is not None
    rows = tuple(
        replace(row, is_estimated=True, is_assumed=True) if row.name == "bert-1" else row
        for row in plan.schedule.rows
    )
    return replace(plan, schedule=replace(plan.schedule, rows=rows))


def made_of_bert(walk: Walk, **seconds: float) -> list[int]:
    """Makes what is allowed of wave 0, each launch in its time by its row; numbers of bert's."""
    made = []
    order = {name: at for at, group in enumerate(walk.plan.groups) for name in group}
    for launch in sorted(walk.of_wave(0), key=lambda one: order[one.id]):
        if not walk.left.allows(launch):
            walk.end(launch, "not_run", NO_TIME)
            continue
        walk.make(launch, seconds[launch.case.partition("-")[0]])
        made += [launch.number] if launch.case.startswith("bert") else []
    return made


def test_a_row_with_an_assumed_step_that_takes_longer_pays_for_it_itself() -> None:
    """Bert needs 12 s and 10 s a launch by its plan, gemm 6 s and twice 3 s, within a minute."""
    as_planned = Walk(assumed_plan(1))
    assert made_of_bert(as_planned, gemm=3.0, bert=11.0) == [0, 1, 2]
    slow = Walk(assumed_plan(1))
    assert made_of_bert(slow, gemm=3.0, bert=30.0) == [0]  # gemm's and 30 s more exceed a minute
    ends = [one.event for one in slow.lines if isinstance(one.event, LaunchEnded)]
    made = [one.launch for one in ends if one.outcome == "completed"]
    assert sum(name.startswith("gemm") for name in made) == 3
    assert slow.now < 60.0


def test_a_row_with_an_assumed_step_that_takes_longer_goes_on_where_there_is_room() -> None:
    roomy = assumed_plan(1)
    assert roomy.schedule is not None
    roomy = replace(roomy, schedule=replace(roomy.schedule, minutes=10))
    assert made_of_bert(Walk(roomy), gemm=3.0, bert=30.0) == [0, 1, 2]


def test_nothing_of_an_assumed_step_begins_when_the_minutes_are_over() -> None:
    walk = Walk(assumed_plan(1))
    walk.now = 61.0  # before a launch, so no row is over its plan
    walk.analyse("gemm-1@cpu:0", 2, is_decided=False)
    assert made_of_bert(walk, gemm=3.0, bert=5.0) == []


def test_whether_there_is_room_is_asked_once_for_all_devices_of_a_launch() -> None:
    walk = Walk(assumed_plan(1))
    first = next(one for one in walk.of_wave(0) if one.case.startswith("bert"))
    assert walk.left.allows(first)
    walk.now = 100.0
    walk.analyse("gemm-1@cpu:0", 2, is_decided=False)
    assert walk.left.allows(first)


def with_limits(names: str = "*") -> Criteria:
    return limited(1.0, cases=names)


def test_a_row_that_the_minutes_could_hold_waits_and_one_that_they_could_not_is_left_out() -> None:
    plan = a_plan(2)
    assert assured(plan) == {"gemm": (2, None, 0), "bert": (2, None, 0), "llama": (1, None, 1)}
    assert plan.not_planned == ()
    assert plan.longest_seconds == 120.0
    assert {launch.wave for launch in plan.launches if launch.case.startswith("llama")} == {1}
    short = a_plan(1)
    assert [one.case for one in short.not_planned] == ["llama-1"]
    assert table(plan)[-1].endswith("number 1 in line, needs 2.0 min")


def test_launches_wait_in_waves_that_end_at_the_interim_analyses_of_the_largest_number() -> None:
    plan = a_plan(1, with_limits())
    assert assured(plan) == {"gemm": (8, 4, 0), "bert": (8, 2, 0)}
    waves = {(one.case[:4], one.number): one.wave for one in plan.launches if one.is_timed}
    assert [waves["bert", number] for number in range(1, 9)] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert [waves["gemm", number] for number in range(1, 9)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {one.interim_analyses for one in plan.bounds} == {ANALYSES}
    order = [name for group in plan.groups for name in group]
    places = {launch.id: launch.wave for launch in plan.launches}
    assert [places[name] for name in order] == sorted(places[name] for name in order)


def test_a_decided_case_leaves_its_time_to_one_that_is_open() -> None:
    plan = a_plan(1, with_limits())
    walk = Walk(plan)
    walk.assured(5.0)  # 8 launches, 40 s
    walk.analyse("gemm-1@cpu:0", 2, is_decided=True)
    walk.analyse("bert-1@cpu:0", 2, is_decided=False)
    given = walk.left.given(1)
    assert (given.left_seconds, given.cases) == (20.0, {"bert-1@cpu:0"})
    assert walk.allowed(1) == ["bert-1@cpu:0/3", "bert-1@cpu:0/4"]


def test_nothing_is_given_that_does_not_fit_whole() -> None:
    plan = a_plan(1, with_limits())
    walk = Walk(plan)
    walk.assured(6.5)  # 52 s: two launches of 6.5 s do not fit into the 8 s that are left
    assert walk.allowed(1) == []
    assert walk.left.given(1).left_seconds == 8.0


def test_a_case_that_was_skipped_is_not_gone_on_with_later() -> None:
    walk = Walk(a_plan(1, with_limits()))
    walk.assured(6.5)
    assert walk.allowed(1) == []
    for launch in walk.of_wave(1):
        walk.end(launch, "not_run", NO_TIME)
    assert walk.allowed(2) == []


def test_a_row_that_waits_takes_what_was_planned_for_it_not_what_others_took() -> None:
    plan = a_plan(2)
    walk = Walk(plan)
    walk.assured(0.0)
    assert walk.left.given(1).cases == {"llama-1@cpu:0"}
    late = Walk(plan)
    late.assured(0.01)
    assert late.left.given(1).cases == frozenset()  # 119.94 s are left, and it needs 120 s


def test_a_case_whose_reference_failed_gets_no_time() -> None:
    walk = Walk(a_plan(1, with_limits()))
    for launch in walk.of_wave(0):
        is_lost = launch.case.startswith("bert")
        walk.make(launch, 1.0, "crashed" if is_lost and launch.number == 0 else "completed")
    assert {name[:4] for name in walk.allowed(1)} == {"gemm"}


def test_the_choice_is_that_of_the_lines_before_the_wave_whenever_it_is_asked() -> None:
    """Parent and verifier ask at other moments: before a launch starts, and at its line."""
    plan = a_plan(1, with_limits())
    walk = Walk(plan)
    walk.assured(5.0)
    asked = walk.allowed(1)
    walk.now += 30.0  # imports, counters and whatever else comes between
    for launch in walk.of_wave(1):
        if launch.id in asked:
            walk.make(launch, 5.0)
        else:
            walk.end(launch, "not_run", NO_TIME)
    again = LeftTime(plan)
    replayed: list[str] = []
    for line in walk.lines:
        name = getattr(line.event, "launch", "")
        launches = [one for one in walk.of_wave(1) if one.id == name]
        if launches and isinstance(line.event, LaunchStarted | LaunchEnded):
            replayed += [one.id for one in launches if again.allows(one)]
        again.take(line)
    assert list(dict.fromkeys(replayed)) == asked


def test_plans_without_minutes_allow_all_and_have_no_waves() -> None:
    plan = replace(a_plan(10_000), schedule=None)
    left = LeftTime(plan)
    assert all(left.allows(launch) for launch in plan.launches)
    assert {launch.wave for launch in plan.launches} == {0}


def test_what_narrows_the_score_most_for_a_second_goes_first() -> None:
    walk = Walk(a_plan(1, with_limits()))
    walk.assured(5.0)  # 20 s are left: four launches of gemm, or two of bert
    assert {name[:4] for name in walk.allowed(1)} == {"bert"}
    both = Walk(a_plan(1, with_limits()))
    both.assured(3.5)  # 32 s are left, which is enough for both
    assert {name[:4] for name in both.allowed(1)} == {"gemm", "bert"}


def test_asking_before_its_turn_settles_nothing() -> None:
    """A process may be ordered before the launch ahead of it has ended, which may take all time."""
    walk = Walk(assumed_plan(30))
    first, second, *_ = (one for one in walk.of_wave(0) if one.case.startswith("bert"))
    assert walk.left.would_allow(second)
    walk.make(first, 3600.0)
    assert not walk.left.would_allow(second)
    assert not walk.left.allows(second)


def test_asking_before_a_wave_begins_gives_it_nothing() -> None:
    walk = Walk(a_plan(1, with_limits()))
    walk.assured(1.0)
    walk.analyse("gemm-1@cpu:0", 2, is_decided=False)
    waiting = next(one for one in walk.of_wave(1) if one.case == "gemm-1@cpu:0")
    assert not walk.left.would_allow(waiting)
    assert walk.left.allows(waiting)
    assert walk.left.would_allow(waiting)
