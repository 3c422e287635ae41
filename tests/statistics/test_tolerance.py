"""Tolerance factors: published ones, scipy.stats, and what they promise in a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.statistics.tolerance import tolerance_factor


@pytest.mark.parametrize(
    ("p", "gamma", "count", "factor"),
    [
        (0.95, 0.95, 5, 4.203),
        (0.95, 0.95, 10, 2.911),
        (0.95, 0.95, 16, 2.524),
        (0.95, 0.95, 20, 2.396),
        (0.95, 0.95, 30, 2.220),
        (0.95, 0.95, 50, 2.065),
        (0.95, 0.95, 100, 1.927),
        (0.99, 0.95, 10, 3.981),
        (0.99, 0.95, 16, 3.464),
        (0.99, 0.95, 30, 3.064),
        (0.99, 0.95, 100, 2.684),
    ],
)
def test_the_usual_factors(p: float, gamma: float, count: int, factor: float) -> None:
    assert tolerance_factor(count, p, gamma) == pytest.approx(factor, abs=5e-4)


@given(count=st.integers(2, 2000), p=st.floats(0.51, 0.999), gamma=st.floats(0.05, 0.999))
def test_the_factor_is_a_quantile_of_the_noncentral_t(count: int, p: float, gamma: float) -> None:
    root = math.sqrt(count)
    expected = stats.nct.ppf(gamma, count - 1, stats.norm.ppf(p) * root) / root
    assert tolerance_factor(count, p, gamma) == pytest.approx(expected, rel=1e-6)


def test_many_devices_leave_only_their_own_spread() -> None:
    assert tolerance_factor(10**6, 0.95, 0.95) == pytest.approx(stats.norm.ppf(0.95), abs=0.005)


@pytest.mark.parametrize(
    ("count", "p", "gamma"),
    [
        (1, 0.95, 0.95),
        (0, 0.95, 0.95),
        (16, 1.0, 0.95),
        (16, 0.95, 0.0),
        (16, math.nan, 0.95),
        (16, 0.95, math.nan),
    ],
)
def test_what_gives_no_limit_is_no_number(count: int, p: float, gamma: float) -> None:
    assert math.isnan(tolerance_factor(count, p, gamma))


def test_the_limit_covers_as_many_devices_as_often_as_it_says() -> None:
    """Of 4,000 fleets of 16 devices, 95 % have a limit above the 95 % quantile."""
    fleets = np.random.default_rng(3).normal(size=(4000, 16))
    limits = fleets.mean(axis=1) + tolerance_factor(16, 0.95, 0.95) * fleets.std(axis=1, ddof=1)
    covered = int(np.count_nonzero(limits >= stats.norm.ppf(0.95)))
    assert stats.binomtest(covered, 4000, 0.95).pvalue > 1e-6
