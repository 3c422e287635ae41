"""What a run still takes, told by launches that take longer than the plan said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.launching import assumed_row, case, plan

from appliance.planning.remaining_time import PLAN_SHARE, REPEAT_PART, RemainingTime, launch_seconds
from appliance.records.plan import Plan, Schedule


def two_cases(*, repeats: int = 0, launches: int = 2, sessions: int = 1) -> Plan:
    """A reference launch of 1 s and timed ones of 2 s of each of two cases, as planned."""
    cases = [
        case(name, launches=launches, expected_seconds=2.0, reference_seconds=1.0)
        for name in ("one", "other")
    ]
    made = plan(*cases, interim_analyses=(2, 4), repeats=repeats, sessions=sessions)
    by_id = {item.id: item for item in made.cases}
    seconds = sum(launch_seconds(by_id[item.case], item) for item in made.launches)
    return replace(made, expected_seconds=seconds)


def told(made: Plan, remaining: RemainingTime, *names: str, factor: float) -> float:
    """Tells it that these launches took so many times what was planned; their sum in seconds."""
    launches = {launch.id: launch for launch in made.launches}
    cases = {item.id: item for item in made.cases}
    total = 0.0
    for name in names:
        seconds = factor * launch_seconds(cases[launches[name].case], launches[name])
        remaining.launch_ended(launches[name], seconds)
        total += seconds
    return total


def test_before_the_first_launch_it_is_what_was_planned() -> None:
    made = two_cases(repeats=3)
    planned = 2 * (1 + 2 * 2 + 3 * REPEAT_PART * 1)
    assert RemainingTime(made).seconds(0.0) == pytest.approx(planned)


def test_launches_of_twice_the_time_count_beside_the_plan() -> None:
    made = two_cases()
    remaining = RemainingTime(made)
    elapsed = told(made, remaining, "one@cpu:0/0", factor=2.0)
    planned = 10.0
    # references against a quarter of the plan, timed launches, of which none has ended, against all
    other = 1 * (2 + PLAN_SHARE * planned) / (1 + PLAN_SHARE * planned)
    timed = 4 * 2 * (2 + planned) / (1 + planned)
    assert remaining.seconds(elapsed) == pytest.approx(other + timed)
    elapsed += told(made, remaining, "other@cpu:0/0", factor=2.0)
    elapsed += told(made, remaining, "one@cpu:0/1", factor=3.0)
    # the case's own time for its other launch, and the factor of timed ones for the other case
    factor = (6 + PLAN_SHARE * planned) / (2 + PLAN_SHARE * planned)
    assert remaining.seconds(elapsed) == pytest.approx(6 + 4 * factor)


def test_time_between_launches_counts_for_each_group_left() -> None:
    made = two_cases()
    remaining = RemainingTime(made)
    elapsed = told(made, remaining, "one@cpu:0/0", "other@cpu:0/0", factor=1.0) + 2 * 0.5
    between = 2 * 0.5 / (2 + PLAN_SHARE * 6)
    assert remaining.seconds(elapsed) == pytest.approx(4 * (2 + between))


def test_row_whose_step_is_assumed_says_nothing_of_others_and_others_nothing_of_it() -> None:
    row = assumed_row("one", seconds=2.0, least=1, launches=2)
    made = replace(two_cases(), schedule=Schedule(minutes=60, rows=(row,)))
    remaining = RemainingTime(made)
    elapsed = told(made, remaining, "one@cpu:0/0", "one@cpu:0/1", factor=10.0)
    assert remaining.seconds(elapsed) == pytest.approx(20.0 + 1 + 2 * 2)


def test_first_launches_move_no_estimate_beyond_the_minutes_asked_for() -> None:
    schedule = Schedule(minutes=1, rows=())
    made = replace(two_cases(), schedule=schedule)
    remaining = RemainingTime(made)
    remaining.launch_ended(made.launches[0], 2.0)
    assert remaining.seconds(59.0) == pytest.approx(1.0)  # without the minutes: 80 s and more
    for launch in made.launches[1:3]:
        remaining.launch_ended(launch, 20.0)
    assert remaining.seconds(59.0) > 20.0  # what was measured says now that they do not suffice


def test_decided_cases_take_no_more_and_open_ones_go_on() -> None:
    made = two_cases(launches=4)
    remaining = RemainingTime(made)
    names = [f"{name}@cpu:0/{number}" for number in (0, 1, 2) for name in ("one", "other")]
    elapsed = told(made, remaining, *names, factor=1.0)
    assert remaining.seconds(elapsed) == 0.0  # until the analysis says that one is open
    remaining.analysed("one@cpu:0", 2, is_decided=True)
    remaining.analysed("other@cpu:0", 2, is_decided=False)
    assert remaining.seconds(elapsed) == pytest.approx(2 * 2)


def test_case_whose_reference_failed_takes_no_more() -> None:
    made = two_cases(repeats=3)
    remaining = RemainingTime(made)
    launches = {launch.id: launch for launch in made.launches}
    remaining.launch_ended(launches["one@cpu:0/0"], 1.0, "crashed")
    assert remaining.seconds(1.0) == pytest.approx(1 + 2 * 2 + 3 * REPEAT_PART)


def test_devices_that_work_at_once_count_once() -> None:
    cases = [
        case("row", device=device, launches=1, expected_seconds=seconds, reference_seconds=1.0)
        for device, seconds in (("cpu:0", 2.0), ("cpu:1", 5.0))
    ]
    groups = [tuple(f"{item.id}/{number}" for item in cases) for number in (0, 1)]
    made = replace(plan(*cases, groups=groups), expected_seconds=6.0)
    assert RemainingTime(made).seconds(0.0) == pytest.approx(1 + 5)


def test_resumed_run_leaves_out_what_was_made_and_a_session_what_comes_later() -> None:
    made = two_cases()
    assert RemainingTime(made, num_done=2).seconds(0.0) == pytest.approx(4 * 2)
    in_two = two_cases(launches=4, sessions=2)
    whole, first = (RemainingTime(in_two, 0, session).seconds(0.0) for session in (0, 1))
    assert 0 < first < whole


def test_plan_of_less_time_than_its_launches_take_keeps_to_its_own() -> None:
    made = replace(two_cases(), expected_seconds=5.0)
    remaining = RemainingTime(made)
    elapsed = told(made, remaining, "one@cpu:0/0", "other@cpu:0/0", factor=2.0)
    assert remaining.seconds(elapsed) == pytest.approx(1.0)
    assert remaining.seconds(6.0) == 0.0
