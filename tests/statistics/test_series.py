"""Classes of series, their cut and their worth, on series whose truth is known."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from appliance.statistics.steady_state import (
    LONGEST,
    Series,
    classify,
    effective_samples,
    lag1,
    mser5,
)

Values = NDArray[np.float64]
Generator = np.random.Generator


def levels(*parts: tuple[int, float]) -> Values:
    """Steps of 10 ms, slower by the given fraction in each part; without noise."""
    return np.concatenate(
        [np.full(count, math.log(0.01 * (1 + slower))) for count, slower in parts]
    )


def noisy(values: Values, sd: float, seed: int = 1) -> Values:
    return values + np.random.default_rng(seed).normal(0, sd, len(values))


def dependent(random: Generator, count: int, correlation: float) -> Values:
    """First-order autoregressive noise of sd 1 %."""
    noise = random.normal(0, 0.01, count)
    noise[1:] *= math.sqrt(1 - correlation**2)
    for place in range(1, count):
        noise[place] += correlation * noise[place - 1]
    return noise


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([(100, 0.0)], "steady"),
        ([(50, 0.002), (50, 0.0)], "steady"),
        ([(50, 0.0), (50, 0.004)], "steady"),
        ([(40, 0.05), (60, 0.0)], "warm_up"),
        ([(20, 0.10), (20, 0.03), (60, 0.0)], "warm_up"),
        ([(20, 0.03), (20, 0.10), (60, 0.0)], "warm_up"),
        ([(50, 0.05), (50, 0.0)], "warm_up"),
        ([(51, 0.05), (49, 0.0)], "no_steady_state"),
        ([(60, 0.0), (40, 0.05)], "slowdown"),
        ([(40, 0.0), (60, 0.05)], "slowdown"),
        ([(20, 0.10), (20, 0.0), (60, 0.03)], "slowdown"),
        ([(20, 0.0), (20, 0.10), (60, 0.03)], "slowdown"),
        ([(85, 0.0), (15, 0.05)], "slowdown"),
        ([(25, 0.0), (20, 0.05), (55, 0.0)], "no_steady_state"),
        ([(20, 0.05), (20, 0.0)] * 3, "no_steady_state"),
        ([(20, 0.0), (20, 0.05)] * 3, "slowdown"),
    ],
)
def test_levels_name_the_class(parts: list[tuple[int, float]], word: str) -> None:
    assert classify(levels(*parts)).word == word
    assert classify(noisy(levels(*parts), 0.001)).word == word


def test_steady_steps_have_nothing_to_cut() -> None:
    result = classify(noisy(levels((100, 0.0)), 0.01))
    assert (result.word, result.cut, result.num_changes, result.spread) == ("steady", 0, 0, 0.0)


@pytest.mark.parametrize("sd", [0.001, 0.005, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("count", [30, 200])
def test_noise_alone_is_steady_however_wide(sd: float, count: int) -> None:
    random = np.random.default_rng(2)
    assert {classify(random.normal(0, sd, count)).word for _ in range(100)} == {"steady"}


@pytest.mark.parametrize("count", [30, 120, 400])
def test_a_few_stalls_are_no_level(count: int) -> None:
    random = np.random.default_rng(3)
    words: Counter[str] = Counter()
    for _ in range(200):
        stalled = (random.random(count) < 0.02) * random.exponential(1, count)
        words[classify(random.normal(0, 0.01, count) + np.log1p(stalled)).word] += 1
    assert words["steady"] >= 198


def test_a_short_run_far_away_is_a_level_and_not_a_string_of_outliers() -> None:
    result = classify(noisy(levels((15, 0.10), (185, 0.0)), 0.001))
    assert (result.word, result.num_changes) == ("warm_up", 1)
    assert 15 <= result.cut <= 25
    lone = noisy(levels((5, 0.10), (195, 0.0)), 0.001)
    assert classify(lone).word == "steady"


def test_a_warm_up_is_cut_where_its_steady_part_begins() -> None:
    result = classify(noisy(levels((40, 0.05), (60, 0.0)), 0.002))
    assert (result.word, result.num_changes) == ("warm_up", 1)
    assert 40 <= result.cut <= 45
    assert result.spread == pytest.approx(0.05, abs=0.002)


def test_the_slow_end_of_a_warm_up_is_cut_too() -> None:
    """The last change is where a level begins; the mean squared error cuts what still decays."""
    steps = np.arange(200)
    result = classify(noisy(np.log1p(0.3 * np.exp(-steps / 20)), 0.01))
    assert result.word == "warm_up"
    assert 60 <= result.cut <= 100


def test_a_stall_before_a_change_does_not_shift_it() -> None:
    values = levels((40, 0.05), (60, 0.0))
    values[[3, 38, 70]] += 1.0
    result = classify(values)
    assert (result.word, result.num_changes) == ("warm_up", 1)
    assert 40 <= result.cut <= 45


def test_stalls_count_as_steps_of_their_level() -> None:
    values = levels((52, 0.05), (48, 0.0))
    values[[3, 11, 25, 38]] += 1.0
    assert classify(values).word == "no_steady_state"


def test_the_cut_is_not_before_the_last_change_however_noisy_the_rest() -> None:
    values = levels((40, 0.05), (160, 0.0))
    values[40:] = noisy(values[40:], 0.15)
    result = classify(noisy(values, 0.001))
    assert result.word == "warm_up"
    assert 38 <= result.cut <= 100
    assert mser5(values) < 38


def test_the_spread_is_of_levels_that_cover_a_tenth() -> None:
    assert classify(levels((12, 0.20), (40, 0.05), (148, 0.0))).spread == pytest.approx(0.05)
    assert classify(levels((20, 0.20), (40, 0.05), (140, 0.0))).spread == pytest.approx(0.20)
    assert classify(levels((60, 0.0), (40, 0.05))).spread == pytest.approx(1 - 1 / 1.05)


@pytest.mark.parametrize(("equivalence", "word"), [(0.005, "slowdown"), (0.02, "steady")])
def test_the_tolerance_decides_what_is_the_same_level(equivalence: float, word: str) -> None:
    assert classify(levels((40, 0.0), (60, 0.01)), equivalence=equivalence).word == word


@pytest.mark.parametrize(
    ("slower", "joined"),
    [((0.0, 0.004, 0.010), (0.002, 0.010)), ((0.0, 0.010, 0.013), (0.0, 0.01225))],
)
def test_neighbours_are_joined_from_the_nearest_on(
    slower: tuple[float, ...], joined: tuple[float, float]
) -> None:
    """Levels of 40, 40 and 120 steps: the joined ones weigh as many as they are."""
    result = classify(levels(*zip((40, 40, 120), slower, strict=True)))
    assert (result.word, result.num_changes) == ("slowdown", 1)
    assert result.spread == pytest.approx(1 - (1 + joined[0]) / (1 + joined[1]), rel=1e-3)


@pytest.mark.parametrize("count", [30, 60, 200])
def test_dependent_noise_is_seldom_taken_for_levels(count: int) -> None:
    random = np.random.default_rng(4)
    words = Counter(classify(dependent(random, count, 0.5)).word for _ in range(200))
    assert words["steady"] >= 198


def test_a_throttle_of_five_percent_is_seen_at_one_percent_noise() -> None:
    random = np.random.default_rng(5)
    throttled = levels((72, 0.0), (48, 0.05))
    assert {classify(throttled + random.normal(0, 0.01, 120)).word for _ in range(100)} == {
        "slowdown"
    }


@pytest.mark.parametrize("count", [0, 1, 19])
def test_few_steps_are_short_and_unknown(count: int) -> None:
    assert classify(noisy(levels((count, 0.0)), 0.01)) == Series(
        word="short", cut=0, num_changes=0, lag1=None, effective_samples=None, spread=0.0
    )


@pytest.mark.parametrize("count", [1, 19, 20, 100, 3000])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_number_is_never_steady(bad: float, count: int) -> None:
    values = noisy(levels((count, 0.0)), 0.01)
    values[count // 2] = bad
    result = classify(values)
    assert (result.word, result.lag1, result.effective_samples) == ("no_steady_state", None, None)


def test_steps_that_are_all_the_same_are_steady_and_their_worth_unknown() -> None:
    result = classify(levels((100, 0.0)))
    assert (result.word, result.lag1, result.effective_samples) == ("steady", None, None)


@pytest.mark.parametrize("factor", [3, 3.7])
def test_a_long_series_is_classified_by_its_medians_in_steps(factor: float) -> None:
    count = int(factor * LONGEST)
    values = noisy(levels((count // 4, 0.05), (count - count // 4, 0.0)), 0.01)
    result = classify(values)
    assert (result.word, result.num_changes) == ("warm_up", 1)
    assert count // 4 <= result.cut <= count // 4 + 10 * math.ceil(factor)
    assert result.lag1 == lag1(values)


@given(
    values=st.lists(st.floats(-20, 5), max_size=80), equivalence=st.sampled_from([0.005, 0.02, 0.5])
)
def test_every_series_has_a_class(values: list[float], equivalence: float) -> None:
    result = classify(np.array(values, dtype=np.float64), equivalence=equivalence)
    assert (result.word == "short") == (len(values) < 20)
    assert 0 <= result.cut <= len(values) // 2
    assert result.word == "warm_up" or result.cut == 0
    assert (result.word in {"short", "steady"}) == (result.num_changes == 0)
    assert math.isfinite(result.spread)
    if result.effective_samples is not None:
        assert 0 < result.effective_samples <= len(values)


# ------------------------------------------------------------------ MSER-5


@pytest.mark.parametrize(
    ("slower", "decay", "sd", "cut", "bias"),
    [(0.10, 10, 0.005, 40, 0.00012), (0.30, 20, 0.01, 80, 0.0011), (0.0, 1, 0.01, 0, 0.0)],
)
def test_the_cut_leaves_the_bias_that_was_published(
    slower: float, decay: float, sd: float, cut: int, bias: float
) -> None:
    random = np.random.default_rng(6)
    warming = np.log1p(slower * np.exp(-np.arange(200) / decay))
    series = [warming + random.normal(0, sd, 200) for _ in range(1000)]
    cuts = [mser5(values) for values in series]
    left = np.mean([values[cut:].mean() for values, cut in zip(series, cuts, strict=True)])
    assert np.median(cuts) == pytest.approx(cut, abs=5)
    assert left == pytest.approx(bias, abs=0.0004)


def plain_mser5(values: Values) -> int:
    batches = [np.mean(values[first : first + 5]) for first in range(0, len(values) - 4, 5)]
    errors = [np.var(batches[d:]) / (len(batches) - d) for d in range(len(batches) // 2 + 1)]
    return 5 * int(np.argmin(errors))


def test_the_cut_is_that_of_the_definition() -> None:
    random = np.random.default_rng(7)
    for count in range(20, 140, 7):
        values = np.log1p(0.1 * np.exp(-np.arange(count) / 10)) + random.normal(0, 0.02, count)
        assert mser5(values) == plain_mser5(values)


def test_equal_or_few_steps_are_not_cut() -> None:
    assert mser5(levels((200, 0.0))) == 0
    assert mser5(levels((9, 0.5), (10, 0.0))) == 0


# ------------------------------------------------------------------ dependence


def plain_correlation(values: Values, lag: int) -> float:
    centred = values - values.mean()
    return float((centred[lag:] * centred[: len(values) - lag]).sum() / (centred**2).sum())


def plain_worth(values: Values) -> float:
    time = -1.0
    for lag in range(0, len(values) - 1, 2):
        pair = plain_correlation(values, lag) + plain_correlation(values, lag + 1)
        if pair <= 1e-12:
            break
        time += 2 * pair
    return len(values) / max(time, 1)


@given(
    values=st.lists(st.integers(-50, 50), min_size=20, max_size=60).filter(
        lambda values: min(values) < max(values)
    )
)
def test_lag1_and_worth_are_those_of_the_definition(values: list[int]) -> None:
    array = np.array(values, dtype=np.float64)
    assert lag1(array) == pytest.approx(plain_correlation(array, 1), abs=1e-9)
    assert effective_samples(array) == pytest.approx(plain_worth(array), rel=1e-6)


@pytest.mark.parametrize("count", [20, 60, 64, 65])
def test_the_ends_of_a_trend_do_not_meet(count: int) -> None:
    trend = np.arange(count, dtype=np.float64)
    assert effective_samples(trend) == pytest.approx(plain_worth(trend), rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5, 0.8])
def test_the_worth_of_dependent_steps_is_that_of_theory(correlation: float) -> None:
    random = np.random.default_rng(8)
    result = [effective_samples(dependent(random, 2000, correlation)) for _ in range(50)]
    expected = 2000 * (1 - correlation) / (1 + correlation)
    assert np.median([value for value in result if value is not None]) == pytest.approx(
        expected, rel=0.15
    )


@pytest.mark.parametrize(
    "values", [np.arange(19.0), np.full(50, 0.1), np.append(np.arange(30.0), math.nan)]
)
def test_the_worth_of_steps_that_tell_nothing_is_unknown(values: Values) -> None:
    assert lag1(values) is None
    assert effective_samples(values) is None


def test_alternating_steps_are_worth_no_more_than_their_number() -> None:
    alternating = np.tile([0.0, 1.0], 50)
    assert effective_samples(alternating) == 100
    assert lag1(alternating) == pytest.approx(-0.99)
