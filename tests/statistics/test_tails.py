"""Counting what a median hides: against scipy.stats, MLPerf's own figures, and impossible times."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.statistics import tails

BAD_TIMES = [math.nan, math.inf, -math.inf, 0.0, -1.0]
COUNTS = st.integers(1, 3000).flatmap(
    lambda total: st.tuples(st.integers(0, total), st.just(total))
)
RISK = st.floats(1e-6, 0.5)


def rated(bad: int, total: int, limit: float, risk_pass: float, risk_fail: float) -> str:
    return tails.test_rate(bad, total, limit=limit, risk_pass=risk_pass, risk_fail=risk_fail)


# ------------------------------------------------------------------ stalls and slow launches


def test_a_stall_is_a_quarter_above_the_median_of_its_block() -> None:
    assert tails.num_stalls(np.array([1.0, 1.0, 1.25, 1.2501, 0.1])) == 1
    assert tails.num_stalls(np.array([])) == 0


def test_blocks_as_rows_have_a_median_each() -> None:
    fast, slow = [1.0, 1.0, 1.0, 2.0], [10.0, 10.0, 10.0, 10.0]
    assert tails.num_stalls(np.array([fast, slow])) == 1


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_an_impossible_time_is_a_stall_and_makes_no_other(bad: float) -> None:
    assert tails.num_stalls(np.array([1.0, 1.1, bad, 1.0, 1.0])) == 1


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_a_block_of_impossible_times_is_all_stalls(bad: float) -> None:
    assert tails.num_stalls(np.full(4, bad)) == 4


def test_a_slow_launch_is_beyond_three_percent_and_three_spreads() -> None:
    edge = math.log(1.03) + 3 * 0.002
    result = tails.is_slow(
        np.array([-4.0, -4.0, -4.0, -4.0 + edge - 1e-9, -4.0 + edge + 1e-9]), 0.002
    )
    assert result.tolist() == [False, False, False, False, True]
    assert tails.is_slow(np.array([]), 0.002).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_launch_that_is_no_number_is_slow_and_makes_no_other(bad: float) -> None:
    assert tails.is_slow(np.array([-4.0, -4.0, bad, -4.0]), 0.0).tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_cases_as_rows_have_a_median_and_a_reference_each() -> None:
    values = np.array([[-4.0, -4.0, -3.96], [1.0, 1.0, 1.04]])
    result = tails.is_slow(values, np.array([0.001, 0.01]))
    assert result.tolist() == [[False, False, True], [False, False, False]]


def test_an_unknown_reference_spread_calls_every_launch_slow() -> None:
    assert tails.is_slow(np.array([-4.0, -4.0]), math.nan).all()


# ------------------------------------------------------------------ rates


@given(counts=COUNTS, risk=RISK)
def test_the_bounds_are_those_of_clopper_and_pearson(counts: tuple[int, int], risk: float) -> None:
    expected = stats.binomtest(*counts).proportion_ci(1 - 2 * risk, "exact")
    assert tails.rate_bounds(*counts, risk) == pytest.approx(
        (expected.low, expected.high), abs=1e-9
    )


@pytest.mark.parametrize(("bad", "total"), [(0, 0), (-1, 5), (6, 5)])
def test_a_count_that_cannot_be_tells_nothing(bad: int, total: int) -> None:
    assert tails.rate_bounds(bad, total, 0.01) == (0.0, 1.0)
    assert rated(bad, total, 0.5, 0.5, 0.5) == "open"


@given(counts=COUNTS, limit=st.floats(0.001, 0.999), risk_pass=RISK, risk_fail=RISK)
def test_a_rate_is_ruled_as_the_exact_binomial_test_does(
    counts: tuple[int, int], limit: float, risk_pass: float, risk_fail: float
) -> None:
    under = stats.binomtest(*counts, limit, "less").pvalue
    over = stats.binomtest(*counts, limit, "greater").pvalue
    expected = "pass" if under < risk_pass else "fail" if over < risk_fail else "open"
    if abs(under - risk_pass) > 1e-6 * risk_pass and abs(over - risk_fail) > 1e-6 * risk_fail:
        assert rated(*counts, limit, risk_pass, risk_fail) == expected


def test_six_hundred_clean_steps_bound_the_stall_rate_at_half_a_percent() -> None:
    assert rated(0, 600, 0.005, 0.05, 0.01) == "pass"
    assert rated(0, 590, 0.005, 0.05, 0.01) == "open"
    assert tails.rate_bounds(0, 600, 0.05)[1] == pytest.approx(0.00498, abs=1e-5)


def test_two_hundred_clean_launches_bound_the_slow_mode_at_one_and_a_half_percent() -> None:
    assert rated(0, 200, 0.015, 0.05, 0.01) == "pass"
    assert rated(0, 5, 0.45, 0.05, 0.01) == "open"
    assert rated(20, 200, 0.015, 0.05, 0.0002) == "fail"


@pytest.mark.parametrize("limit", [math.nan, math.inf, -0.1, 1.0, 2.0])
def test_a_limit_that_is_no_rate_rules_nothing(limit: float) -> None:
    assert rated(0, 100, limit, 0.5, 0.5) == "open"
    assert rated(100, 100, limit, 0.5, 0.5) == "open"


def test_a_limit_of_none_at_all_is_never_shown_to_be_met() -> None:
    assert rated(0, 10**6, 0.0, 0.5, 0.5) == "open"
    assert rated(1, 10**6, 0.0, 0.5, 0.5) == "fail"


@pytest.mark.parametrize(("excess", "pair"), [(1e-12, ("open", "open")), (1e-7, ("pass", "fail"))])
def test_so_near_to_its_risk_nothing_is_ruled(excess: float, pair: tuple[str, str]) -> None:
    risk = 0.5 * (1 + excess)
    assert (rated(0, 1, 0.5, risk, 0.0), rated(1, 1, 0.5, 0.0, risk)) == pair


@pytest.mark.parametrize("risk", [0.0, math.nan])
def test_without_a_risk_nothing_is_ruled(risk: float) -> None:
    assert rated(0, 10**6, 0.5, risk, risk) == "open"
    assert rated(10**6, 10**6, 0.5, risk, risk) == "open"
    assert tails.rate_bounds(5, 10, risk) == (0.0, 1.0)


def test_the_risks_of_the_interim_analyses_sum_to_the_whole() -> None:
    risks = tails.analysis_risks(0.01, (5, 10, 20, 40))
    assert sum(risks) == pytest.approx(0.01, rel=1e-12)
    assert risks == pytest.approx((0.0019457, 0.0016281, 0.0026274, 0.0037989), abs=1e-7)


# ------------------------------------------------------------------ percentiles

EARLY_STOPPING = {  # smallest totals with 0, 1, 2, 5, 10, 100 over the limit, at a risk of 0.01
    0.9: (44, 64, 81, 127, 197, 1246),
    0.99: (459, 662, 838, 1307, 2010, 12_571),
    0.999: (4603, 6636, 8403, 13_105, 20_140, 125_826),
}


@pytest.mark.parametrize("quantile", EARLY_STOPPING)
@pytest.mark.parametrize(("place", "num_over"), list(enumerate((0, 1, 2, 5, 10, 100))))
def test_a_percentile_needs_as_many_times_as_mlperf_asks(
    quantile: float, place: int, num_over: int
) -> None:
    total = EARLY_STOPPING[quantile][place]
    for size, word in [(total, "pass"), (total - 1, "open")]:
        times = np.full(size, 0.9)
        times[:num_over] = 1.1
        result = tails.test_percentile(
            times, quantile=quantile, limit=1.0, risk_pass=0.01, risk_fail=1e-9
        )
        assert result == (word, num_over)


def percentile_of(times: list[float], **changed: Any) -> tuple[str, int]:
    chosen = {"quantile": 0.9, "limit": 1.0, "risk_pass": 0.01, "risk_fail": 0.01} | changed
    return tails.test_percentile(np.array(times), **chosen)


def test_a_time_at_the_limit_is_in_time() -> None:
    assert percentile_of([1.0] * 44) == ("pass", 0)


def test_too_many_late_times_fail() -> None:
    assert percentile_of([2.0] * 20 + [0.5] * 24) == ("fail", 20)


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_an_impossible_time_never_passes_and_alone_never_fails(bad: float) -> None:
    assert percentile_of([0.5] * 5000 + [bad]) == ("open", 1)
    assert percentile_of([bad] * 5000) == ("open", 5000)
    assert percentile_of([2.0] * 5000 + [bad]) == ("fail", 5001)


@pytest.mark.parametrize("changed", [{"limit": math.nan}, {"limit": 0.0}, {"quantile": 1.0}])
def test_a_percentile_without_a_meaning_is_open(changed: dict[str, float]) -> None:
    assert percentile_of([0.5] * 5000, **changed) == ("open", 5000)


def test_the_reported_percentile_is_that_of_a_published_log() -> None:
    """LoadGen says of 2,048 queries at 90 %: would discard 172 highest latency queries."""
    assert tails.percentile(np.arange(1.0, 2049.0)[::-1], 0.9, 0.01) == 2048 - 172


@pytest.mark.parametrize(("size", "value"), [(0, None), (63, None), (64, 64.0), (81, 80.0)])
def test_the_reported_percentile_needs_enough_times(size: int, value: float | None) -> None:
    assert tails.percentile(np.arange(1.0, size + 1.0), 0.9, 0.01) == value


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_an_impossible_time_has_no_percentile(bad: float) -> None:
    assert tails.percentile(np.array([1.0] * 200 + [bad]), 0.9, 0.01) is None


def test_the_reported_percentile_is_rarely_too_low() -> None:
    """At a risk of 1 % in 2,000 draws: more than 45 would come by chance once in 10 million."""
    times = np.random.default_rng(1).exponential(size=(2000, 300))
    reported = [tails.percentile(row, 0.9, 0.01) for row in times]
    num_low = sum(value is None or value < math.log(10.0) for value in reported)
    assert stats.binomtest(num_low, 2000, 0.01, "greater").pvalue > 1e-6
