"""How much launches of one run resemble those before them, by all cases of a baseline together.

Launches follow one another on a device that keeps its temperature and its neighbours. Where the
first autocorrelation is rho, the mean of n launches has the variance of n (1 - rho) / (1 + rho)
independent ones, roughly; exactly, for a first-order autoregression, that of `mean_factor`.

A run of five launches cannot show rho: around their own mean, five independent values have a first
autocorrelation of -0.2, and its spread is 0.4. So it is never taken from a run that is judged, but
from all runs and cases of a baseline: sums of products of neighbours over sums of squares, and the
rho for which an autoregression is expected to give that ratio in runs of these lengths.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

LARGEST = 0.95  # what looks more alike is a drift, and no mean of it settles
LEAST_PAIRS = 20
"""Of neighbours, over all runs and cases; of fewer nothing is estimated, and 0 stands."""
_GRID = np.linspace(0.0, LARGEST, 96)


def mean_factor(launches: int, correlation: float | Values) -> Values:
    """Variance of the mean of so many launches over that of one, for each correlation."""
    lags = np.arange(1, launches)
    powers = np.asarray(correlation, dtype=np.float64)[..., None] ** lags
    factor: Values = (1.0 + 2.0 * np.sum((1.0 - lags / launches) * powers, axis=-1)) / launches
    return factor


def correlation_of(cases: Sequence[Sequence[Sequence[float]]]) -> float:
    """First autocorrelation of launches, from 0 to 0.95, of cases and their runs: ln(seconds)."""
    products = squares = 0.0
    lengths: Counter[int] = Counter()
    for runs in cases:
        rests = [np.asarray(run) - np.mean(run) for run in runs if len(run) > 1]
        power = sum(float(rest @ rest) for rest in rests)
        if not power > 0.0:
            continue
        freedom = sum(len(rest) - 1 for rest in rests)
        # Each case by its own spread: a noisy one must not speak for all.
        products += sum(float(rest[:-1] @ rest[1:]) for rest in rests) * freedom / power
        squares += freedom
        lengths.update(len(rest) for rest in rests)
    if sum((length - 1) * number for length, number in lengths.items()) < LEAST_PAIRS:
        return 0.0
    return correlation_from(products / squares, dict(lengths))


def correlation_from(ratio: float | Values, runs_of_length: dict[int, int]) -> float:
    """The rho whose expected ratio of sums, over so many runs of each length, is this one."""
    expected = [_expected(length) * number for length, number in runs_of_length.items()]
    products, squares = np.sum(expected, axis=0)
    return float(np.interp(ratio, products / squares, _GRID))


@functools.cache
def _expected(length: int) -> Values:
    """Expected sums of products and of squares around the mean of a run, for each rho of the grid.

    The variance of a launch is 1.
    """
    lags = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    centring = np.eye(length) - 1.0 / length
    sums = []
    for correlation in _GRID:
        covariances = centring @ np.power(correlation, lags) @ centring
        sums.append((np.trace(covariances, offset=1), np.trace(covariances)))
    return np.array(sums).T
