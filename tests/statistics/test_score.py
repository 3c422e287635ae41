"""The suite score: a weighted geometric mean, and an interval that covers what it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from appliance.judging.level_spread import beside
from appliance.records.baseline import Level
from appliance.statistics.score import Row, suite_score
from appliance.verbs.baselines.levels import levels_of

ROW = Row(case="a", weight=1.0, log_baseline=-4.6, log_mean=-4.7, half=0.02, count=5)
LOGS = st.floats(-15, 5)


def test_one_case_is_its_own_score_with_its_interval() -> None:
    score = suite_score([ROW])
    assert score is not None
    assert score.value == pytest.approx(math.exp(0.1))
    assert (score.low, score.high) == pytest.approx((math.exp(0.08), math.exp(0.12)), rel=1e-9)
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


def test_nothing_averages_out_over_cases_that_share_runs() -> None:
    score = suite_score([ROW, replace(ROW, case="b", weight=3.0, half=0.04)])
    assert score is not None
    assert score.high == pytest.approx(score.value * math.exp(0.02 / 4 + 0.04 * 3 / 4), rel=1e-9)
    assert score.low == pytest.approx(score.value / math.exp(0.02 / 4 + 0.04 * 3 / 4), rel=1e-9)


def levels(baseline: np.ndarray) -> list[Level]:
    """As `bench baseline create` has them, of cases, runs and launches."""
    made = levels_of(
        {
            (f"case-{number}", "serial-0"): {
                (f"run-{run}", 1): tuple(values) for run, values in enumerate(case.tolist())
            }
            for number, case in enumerate(baseline)
        }
    )
    return [level for level in made.values() if isinstance(level, Level)]


@pytest.mark.parametrize(("own", "shared"), [(0.005, 0.0), (0.0, 0.005), (0.0, 0.0)])
def test_the_interval_covers_the_truth_whatever_runs_share(own: float, shared: float) -> None:
    """Eight cases with baselines of five runs, and one run as fast: 95 % of intervals hold 1."""
    random = np.random.default_rng(30)
    num_nodes, covered = 600, 0
    for _ in range(num_nodes):
        runs = own * random.standard_normal((8, 6, 1)) + shared * random.standard_normal((1, 6, 1))
        launches = -4.6 + runs + 0.003 * random.standard_normal((8, 6, 5))
        rows = []
        for level, last in zip(levels(launches[:, :5]), launches[:, 5].tolist(), strict=True):
            mean, half = beside(level, [last])
            rows.append(
                replace(ROW, log_baseline=level.log_seconds, log_mean=mean, half=half, count=5)
            )
        score = suite_score(rows)
        assert score is not None
        assert score.low is not None
        assert score.high is not None
        covered += score.low <= 1.0 <= score.high
    assert stats.binomtest(covered, num_nodes, 0.95, alternative="less").pvalue > 1e-4
    assert len(rows) == 8


def test_a_baseline_of_one_run_gives_no_interval() -> None:
    (level,) = levels(np.random.default_rng(4).normal(-4.6, 0.01, (1, 1, 5)))
    mean, half = beside(level, [[-4.61, -4.6, -4.59, -4.6, -4.62]])
    score = suite_score([replace(ROW, log_mean=mean, half=half)])
    assert score is not None
    assert (score.low, score.high) == (None, None)


@pytest.mark.parametrize("values", [[-4.6, -4.61, -4.59, -4.6], [-4.6] * 5])
def test_few_launches_and_a_clock_that_stands_have_no_interval(values: list[float]) -> None:
    (level,) = levels(np.random.default_rng(4).normal(-4.6, 0.01, (1, 3, 5)))
    assert math.isnan(beside(level, [values])[1])


@pytest.mark.parametrize(
    "bad",
    [
        {"log_mean": math.nan},
        {"log_mean": math.inf},
        {"log_baseline": math.nan},
        {"log_baseline": -math.inf},
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


@pytest.mark.parametrize("half", [math.nan, math.inf, 0.0])
def test_a_case_without_a_width_counts_without_bounds(half: float) -> None:
    score = suite_score([ROW, replace(ROW, case="few", log_mean=-4.6, half=half)])
    assert score is not None
    assert score.value == pytest.approx(math.exp(0.05))
    assert (score.low, score.high) == (None, None)
    assert score.ratios[0].low is not None
    assert (score.ratios[1].low, score.ratios[1].high) == (None, None)


def test_an_absurd_baseline_is_infinite_and_no_crash() -> None:
    score = suite_score([replace(ROW, log_baseline=1e6, half=math.inf)])
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
            half=st.floats(1e-6, 1),
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
