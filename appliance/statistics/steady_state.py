"""Whether the steps of a launch settled: their levels over time, and what they are worth.

A launch's statistic speaks of a steady device. Its steps may still have been warming up, may
have become slower (heat, a neighbour), or may never have come to rest. As Barrett et al. (2017)
do, steps far off are put aside, the rest is cut into segments at changes of mean or variance,
and neighbouring segments of the same level are joined; what remains names the class. Nothing
is dropped from any estimate here: a class is a finding beside the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.records.verdict import SeriesClass
from appliance.statistics.changepoints import SHORTEST, pelt

Values = NDArray[np.float64]

FEWEST = 20  # two segments of the shortest length
LONGEST = 1000  # of a longer series, medians of consecutive steps are classified: time is n**2
EQUIVALENCE = 0.005
STEADY_SHARE = 0.5  # of the steps, that the last level must cover
SPREAD_SHARE = 0.1  # of the steps: a shorter level is an episode and sets no spread
WINDOW = 200
OUTLIER_RANGES = 3.0  # times the range from the 10th to the 90th percentile of the window
MSER_BATCH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What the steps of a launch look like over time.

    `word` is "steady" (one level), "warm_up" (every earlier level is slower than the last, which
    covers at least half of the steps), "slowdown" (the last level is slower than an earlier one),
    "no_steady_state" (anything else, or a time that is no number), or "short" (too few to tell).
    `cut` is the number of steps before the steady part of a warm-up, else 0. `num_changes` counts
    changes of level. `lag1` and `effective_samples` are of all steps; None where they are too few,
    no numbers, or all the same. `spread` is the largest relative difference between the last
    level and another one that covers at least a tenth of the steps.
    """

    word: SeriesClass
    cut: int
    num_changes: int
    lag1: float | None
    effective_samples: float | None
    spread: float


def classify(log_times: Values, *, equivalence: float = EQUIVALENCE) -> Series:
    """Class of a launch's steps: ln(seconds), shape (n,), in the order in which they ran.

    Levels whose means differ by less than `equivalence`, relative, are the same level. Of more
    than 1000 steps, medians of consecutive ones are looked at (`cut` still counts steps).
    """
    if not np.isfinite(log_times).all():
        return _unclassified("no_steady_state")
    if len(log_times) < FEWEST:
        return _unclassified("short")
    batch = math.ceil(len(log_times) / LONGEST)
    values = _medians(log_times, batch)
    retained = np.flatnonzero(~_is_outlier(values))
    clean = values[retained]
    ends, levels = _levels(clean, math.log1p(equivalence))
    begins = retained[[0, *ends[:-1]]]  # a step put aside belongs to the level before it
    begins[0] = 0
    shares = np.diff(begins, append=len(values)) / len(values)
    differences = levels[:-1] - levels[-1]
    word = _word(differences, shares[-1], math.log1p(equivalence))
    wide = np.abs(np.expm1(differences[shares[:-1] >= SPREAD_SHARE]))
    cut = max(int(begins[-1]), int(retained[mser5(clean)])) * batch if word == "warm_up" else 0
    correlations = _autocorrelation(log_times)
    return Series(
        word=word,
        cut=cut,
        num_changes=len(levels) - 1,
        lag1=None if correlations is None else float(correlations[1]),
        effective_samples=_effective(correlations),
        spread=float(wide.max(initial=0.0)),
    )


def _unclassified(word: SeriesClass) -> Series:
    return Series(word=word, cut=0, num_changes=0, lag1=None, effective_samples=None, spread=0.0)


def _medians(values: Values, batch: int) -> Values:
    """Medians of consecutive batches; what does not fill a batch at the end is not looked at."""
    if batch == 1:
        return values
    num_batches = len(values) // batch
    medians: Values = np.median(values[: num_batches * batch].reshape(num_batches, batch), axis=1)
    return medians


def _word(differences: Values, last_share: float, equivalence: float) -> SeriesClass:
    """Class by the earlier levels' differences from the last one: positive were slower."""
    if len(differences) == 0:
        return "steady"
    if differences.min() < -equivalence:
        return "slowdown"
    if differences.min() > equivalence and last_share >= STEADY_SHARE:
        return "warm_up"
    return "no_steady_state"


