"""PELT: the segmentation of ruptures and of plain dynamic programming, and its figures."""

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import ruptures
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from appliance.statistics.changepoints import ADDED_VARIANCE, SHORTEST, pelt

Values = NDArray[np.float64]


def white(random: np.random.Generator, count: int) -> Values:
    return random.normal(-4.6, 10 ** random.uniform(-4, -1), count)


def stepped(random: np.random.Generator, count: int) -> Values:
    values = white(random, count)
    for place in random.integers(0, count, random.integers(1, 5)):
        values[place:] += random.normal(0, 0.05)
    return values


def spread(random: np.random.Generator, count: int) -> Values:
    return white(random, count) * np.where(np.arange(count) < random.integers(count), 1, 3)


def autocorrelated(random: np.random.Generator, count: int) -> Values:
    values = random.normal(0, 0.01, count)
    for place in range(1, count):
        values[place] += 0.9 * values[place - 1]
    return values


def constant(random: np.random.Generator, count: int) -> Values:
    values = np.full(count, math.log(0.1))
    values[random.integers(count) :] += random.choice([0.0, 0.001, 0.02])
    return values


def ticks(random: np.random.Generator, count: int) -> Values:
    """A clock so coarse that most times are the same."""
    return np.log(np.maximum(np.round(random.normal(8, 0.6, count)), 1))


def by_ruptures(
    values: Values, penalty: float | None = None, min_size: int = SHORTEST
) -> tuple[int, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it adds 1e-6, which is what we want
        search = ruptures.Pelt(model="normal", min_size=min_size, jump=1)
    paid = 15 * math.log(len(values)) if penalty is None else penalty
    return tuple(search.fit_predict(values, pen=paid))


def segment_cost(part: Values) -> float:
    return len(part) * math.log(part.var() + ADDED_VARIANCE)


def cost(values: Values, ends: tuple[int, ...], penalty: float) -> float:
    parts = [values[begin:end] for begin, end in itertools.pairwise((0, *ends))]
    return sum(segment_cost(part) + penalty for part in parts)


def least_cost(values: Values, penalty: float, min_size: int) -> float:
    """Plain dynamic programming over every segmentation; nothing is pruned."""
    least = [0.0] + [math.inf] * len(values)
    for end in range(min_size, len(values) + 1):
        for begin in range(end - min_size + 1):
            result = least[begin] + segment_cost(values[begin:end]) + penalty
            least[end] = min(least[end], result)
    return least[-1]


@pytest.mark.parametrize("make", [white, stepped, spread, autocorrelated, constant, ticks])
def test_the_segments_are_those_of_ruptures(make: Callable[..., Values]) -> None:
    random = np.random.default_rng(20)
    series = [make(random, int(random.integers(20, 110))) for _ in range(40)]
    assert [pelt(values) for values in series] == [by_ruptures(values) for values in series]


def test_the_comparison_has_changes_to_find() -> None:
    random = np.random.default_rng(21)
    result = [pelt(stepped(random, 80)) for _ in range(40)]
    assert sum(len(ends) > 1 for ends in result) >= 20


@pytest.mark.parametrize("min_size", [2, 7, 10])
@pytest.mark.parametrize("make", [stepped, spread, autocorrelated])
def test_no_segmentation_is_cheaper(make: Callable[..., Values], min_size: int) -> None:
    values = make(np.random.default_rng(22), 150)
    penalty = 15 * math.log(150)
    result = cost(values, pelt(values, min_size=min_size), penalty)
    assert result == pytest.approx(least_cost(values, penalty, min_size), abs=1e-7)


@pytest.mark.parametrize("seed", [13, 28, 47, 151, 445, 695])
def test_pruning_waits_for_the_shortest_length(seed: int) -> None:
    """A start is pruned where the next segment may end, not before; ruptures is too early."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 0.02, 40)
    for _ in range(3):
        values[random.integers(40) :] += random.normal(0, 0.1)
    result = cost(values, pelt(values, penalty=5, min_size=5), 5)
    assert result == pytest.approx(least_cost(values, 5, 5), abs=1e-7)
    theirs = cost(values, by_ruptures(values, 5, 5), 5)
    assert theirs > result + 1e-3 if seed in {13, 28, 47} else theirs >= result - 1e-7


@given(
    values=st.lists(st.floats(-20, 20), max_size=70),
    penalty=st.floats(0, 60),
    min_size=st.integers(2, 12),
)
def test_segments_cover_everything_and_are_long_enough(
    values: list[float], penalty: float, min_size: int
) -> None:
    ends = pelt(np.array(values, dtype=np.float64), penalty=penalty, min_size=min_size)
    lengths = np.diff((0, *ends))
    assert sum(lengths) == len(values)
    assert len(ends) <= 1 or min(lengths) >= min_size


def test_white_noise_of_200_steps_has_no_change() -> None:
    random = np.random.default_rng(23)
    assert all(pelt(random.normal(0, 0.01, 200)) == (200,) for _ in range(600))


def test_a_mild_dependence_is_no_change_and_a_strong_one_rarely() -> None:
    random = np.random.default_rng(24)

    def share(correlation: float) -> float:
        noise = random.normal(0, 0.01, (400, 200))
        for place in range(1, 200):
            noise[:, place] += correlation * noise[:, place - 1]
        return float(np.mean([len(pelt(values)) > 1 for values in noise]))

    assert share(0.5) <= 0.02
    assert share(0.8) <= 0.10


@pytest.mark.parametrize(
    ("step", "noise", "least", "most"),
    [(0.01, 0.005, 0.99, 1.0), (0.02, 0.01, 0.99, 1.0), (0.01, 0.01, 0.0, 0.2)],
)
def test_steps_are_found_at_twice_the_noise(
    step: float, noise: float, least: float, most: float
) -> None:
    random = np.random.default_rng(25)
    level = step * (np.arange(200) >= 100)
    result = [pelt(level + random.normal(0, noise, 200)) for _ in range(200)]
    assert (
        least <= np.mean([len(ends) == 2 and abs(ends[0] - 100) <= 10 for ends in result]) <= most
    )


@pytest.mark.parametrize("level", [0.0, 0.1, -11.5])
def test_equal_values_are_one_segment(level: float) -> None:
    assert pelt(np.full(300, level)) == (300,)


def test_the_jitter_that_every_segment_is_granted_hides_a_tick() -> None:
    step = 0.0005 * (np.arange(200) >= 100)
    assert pelt(step) == (200,)
    assert pelt(20 * step) == (100, 200)


def test_few_values_are_one_segment_and_none_are_none() -> None:
    assert pelt(np.arange(19.0)) == (19,)
    assert pelt(np.empty(0)) == ()
