"""What a baseline carries, before anything runs."""

import math
from dataclasses import replace

import pytest
from support.baselines import a_level

from appliance.judging.criteria_check import chance_sentences
from appliance.judging.pass_chance import CHANCE, carried_margin, chance, runs_needed, schedule_of
from appliance.records.baseline import Level, Tolerance

ANALYSES = (5, 10, 20, 40)
ONE, THREE = schedule_of(ANALYSES, 40, 1, 0.01), schedule_of(ANALYSES, 50, 3, 0.01)


def of_runs(runs: int, *, run_sd: float = 0.0067) -> Level:
    """Launches of 1 % in runs of five, whose levels vary by 0.5 %."""
    return a_level(
        math.log(0.01),
        0.011,
        within_sd=0.01,
        within_freedom=4 * runs,
        run_sd=run_sd,
        run_launches=5,
        freedom=runs - 1,
        error_sd=run_sd / math.sqrt(runs),
        error_freedom=runs - 1,
    )


def test_a_schedule_has_the_launches_of_each_session() -> None:
    assert THREE.counts == ((5, 5, 5), (5, 5, 10), (5, 5, 20), (5, 5, 40))
    assert ONE.counts == ((5,), (10,), (20,), (40,))
    assert len(THREE.z) == len(ONE.z) == 4


def test_sessions_and_runs_carry_smaller_margins() -> None:
    margins = [carried_margin(of_runs(runs), THREE) for runs in (3, 5, 12, 40)]
    assert margins == sorted(margins, reverse=True)
    assert margins[2] == pytest.approx(0.025, abs=0.002)
    assert carried_margin(of_runs(12), ONE) > 1.3 * margins[2]
    assert carried_margin(replace(of_runs(1), freedom=0), THREE) == math.inf


def test_the_carried_margin_is_where_the_chance_is_99_percent() -> None:
    level = of_runs(12)
    margin = math.log1p(carried_margin(level, THREE))
    assert chance(level, margin, THREE) >= CHANCE
    assert chance(level, 0.98 * margin, THREE) < CHANCE
    assert chance(level, 0.0, THREE) < 0.05


def test_missing_runs_are_those_that_carry_it() -> None:
    few = of_runs(5)
    margin = math.log1p(0.03)
    runs = runs_needed(few, 5, margin, THREE)
    assert runs is not None
    assert chance(of_runs(runs), margin, THREE) >= CHANCE
    assert chance(of_runs(runs - 1), margin, THREE) < CHANCE
    assert runs_needed(few, 5, math.log1p(0.005), THREE) is None


def test_a_population_is_held_to_the_spread_of_its_devices() -> None:
    level = of_runs(16)
    tolerance = Tolerance(p=0.95, gamma=0.95, k=2.52, log_limit=level.log_seconds + 0.0252)
    devices = replace(level, device_sd=0.01, tolerance=tolerance)
    assert chance(devices, math.log1p(0.04), THREE) < chance(level, math.log1p(0.04), THREE)
    assert carried_margin(devices, THREE) > carried_margin(level, THREE)
    quiet = replace(devices, run_sd=1e-5, error_sd=1e-5, within_sd=1e-5, device_sd=1e-4)
    assert carried_margin(quiet, THREE) == pytest.approx(math.expm1(0.0252))


def test_the_chances_of_a_plan_are_said_in_a_sentence() -> None:
    assert chance_sentences({}) == ()
    (said,) = chance_sentences({"a": 0.999, "b": 0.994})
    assert said == (
        "a healthy device passes its limit around the baseline with 99.4 % at least in b; "
        "all 2 with 99.3 % at least"
    )
