"""Slopes: equal to scipy.stats.theilslopes, told from too little by None."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.statistics.drift import MOST_POINTS, theil_sen

UNKNOWN = (None, -math.inf, math.inf)
PLACES = st.integers(0, 40).map(float)  # of few values, so that some are tied
POINTS = st.lists(st.tuples(PLACES, PLACES), min_size=9, max_size=60).filter(
    lambda points: all(len(set(values)) > 4 for values in zip(*points, strict=True))
)


@given(points=POINTS, confidence=st.sampled_from([0.6, 0.9, 0.95]))
def test_the_slope_and_its_interval_are_those_of_scipy(
    points: list[tuple[float, float]], confidence: float
) -> None:
    times, values = np.array(points).T
    expected = stats.theilslopes(values, times, confidence)
    slope, low, high = theil_sen(times, values, confidence)
    assert slope == expected.slope
    if math.isfinite(low):
        assert (low, high) == (expected.low_slope, expected.high_slope)
    else:  # scipy gives the outermost slopes, with less confidence than was asked for
        assert (low, high) == UNKNOWN[1:]


def test_a_usual_series_has_a_finite_interval_as_scipy_gives_it() -> None:
    times = np.arange(60.0)
    values = 1e-4 * times + np.random.default_rng(5).normal(scale=0.003, size=60)
    expected = stats.theilslopes(values, times, 0.99)
    found = theil_sen(times, values, 0.99)
    assert found == (expected.slope, expected.low_slope, expected.high_slope)


def test_five_points_cannot_give_ninety_nine_percent() -> None:
    times, values = np.arange(5.0), np.array([0.0, 1.0, 2.0, 3.5, 4.0])
    assert theil_sen(times, values, 0.99) == (1.0, -math.inf, math.inf)
    assert math.isfinite(theil_sen(times, values, 0.9)[1])


def test_fewer_than_five_points_have_no_slope() -> None:
    assert theil_sen(np.arange(4.0), np.arange(4.0), 0.95) == UNKNOWN
    assert theil_sen(np.zeros(0), np.zeros(0), 0.95) == UNKNOWN


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_point_that_is_no_number_leaves_no_slope(bad: float) -> None:
    good, spoilt = np.arange(9.0), np.array([bad, *range(8)])
    assert theil_sen(good, spoilt, 0.95) == UNKNOWN
    assert theil_sen(spoilt, good, 0.95) == UNKNOWN


def test_copied_samples_and_a_standing_clock_leave_no_slope() -> None:
    assert theil_sen(np.arange(9.0), np.ones(9), 0.95) == UNKNOWN
    assert theil_sen(np.ones(9), np.arange(9.0), 0.95) == UNKNOWN


def test_a_few_stalls_do_not_bend_it() -> None:
    values = 0.001 * np.arange(100.0) + np.random.default_rng(6).normal(scale=1e-4, size=100)
    values[90:95] += 3.0
    slope, low, high = theil_sen(np.arange(100.0), values, 0.99)
    assert slope == pytest.approx(0.001, rel=0.02)
    assert low < 0.001 < high


def test_many_points_are_joined_and_keep_their_slope() -> None:
    count = 3 * MOST_POINTS + 7
    times = np.arange(float(count))
    values = 1e-5 * times + np.random.default_rng(7).normal(scale=0.01, size=count)
    slope, low, high = theil_sen(times, values, 0.9999)
    assert slope == pytest.approx(1e-5, rel=0.1)
    assert low < 1e-5 < high


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 2,000 series without drift, 95 % have an interval around zero."""
    noise = np.random.default_rng(8).normal(size=(2000, 40))
    ends = [theil_sen(np.arange(40.0), row, 0.95)[1:] for row in noise]
    covered = sum(low <= 0.0 <= high for low, high in ends)
    assert stats.binomtest(covered, 2000, 0.95).pvalue > 1e-6
