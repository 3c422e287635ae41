"""Heating: one ruling over all cases of a device, and no case decided before the stage is over."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import PROTOCOL, a_case, a_plan, with_bounds
from support.bundles import NOTHING_KNOWN
from support.timed_evidence import SECONDS, criteria, perf, ruling_on, rulings, steady, timed

from appliance.judging.verdict import interim_analysis
from appliance.planning.sustained import launch_seconds
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import LaunchEnded, Line
from appliance.records.plan import Launch, Plan

ANALYSES = (5, 10, 20, 40)
SHORT = replace(PROTOCOL, interim_analyses=ANALYSES, blocks=1, block_seconds=0.97)
"""A launch works for a second at least."""
PLAN = a_plan(a_case(launches=40), protocol=SHORT)
SPEED = perf(at_most=1.03 * SECONDS, margin=0.03)
Draw = Callable[[Launch], Sequence[float]]


def drift(seconds: float | None = None, metric: str = "drift_over_run") -> Criterion:
    return Criterion(
        id="drift",
        kind="drift",
        title="Drift",
        metric=metric,
        at_most=0.02,
        sustained_seconds=seconds,
    )


def heating(change: float, mean: float = 0.0, sd: float = 0.003) -> Draw:
    """Slower by `change` from the first of 40 launches to the last, around a mean level."""

    def draw(launch: Launch) -> Sequence[float]:
        level = (1 + mean) * (1 + change * ((launch.number - 1) / 39 - 0.5))
        return [level * time for time in steady(sd=sd)(launch)]

    return draw


def until(plan: Plan, lines: Sequence[Line], number: int) -> list[Line]:
    """The lines until each case has so many launches."""
    ends = {f"{case.id}/{number}" for case in plan.cases}
    last = max(
        line.seq
        for line in lines
        if isinstance(line.event, LaunchEnded) and line.event.launch in ends
    )
    return [line for line in lines if line.seq <= last]


def decided_after(plan: Plan, draw: Draw, requested: Criteria) -> int:
    """The first analysis that decides the first case."""
    planned, lines = with_bounds(plan, requested), timed(plan, draw)
    for number in ANALYSES:
        is_decided, _ = interim_analysis(
            plan=planned,
            criteria=requested,
            lines=until(plan, lines, number),
            case=plan.cases[0].id,
            **NOTHING_KNOWN,
        )
        if is_decided:
            return number
    return 0


def test_heating_around_the_limit_was_decided_early_and_is_caught_now() -> None:
    """Of 40 launches the mean is the limit, the first ten are faster by 1 to 2 %."""
    draw = heating(0.04, mean=0.03)
    before, now = criteria(SPEED), criteria(SPEED, drift(40 * launch_seconds(SHORT)))
    assert decided_after(PLAN, draw, before) in (5, 10, 20)
    assert decided_after(PLAN, draw, now) in (0, 40)
    actual = ruling_on(rulings(PLAN, timed(PLAN, draw), now), "drift")
    assert (actual.ruling, actual.reason, actual.case) == ("fail", "over_limit", "")
    assert "cpu:0 grew slower by 4" in actual.explanation
    assert "over the run" in actual.explanation


@pytest.mark.parametrize(
    ("rounds", "first"), [(None, 5), (5.0, 5), (5.1, 10), (11.0, 20), (40.0, 40)]
)
def test_a_healthy_case_is_decided_at_the_first_analysis_after_the_stage(
    rounds: float | None, first: int
) -> None:
    stage = None if rounds is None else rounds * launch_seconds(SHORT)
    rule = drift(stage) if stage else drift(None, "drift_per_30_minutes")
    assert decided_after(PLAN, heating(0.0), criteria(SPEED, rule)) == first


def test_a_fail_is_final_before_the_stage_is_over() -> None:
    requested = criteria(SPEED, drift(40 * launch_seconds(SHORT)))
    assert decided_after(PLAN, heating(0.0, mean=0.2), requested) == 5


def test_all_cases_of_a_device_hold_its_stage_together() -> None:
    plan = a_plan(
        *(a_case(name, launches=40) for name in ("gemm", "bert", "llama", "conv")), protocol=SHORT
    )
    requested = criteria(SPEED, drift(20 * launch_seconds(SHORT)))
    assert decided_after(plan, heating(0.0), requested) == 5


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (0.0, ("pass", "")),
        (0.04, ("fail", "over_limit")),
        (-0.04, ("pass", "")),
        (0.02, ("inconclusive", "noise")),
    ],
)
def test_the_drift_of_a_device_is_over_all_its_cases(
    change: float, answer: tuple[str, str]
) -> None:
    """Five launches of each are too few for one case alone."""
    names = ("gemm", "bert", "llama", "conv", "copy", "scan")
    plan = a_plan(*(a_case(name, launches=5) for name in names), protocol=SHORT)

    def draw(launch: Launch) -> Sequence[float]:
        level = 1 + change * (launch.number - 1) / 4
        own = steady(sd=0.003, seed=names.index(launch.case.partition("@")[0]))
        return [level * time for time in own(launch)]

    actual = ruling_on(rulings(plan, timed(plan, draw), criteria(drift(5))), "drift")
    assert (actual.ruling, actual.reason, actual.case) == (*answer, "")
    assert actual.statistic is not None
    assert actual.statistic.count == 30


def test_launches_that_resemble_each_other_too_much_leave_the_ruling_open() -> None:
    """They go up and down together, twice in the run, which chance may have made a slope of."""
    plan = a_plan(a_case(launches=40), protocol=SHORT)

    def draw(launch: Launch) -> Sequence[float]:
        level = 1 + 0.02 * math.sin(launch.number / 40 * 4 * math.pi)
        return [level * time for time in steady(sd=0.001)(launch)]

    actual = ruling_on(rulings(plan, timed(plan, draw), criteria(drift(5))), "drift")
    assert (actual.ruling, actual.reason) == ("inconclusive", "noise")
    assert "the 40 launches on cpu:0 resemble those before them so much" in actual.explanation
    assert "and a slope needs 12" in actual.explanation


def test_a_stage_that_was_not_held_leaves_the_ruling_open() -> None:
    plan = a_plan(a_case(launches=10), protocol=SHORT)
    actual = ruling_on(rulings(plan, timed(plan, heating(0.0)), criteria(drift(11))), "drift")
    assert (actual.ruling, actual.reason) == ("inconclusive", "coverage")
    assert "under load for 10 s, which is less than 11 s" in actual.explanation


@pytest.mark.parametrize(
    ("part", "minutes", "answer"),
    [
        (0.0, 2, ("pass", "")),
        (0.05, 2, ("fail", "over_limit")),
        (0.02, 2, ("inconclusive", "noise")),
        (0.0, 0.1, ("inconclusive", "coverage")),
    ],
)
def test_a_rate_is_the_slope_over_half_an_hour(
    part: float, minutes: float, answer: tuple[str, str]
) -> None:
    """Slower by this part in half an hour, where a launch is made every two minutes."""

    def draw(launch: Launch) -> Sequence[float]:
        return [time * (1 + part * launch.number / 15) for time in steady(sd=0.001)(launch)]

    requested = criteria(drift(None, "drift_per_30_minutes"))
    plan = a_plan(a_case(launches=20), protocol=SHORT)
    lines = timed(plan, draw, every=timedelta(minutes=minutes))
    actual = ruling_on(rulings(plan, lines, requested), "drift")
    assert (actual.ruling, actual.reason) == answer


def test_launches_of_other_sessions_are_not_compared() -> None:
    """The second session is 4 % slower as a whole, and no device grew slower in either."""
    plan = a_plan(a_case(launches=45), protocol=SHORT, sessions=2)

    def draw(launch: Launch) -> Sequence[float]:
        return [(1 + 0.04 * (launch.session == 2)) * one for one in steady(sd=0.002)(launch)]

    actual = ruling_on(rulings(plan, timed(plan, draw), criteria(drift(5))), "drift")
    assert actual.ruling == "pass"
