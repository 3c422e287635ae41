"""Heating: a slope over all cases of a device, whose interval knows what launches share."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from appliance.statistics.heating import Series, Slope, slope

Values = npt.NDArray[np.float64]
LIMIT, RISK = 0.02, 0.01


def one(values: Values, times: Values | None = None) -> Series:
    return Series(times_s=np.arange(float(len(values))) if times is None else times, values=values)


def seen(*cases: Series) -> Slope:
    result = slope(cases)
    assert result is not None
    return result


def test_of_one_case_it_is_that_of_theil_and_sen() -> None:
    random = np.random.default_rng(1)
    values = 0.01 * np.arange(40) + random.normal(0, 0.05, 40)
    times = np.cumsum(random.uniform(1, 9, 40))
    actual = seen(one(values, times))
    expected = stats.theilslopes(values, times)
    assert actual.value == pytest.approx(expected.slope, rel=1e-12)
    assert actual.span_s == times[-1] - times[0]


def test_its_interval_of_independent_launches_is_about_that_of_sen() -> None:
    """Student's t and what chance takes for dependence make it somewhat wider, never narrower."""
    random = np.random.default_rng(2)
    ratios = []
    for _ in range(50):
        values = random.normal(0, 1, 100)
        expected = stats.theilslopes(values, alpha=0.98)
        actual = seen(one(values))
        ratios.append((actual.end(RISK) - actual.begin(RISK)) / (expected[3] - expected[2]))
    assert min(ratios) > 0.99
    assert np.median(ratios) < 1.3


def test_cases_of_other_times_and_one_that_was_decided_early_bend_nothing() -> None:
    times = np.arange(40.0)
    slow = one(3.0 + 0.001 * times, times)
    early = one(-5.0 + 0.001 * times[:5], times[:5] + 0.5)
    noisy = one(0.001 * times + np.tile([1e-9, -1e-9], 20), times)
    assert seen(slow, early, noisy).value == pytest.approx(0.001, rel=1e-6)


@pytest.mark.parametrize(
    "cases",
    [
        (one(np.arange(7.0)),),
        (one(np.array([1.0, math.nan] * 5)),),
        (one(np.arange(9.0), np.zeros(9)),),
        (one(np.zeros(9)),),
        tuple(one(np.array([float(number)])) for number in range(20)),
        (),
    ],
)
def test_what_shows_no_slope_is_none(cases: tuple[Series, ...]) -> None:
    assert slope(cases) is None


def test_so_few_that_share_so_much_have_no_interval() -> None:
    actual = seen(one(np.sin(np.arange(10) / 3.0)))
    assert (actual.begin(RISK), actual.end(RISK)) == (-math.inf, math.inf)


def shared(random: np.random.Generator, count: int, correlation: float) -> Values:
    """A process with a memory, which all launches of a device meet."""
    steps = random.normal(0, 0.007 * math.sqrt(1 - correlation**2), count)
    values = np.empty(count)
    values[0] = random.normal(0, 0.007)
    for number in range(1, count):
        values[number] = correlation * values[number - 1] + steps[number]
    return values


def ruled(change: float, correlation: float, *, repeats: int = 150) -> tuple[float, float]:
    """Shares of passes and fails of a device of 26 cases and 5 launches that heats by `change`."""
    random = np.random.default_rng(3)
    passes = fails = 0
    for _ in range(repeats):
        order = np.concatenate([random.permutation(26) for _ in range(5)])
        times = 10.0 * np.arange(len(order))
        values = change * times / times[-1] + shared(random, len(order), correlation)
        actual = seen(
            *(one(values[order == case] + case, times[order == case]) for case in range(26))
        )
        passes += actual.end(RISK) * actual.span_s <= LIMIT
        fails += actual.begin(RISK) * actual.span_s > LIMIT
    return passes / repeats, fails / repeats


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.04), (0.6, 0.04), (0.9, 0.08)])
def test_at_the_limit_a_device_seldom_passes_or_fails(correlation: float, most: float) -> None:
    """As if launches were independent it would be 7 and 26 % at these correlations."""
    passes, fails = ruled(LIMIT, correlation)
    assert passes <= most
    assert fails <= most


def test_healthy_devices_pass_and_those_that_heat_by_twice_the_limit_fail() -> None:
    assert ruled(0.0, 0.6)[0] > 0.85
    assert ruled(2 * LIMIT, 0.6)[1] > 0.85
    assert ruled(2 * LIMIT, 0.6)[0] == 0.0
