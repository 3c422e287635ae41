"""The suite score: a weighted geometric mean, and an interval that covers what it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.statistics.score import Row, suite_score

ROW = Row(case="a", weight=1.0, log_baseline=-4.6, log_mean=-4.7, log_sd=0.01, count=5)
LOGS = st.floats(-15, 5)


def test_one_case_is_its_own_score_with_the_interval_of_student() -> None:
    score = suite_score([ROW])
    assert score is not None
    ends = stats.t.interval(0.95, 4, loc=0.1, scale=0.01 / math.sqrt(5))
    assert score.value == pytest.approx(math.exp(0.1))
    assert (score.low, score.high) == pytest.approx(tuple(np.exp(ends)), rel=1e-9)
    (ratio,) = score.ratios
    assert (ratio.ratio, ratio.low, ratio.high) == (score.value, score.low, score.high)
    assert (ratio.case, ratio.weight, ratio.count, score.confidence) == ("a", 1.0, 5, 0.95)


def test_faster_than_the_baseline_is_above_one() -> None:
    score = suite_score([replace(ROW, log_baseline=math.log(0.2), log_mean=math.log(0.1))])
    assert score is not None
    assert score.value == pytest.approx(2.0)


def test_ratios_combine_geometrically_by_their_weights() -> None:
    twice = replace(ROW, case="b", weight=3.0, log_baseline=math.log(2), log_mean=0.0)
    half = replace(ROW, case="c", weight=1.0, log_baseline=math.log(0.5), log_mean=0.0)
    score = suite_score([twice, half])
    assert score is not None
    assert score.value == pytest.approx(2**0.75 * 0.5**0.25)
    assert [ratio.weight for ratio in score.ratios] == [0.75, 0.25]
    assert [ratio.ratio for ratio in score.ratios] == pytest.approx([2.0, 0.5])


def test_the_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    rows = [ROW, replace(ROW, case="b", weight=2.0, log_sd=0.03, count=10)]
    score = suite_score(rows)
    assert score is not None
    parts = [(1 / 3) ** 2 * 0.01**2 / 5, (2 / 3) ** 2 * 0.03**2 / 10]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 9)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts))
    assert score.high == pytest.approx(score.value * math.exp(half), rel=1e-9)
    assert score.low == pytest.approx(score.value / math.exp(half), rel=1e-9)


def test_the_interval_covers_what_it_says() -> None:
    """40 cases of unequal spread and launches: 95 % of intervals hold the true score, 1."""
    random = np.random.default_rng(30)
    sds = random.uniform(0.003, 0.02, 40)
    counts = random.choice([5, 5, 5, 10, 20], 40)
    num_runs, covered = 1000, 0
    for _ in range(num_runs):
        rows = []
        for sd, count in zip(sds, counts, strict=True):
            launches = random.normal(0, sd, count)
            mean, spread = float(launches.mean()), float(launches.std(ddof=1))
            row = replace(ROW, log_baseline=0.0, log_mean=mean, log_sd=spread, count=int(count))
            rows.append(row)
        score = suite_score(rows)
        assert score is not None
        assert score.low is not None
        assert score.high is not None
        covered += score.low <= 1.0 <= score.high
    assert stats.binomtest(covered, num_runs, 0.95).pvalue > 1e-6


@pytest.mark.parametrize(
    "bad",
    [
        {"log_mean": math.nan},
        {"log_mean": math.inf},
        {"log_baseline": math.nan},
        {"log_baseline": -math.inf},
        {"log_sd": math.nan},
        {"log_sd": math.inf},
        {"log_sd": -0.1},
        {"weight": math.nan},
        {"weight": math.inf},
        {"weight": 0.0},
        {"weight": -1.0},
        {"count": 0},
    ],
)
def test_a_row_that_is_no_number_is_left_out(bad: dict[str, float]) -> None:
    row = replace(ROW, case="bad", **bad)  # type: ignore[arg-type]
    assert suite_score([row], ["untimed"]) is None
    score, alone = suite_score([ROW, row], ["untimed"]), suite_score([ROW])
    assert score is not None
    assert alone is not None
    assert score == replace(alone, left_out=("untimed", "bad"))


def test_no_case_has_no_score() -> None:
    assert suite_score([]) is None
    assert suite_score([], ["a"]) is None


@pytest.mark.parametrize(("count", "sd"), [(1, math.nan), (4, 0.01)])
def test_a_case_of_few_launches_counts_without_bounds(count: int, sd: float) -> None:
    few = replace(ROW, case="few", log_mean=-4.6, log_sd=sd, count=count)
    score = suite_score([ROW, few])
    assert score is not None
    assert score.value == pytest.approx(math.exp(0.05))
    assert (score.low, score.high) == (None, None)
    assert score.ratios[0].low is not None
    assert (score.ratios[1].low, score.ratios[1].high) == (None, None)


def test_launches_that_are_all_the_same_have_no_interval() -> None:
    score = suite_score([replace(ROW, log_sd=0.0)])
    assert score is not None
    assert (score.low, score.high, score.ratios[0].low) == (None, None, None)


def test_an_absurd_baseline_is_infinite_and_no_crash() -> None:
    score = suite_score([replace(ROW, log_baseline=1e6, log_sd=1e200)])
    assert score is not None
    assert (score.value, score.low, score.high) == (math.inf, None, None)


@given(
    rows=st.lists(
        st.builds(
            Row,
            case=st.just("a"),
            weight=st.floats(0.01, 100),
            log_baseline=LOGS,
            log_mean=LOGS,
            log_sd=st.floats(1e-6, 1),
            count=st.integers(5, 40),
        ),
        min_size=1,
        max_size=8,
    ),
    scale=st.floats(0.01, 100),
)
def test_weights_are_on_any_scale_and_the_score_lies_among_its_ratios(
    rows: list[Row], scale: float
) -> None:
    score = suite_score(rows)
    scaled = suite_score([replace(row, weight=scale * row.weight) for row in rows])
    assert score is not None
    assert scaled is not None
    assert scaled.value == pytest.approx(score.value, rel=1e-9)
    assert math.fsum(ratio.weight for ratio in score.ratios) == pytest.approx(1.0)
    ratios = [ratio.ratio for ratio in score.ratios]
    assert min(ratios) * (1 - 1e-9) <= score.value <= max(ratios) * (1 + 1e-9)
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.value < score.high
