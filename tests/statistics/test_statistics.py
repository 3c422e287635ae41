"""Samples to estimates: compared with scipy.stats, and never a number from a fault."""

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.builders import STEP_NS, block

from appliance.records.journal import Block
from appliance.records.workload import Work
from appliance.statistics.estimates import (
    block_figures,
    interval,
    launch_statistic,
    planned_analyses,
    timing_estimates,
)

LAUNCHES = [-4.61, -4.60, -4.603, -4.615, -4.598]
FINITE = st.floats(min_value=-50, max_value=50, allow_nan=False)


def log_seconds(one: Block) -> float:
    return block_figures([one])[0].log_seconds


def test_a_block_is_the_median_of_the_logarithms_in_seconds() -> None:
    assert log_seconds(block("x", 0, (10**6, 10**9, 10**7))) == pytest.approx(math.log(0.01))
    assert log_seconds(block("x", 0, (10**6, 10**8))) == pytest.approx(math.log(0.01))


def test_device_time_goes_before_wall_time() -> None:
    both = replace(block("x", 0, (10**8,) * 3), event_ns=(10**7,) * 3)
    assert log_seconds(both) == pytest.approx(math.log(0.01))


@pytest.mark.parametrize(
    ("wall_ns", "event_ns"),
    [((), None), ((1, 0), None), ((1, -1), None), ((5, 5), (5, 0)), ((5, 5), (5,)), ((5, 5), ())],
)
def test_a_block_with_an_impossible_time_is_nan(
    wall_ns: tuple[int, ...], event_ns: tuple[int, ...] | None
) -> None:
    assert math.isnan(log_seconds(replace(block("x", 0, wall_ns), event_ns=event_ns)))


def test_a_launch_is_the_mean_of_its_blocks_and_unknown_without_one() -> None:
    blocks = [block("x", 0, (10**7,)), block("x", 1, (10**9,))]
    assert launch_statistic(block_figures(blocks)) == pytest.approx(math.log(0.1))
    assert launch_statistic([]) is None
    faulty = launch_statistic(block_figures([*blocks, block("x", 2, ())]))
    assert faulty is not None
    assert math.isnan(faulty)


def test_the_interval_is_that_of_student() -> None:
    low, high = interval(LAUNCHES) or (0.0, 0.0)
    mean, error = statistics.mean(LAUNCHES), statistics.stdev(LAUNCHES) / math.sqrt(5)
    expected = stats.t.interval(0.95, 4, loc=mean, scale=error)
    assert (low, high) == pytest.approx(expected, rel=1e-9)


@given(values=st.lists(FINITE, max_size=4))
def test_too_few_launches_have_no_interval(values: list[float]) -> None:
    assert interval(values) is None


@given(
    values=st.lists(FINITE, min_size=5, max_size=9),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    place=st.integers(0, 5),
)
def test_a_launch_that_is_no_number_leaves_no_interval(
    values: list[float], bad: float, place: int
) -> None:
    values.insert(place, bad)
    assert interval(values) is None


def test_rates_follow_from_the_step_time_with_their_bounds_turned_round() -> None:
    work = Work(units=8.0, unit="samples", flops=2e9, bytes=None)
    result = {item.name: item for item in timing_estimates(LAUNCHES, [0.5, 0.1, 0.2], work)}
    assert list(result) == [
        "step_seconds",
        "units_per_second",
        "flops_per_second",
        "first_step_seconds",
    ]
    step, rate = result["step_seconds"], result["units_per_second"]
    assert step.value == pytest.approx(math.exp(statistics.mean(LAUNCHES)))
    assert rate.value == pytest.approx(8.0 / step.value)
    assert step.high is not None
    assert rate.low == pytest.approx(8.0 / step.high)
    assert (rate.unit, rate.count, rate.confidence) == ("samples/s", 5, 0.95)
    first = result["first_step_seconds"]
    assert (first.value, first.low, first.high) == (0.2, 0.1, 0.5)


def test_four_launches_give_a_value_without_bounds() -> None:
    step = timing_estimates(LAUNCHES[:4], [], Work())[0]
    assert (step.low, step.high, step.confidence, step.count) == (None, None, None, 4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_launch_that_is_no_number_gives_no_estimate(bad: float) -> None:
    assert timing_estimates([*LAUNCHES, bad], [], Work()) == ()


@pytest.mark.parametrize("amount", [0.0, -1.0, math.nan, math.inf])
def test_work_that_is_not_positive_gives_no_rate(amount: float) -> None:
    names = [item.name for item in timing_estimates(LAUNCHES, [], Work(units=amount))]
    assert names == ["step_seconds"]


def test_interim_analyses_end_with_all_launches() -> None:
    assert planned_analyses((5, 10, 20), 20) == (5, 10, 20)
    assert planned_analyses((5, 10, 20), 7) == (5, 7)
    assert planned_analyses((5,), 3) == (3,)


def test_a_stalled_step_does_not_move_the_launch() -> None:
    calm = [block("x", 0, (STEP_NS,) * 9)]
    stalled = [block("x", 0, (*(STEP_NS,) * 8, 100 * STEP_NS))]
    assert launch_statistic(block_figures(stalled)) == launch_statistic(block_figures(calm))