# ------------------------------------------------------------------ levels


def _is_outlier(values: Values) -> NDArray[np.bool_]:
    """Values beyond median +- 3 (P90 - P10) of the window of 200 around them.

    So many in a row that they could be a segment are a level, and none of them an outlier: a
    short warm-up lies outside of the window's percentiles altogether.
    """
    width = min(WINDOW, len(values))
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    middle, tenth = windows[:, width // 2], width // 10
    allowed = OUTLIER_RANGES * (windows[:, width - 1 - tenth] - windows[:, tenth])
    around = np.clip(np.arange(len(values)) - width // 2, 0, len(windows) - 1)
    is_far: NDArray[np.bool_] = np.abs(values - middle[around]) > allowed[around]
    if not is_far.any():
        return is_far
    runs = np.flatnonzero(np.diff(is_far, prepend=False, append=False)).reshape(-1, 2)
    for begin, end in runs[runs[:, 1] - runs[:, 0] >= SHORTEST]:
        is_far[begin:end] = False
    return is_far


def _levels(values: Values, equivalence: float) -> tuple[list[int], Values]:
    """Ends and means of the levels: segments, of which the nearest neighbours are joined first."""
    ends = list(pelt(values))
    sums = np.concatenate(([0.0], np.cumsum(values)))
    while True:
        bounds = np.array([0, *ends])
        at = sums[bounds]
        means: Values = (at[1:] - at[:-1]) / (bounds[1:] - bounds[:-1])
        steps = np.abs(means[1:] - means[:-1])
        if len(steps) == 0 or steps.min() >= equivalence:
            return ends, means
        del ends[int(steps.argmin())]


def mser5(values: Values) -> int:
    """Number of leading values, at most half, without which the rest has the smallest error.

    White (1997): of batch means of five values, the cut d that minimises the squared deviations
    of the rest from their own mean over (n - d)**2. `values` has shape (n,) and is finite; of
    fewer than 20, where two batches would not be left, none is cut.
    """
    if len(values) < FEWEST:
        return 0
    num_batches = len(values) // MSER_BATCH
    whole = values[: num_batches * MSER_BATCH] - np.median(values)  # exact zeros if all are equal
    batches = whole.reshape(num_batches, MSER_BATCH).mean(axis=1)[::-1]
    counts = np.arange(1, num_batches + 1)
    sums, squares = np.cumsum(batches), np.cumsum(batches**2)
    errors = ((squares - sums**2 / counts) / counts**2)[::-1]  # index: batches that are cut
    return MSER_BATCH * int(errors[: num_batches // 2 + 1].argmin())


# ------------------------------------------------------------------ dependence


def lag1(values: Values) -> float | None:
    """First autocorrelation; None for fewer than 20 values, values not finite, or all the same."""
    correlations = _autocorrelation(values)
    return None if correlations is None else float(correlations[1])


def effective_samples(values: Values) -> float | None:
    """So many independent values would tell the mean as well; at most n, None as for `lag1`.

    n / (1 + 2 sum of autocorrelations), summed over pairs of lags for as long as a pair's sum is
    positive (Geyer 1992, initial positive sequence).
    """
    return _effective(_autocorrelation(values))


def _effective(correlations: Values | None) -> float | None:
    if correlations is None:
        return None
    count = len(correlations)
    pairs = correlations[: count - count % 2].reshape(-1, 2).sum(axis=1)
    is_over = pairs <= 0
    num_pairs = int(is_over.argmax()) if is_over.any() else len(pairs)
    time = 2.0 * float(pairs[:num_pairs].sum()) - 1.0
    return count / max(time, 1.0)


def _autocorrelation(values: Values) -> Values | None:
    """Autocorrelations at lags 0 to n - 1 by the Fourier transform, padded against wrapping."""
    count = len(values)
    if count < FEWEST or not np.isfinite(values).all() or values.min() == values.max():
        return None
    width = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(values - values.mean(), width)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, width)[:count]
    correlations: Values = covariances / covariances[0]
    return correlations
