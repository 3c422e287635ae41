"""How much launches resemble those before them: recovered from short runs of many cases."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from appliance.statistics.launch_correlation import correlation_of, mean_factor


def autoregression(random: np.random.Generator, shape: tuple[int, ...], rho: float) -> np.ndarray:
    """Stationary, of variance 1, along the last axis."""
    noise = random.standard_normal(shape)
    noise[..., 1:] *= math.sqrt(1 - rho * rho)
    return np.asarray(lfilter([1.0], [1.0, -rho], noise, axis=-1))


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_correlation_is_recovered_from_runs_of_five_launches(rho: float) -> None:
    """40 cases of 12 runs, with spreads from 0.3 to 2 %; the naive ratio would be 0.3 lower."""
    random = np.random.default_rng(5)
    spreads = np.geomspace(0.003, 0.02, 40)[:, None, None]
    values = spreads * autoregression(random, (40, 12, 5), rho)
    assert correlation_of(values.tolist()) == pytest.approx(rho, abs=0.08)


def test_runs_of_other_lengths_are_held_to_what_their_lengths_give() -> None:
    random = np.random.default_rng(6)
    cases = [
        [autoregression(random, (length,), 0.6).tolist() for length in (5, 9, 20, 40)]
        for _ in range(40)
    ]
    assert correlation_of(cases) == pytest.approx(0.6, abs=0.06)


def test_levels_of_runs_are_no_resemblance_of_launches() -> None:
    random = np.random.default_rng(7)
    values = random.standard_normal((40, 12, 5)) + 5.0 * random.standard_normal((40, 12, 1))
    assert correlation_of(values.tolist()) < 0.08


def test_too_few_neighbours_give_no_estimate() -> None:
    assert correlation_of([[[0.0, 0.1, 0.2, 0.3, 0.4]]]) == 0.0
    assert correlation_of([]) == 0.0
    assert correlation_of([[[0.0] * 40]]) == 0.0


@pytest.mark.parametrize(("rho", "launches"), [(0.0, 5), (0.6, 5), (0.6, 40), (-0.3, 7)])
def test_the_factor_is_the_variance_of_a_mean(rho: float, launches: int) -> None:
    lags = np.abs(np.subtract.outer(np.arange(launches), np.arange(launches)))
    assert mean_factor(launches, rho) == pytest.approx(np.mean(rho**lags))
