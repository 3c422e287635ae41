"""Interim analyses and limits: published bounds, scipy.stats beside each, nothing from noise."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.errors import UsageError
from appliance.statistics import group_sequential

ANALYSES = (5, 10, 20, 40)
FINITE = st.floats(min_value=-20, max_value=20)
SPREAD = st.floats(min_value=1e-6, max_value=1.0)
LIMIT = math.log(1.03)


def limited(mean: Any, sd: Any, count: int, **changed: Any) -> group_sequential.Tested:
    chosen = {"log_limit": LIMIT, "floor": LIMIT / 3, "z_pass": 2.9, "z_fail": 3.9} | changed
    return group_sequential.test_limit(mean, sd, count, **chosen)


def test_spending_ends_with_the_whole_risk() -> None:
    assert group_sequential.spent(0.01, 1.0) == pytest.approx(0.01, rel=1e-15)
    assert group_sequential.spent(0.01, 0.0) == 0.0
    assert group_sequential.spent(0.01, 0.125) == pytest.approx(0.0019456729, abs=1e-10)


def test_five_equal_interim_analyses_have_the_published_bounds() -> None:
    published = (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)  # Lan-DeMets-Pocock, two-sided 0.05
    result = group_sequential.group_bounds(0.025, (1, 2, 3, 4, 5))
    assert result == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize(
    ("alpha", "bounds"),
    [
        (0.05, (2.3367, 2.2908, 2.0991, 1.9200)),
        (0.01, (2.8868, 2.8772, 2.7251, 2.5903)),
        (0.001, (3.5473, 3.5606, 3.4365, 3.3311)),
        (0.00025, (3.8973, 3.9172, 3.8034, 3.7084)),
        (0.0002, (3.9510, 3.9717, 3.8593, 3.7657)),
    ],
)
def test_the_bounds_of_the_usual_interim_analyses(alpha: float, bounds: tuple[float, ...]) -> None:
    assert group_sequential.group_bounds(alpha, ANALYSES) == pytest.approx(bounds, abs=6e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("launch_counts", [(5, 10, 20), (5, 8, 40), (3, 4, 5)])
def test_each_interim_analysis_spends_its_part_by_another_way(
    alpha: float, launch_counts: tuple[int, ...]
) -> None:
    """The chance to cross nowhere is that of a multivariate normal below all of the bounds."""
    bounds, counts = (
        group_sequential.group_bounds(alpha, launch_counts),
        np.array(launch_counts),
    )
    correlation = np.sqrt(np.minimum.outer(counts, counts) / np.maximum.outer(counts, counts))
    for number, launches in enumerate(launch_counts, 1):
        below = stats.multivariate_normal(np.zeros(number), correlation[:number, :number])
        crossed = 1.0 - float(below.cdf(np.array(bounds[:number])))
        assert crossed == pytest.approx(
            group_sequential.spent(alpha, launches / launch_counts[-1]), abs=2e-5
        )


@pytest.mark.parametrize("alpha", [0.4, 0.05, 1e-4, 1e-9])
@pytest.mark.parametrize("launches", [1, 5, 1000])
def test_one_interim_analysis_has_the_plain_normal_quantile(alpha: float, launches: int) -> None:
    (bound,) = group_sequential.group_bounds(alpha, [launches])
    assert bound == pytest.approx(stats.norm.isf(alpha), abs=1e-9)


def test_a_finer_grid_gives_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = group_sequential.group_bounds(0.0002, range(1, 41))
    monkeypatch.setattr(group_sequential, "_PANEL", 0.5)
    times = group_sequential.information(tuple(range(1, 41)), ())
    assert group_sequential._group_bounds.__wrapped__(0.0002, times) == pytest.approx(
        coarse, abs=1e-9
    )


@pytest.mark.parametrize("level_sd", [0.0, 0.3])
def test_bounds_of_sessions_keep_the_risk_with_levels_of_runs_and_without(level_sd: float) -> None:
    """Means over three sessions, of which the last grows; levels only make a pass rarer."""
    bounds = group_sequential.group_bounds(0.05, (15, 20, 30, 50), (5, 5))
    random, nodes = np.random.default_rng(5), 40_000
    first = random.normal(0.0, math.sqrt(1 / 5), (2, nodes)).sum(axis=0)
    last = random.normal(size=(nodes, 40)).cumsum(axis=1)
    levels = level_sd * random.normal(size=(3, nodes)).sum(axis=0)
    reached = np.zeros(nodes, dtype=np.bool_)
    for bound, count in zip(bounds, (5, 10, 20, 40), strict=True):
        sd = math.sqrt(2 / 5 + 1 / count + 3 * level_sd**2)
        reached |= (first + last[:, count - 1] / count + levels) / sd > bound
    low, high = (0.047, 0.053) if level_sd == 0.0 else (0.0, 0.05)
    assert low < reached.mean() < high


def test_bounds_of_sessions_fall_to_little_above_that_of_one_analysis() -> None:
    bounds = group_sequential.group_bounds(0.01, (15, 20, 30, 50), (5, 5))
    assert list(bounds) == sorted(bounds, reverse=True)
    assert group_sequential.group_bounds(0.01, (50,), (5, 5)) == pytest.approx((2.3263,), abs=1e-4)
    assert 2.3263 < bounds[-1] < 2.45


def test_many_sessions_leave_their_analyses_apart() -> None:
    counts = tuple(500 + count for count in ANALYSES)
    bounds = group_sequential.group_bounds(0.01, counts, (5,) * 100)
    assert all(2.3 < bound < 2.4 for bound in bounds)


@given(alpha=st.floats(1e-8, 0.2), gaps=st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_looking_again_never_makes_the_last_bound_easier(alpha: float, gaps: list[int]) -> None:
    launch_counts = tuple(int(launches) for launches in np.cumsum(gaps))
    bounds = group_sequential.group_bounds(alpha, launch_counts)
    assert all(math.isfinite(bound) for bound in bounds)
    assert bounds[-1] > stats.norm.isf(alpha)


@pytest.mark.parametrize("launch_counts", [(), (0, 5), (5, 5), (10, 5), (-1,)])
def test_interim_analyses_that_do_not_grow_are_refused(launch_counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="must be launch counts that grow"):
        group_sequential.group_bounds(0.01, launch_counts)


def test_interim_analyses_too_close_to_tell_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="too close"):
        group_sequential.group_bounds(0.01, (999, 1000))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_a_risk_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match="cannot be spent"):
        group_sequential.group_bounds(alpha, ANALYSES)


@given(z=st.floats(0.0, 6.0), count=st.integers(2, 500))
def test_the_critical_t_has_the_tail_of_the_normal_bound(z: float, count: int) -> None:
    result = float(group_sequential.critical(z, count))
    assert result == pytest.approx(stats.t.isf(stats.norm.sf(z), count - 1), rel=1e-6, abs=1e-9)


def test_one_launch_has_no_critical_t() -> None:
    assert math.isnan(float(group_sequential.critical(2.0, 1)))


@given(mean=FINITE, sd=SPREAD, count=st.integers(5, 40))
def test_both_tests_are_students(mean: float, sd: float, count: int) -> None:
    result = limited(mean, sd, count, floor=0.0)
    t = (LIMIT - mean) / (sd / math.sqrt(count))
    assert float(result.t_pass) == pytest.approx(t, rel=1e-9, abs=1e-9)
    assert float(result.t_fail) == -float(result.t_pass)
    assert bool(result.is_pass) == (stats.t.sf(t, count - 1) < stats.norm.sf(2.9))
    assert bool(result.is_fail) == (stats.t.cdf(t, count - 1) < stats.norm.sf(3.9))


@given(
    means=st.lists(FINITE, min_size=1, max_size=8),
    sd=SPREAD,
    count=st.integers(2, 40),
    floor=st.floats(0.0, 0.1),
)
def test_arrays_and_scalars_are_tested_alike(
    means: list[float], sd: float, count: int, floor: float
) -> None:
    together = limited(np.array(means), sd, count, floor=floor)
    for place, mean in enumerate(means):
        alone = limited(mean, sd, count, floor=floor)
        assert bool(alone.is_pass) == together.is_pass[place]
        assert bool(alone.is_fail) == together.is_fail[place]
        assert np.array_equal(alone.t_pass, together.t_pass[place], equal_nan=True)
        assert np.array_equal(alone.t_fail, together.t_fail[place], equal_nan=True)


@given(mean=FINITE, sd=SPREAD, count=st.integers(2, 40), floor=st.floats(0.0, 1.0))
def test_no_launches_both_pass_and_fail(mean: float, sd: float, count: int, floor: float) -> None:
    result = limited(mean, sd, count, floor=floor)
    assert not (result.is_pass and result.is_fail)


def test_the_floor_holds_back_a_pass_and_never_a_fail() -> None:
    below, above = LIMIT - 0.01, LIMIT + 0.01
    assert limited(below, 0.001, 5, floor=0.0).is_pass
    assert not limited(below, 0.001, 5).is_pass
    assert limited(above, 0.001, 5).is_fail
    assert float(limited(below, 0.001, 5).sd_used) == LIMIT / 3


def test_the_limit_itself_is_neither() -> None:
    result = limited(LIMIT, 0.01, 40)
    assert (bool(result.is_pass), bool(result.is_fail)) == (False, False)


@pytest.mark.parametrize("sd", [0.0, 1e-15, -0.01])
@pytest.mark.parametrize("mean", [-5.0, 5.0])
def test_equal_launches_earn_nothing(mean: float, sd: float) -> None:
    result = limited(mean, sd, 40)
    assert (bool(result.is_pass), bool(result.is_fail)) == (False, False)
    assert math.isnan(float(result.t_pass))


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("mean", [-5.0, 5.0])
def test_too_few_launches_earn_nothing(mean: float, count: int) -> None:
    result = limited(mean, 0.001, count)
    assert (bool(result.is_pass), bool(result.is_fail)) == (False, False)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["mean", "sd", "log_limit", "floor", "z_pass", "z_fail"])
@pytest.mark.parametrize("mean", [-5.0, 5.0])
def test_what_is_no_number_earns_nothing(mean: float, name: str, bad: float) -> None:
    result = limited(**({"mean": mean, "sd": 0.001, "count": 40} | {name: bad}))
    assert (bool(result.is_pass), bool(result.is_fail)) == (False, False)


def test_so_near_to_its_bound_nothing_is_ruled() -> None:
    bound = float(group_sequential.critical(2.9, 10))
    for distance, is_pass in [(1 - 1e-12, False), (1 + 1e-12, False), (1 + 1e-7, True)]:
        result = limited(LIMIT - distance * bound * 0.02 / math.sqrt(10), 0.02, 10)
        assert bool(result.is_pass) == is_pass
