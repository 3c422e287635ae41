"""Tolerance factors: published ones, scipy.stats, and what they promise in a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.scheduling import launch_kinds
from appliance.statistics.tolerance import equivalence, paired_ratio, tolerance_factor


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


RULE = launch_kinds.rule()
NODES = 2000


def rates(difference: float, spread: float) -> dict[str, float]:
    """How often the shipped rule rules what, of pairs of launches that differ and spread so."""
    rng = np.random.default_rng(20)
    firsts = np.exp(rng.normal(0.0, spread, (NODES, RULE.pairs)))
    seconds = np.exp(rng.normal(math.log1p(difference), spread, (NODES, RULE.pairs)))
    counts = dict.fromkeys(("equivalent", "different", "undecided"), 0)
    for first, second in zip(firsts, seconds, strict=True):
        ratio = paired_ratio(list(zip(first.tolist(), second.tolist(), strict=True)))
        assert ratio is not None
        ruled = equivalence(
            ratio,
            RULE.margin,
            equivalence_risk=RULE.equivalence_risk,
            difference_risk=RULE.difference_risk,
        )
        counts[ruled] += 1
    return {name: count / NODES for name, count in counts.items()}


def test_pairs_without_a_difference_are_mostly_shown_to_be_equivalent() -> None:
    ruled = rates(0.0, 0.005)
    assert 0.92 < ruled["equivalent"] < 0.97
    assert ruled["different"] == 0.0


def test_half_a_per_cent_is_within_the_margin() -> None:
    assert rates(0.005, 0.003)["equivalent"] > 0.87
    assert rates(0.005, 0.005)["different"] < 0.002


def test_two_per_cent_are_shown_to_differ_and_never_to_be_equivalent() -> None:
    ruled = rates(0.02, 0.005)
    assert ruled["different"] > 0.75
    assert ruled["equivalent"] < 0.001


@pytest.mark.parametrize("difference", [RULE.margin, 1.0 / (1.0 + RULE.margin) - 1.0])
def test_at_the_margin_each_is_shown_with_its_risk_at_most(difference: float) -> None:
    ruled = rates(difference, 0.004)
    noise = 3 * math.sqrt(0.05 * 0.95 / NODES)
    assert ruled["equivalent"] < RULE.equivalence_risk + noise
    assert ruled["different"] < RULE.difference_risk + noise


@pytest.mark.parametrize("pairs", [[(1.0, 1.0)], [(1.0, 1.0), (0.0, 1.0)], [(1.0, math.nan)] * 5])
def test_too_few_pairs_or_times_that_are_none_have_no_ratio(
    pairs: list[tuple[float, float]],
) -> None:
    assert paired_ratio(pairs) is None


def test_interval_is_that_of_students_t() -> None:
    pairs = [(1.0, 1.01), (1.0, 1.03), (2.0, 2.02), (1.0, 0.99)]
    ratio = paired_ratio(pairs)
    assert ratio is not None
    logs = [math.log(second / first) for first, second in pairs]
    expected = stats.t.interval(0.9, len(logs) - 1, np.mean(logs), stats.sem(logs))
    assert ratio.interval(0.05) == pytest.approx(tuple(map(math.exp, expected)))
