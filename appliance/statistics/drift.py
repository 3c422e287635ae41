"""Whether a device grows slower while it works, which a mean over the whole run would hide.

The slope is that of Theil and Sen, the median over all pairs of points, so that stalls and a few
odd blocks do not bend it. Its interval is Sen's (1968), from the distribution of Kendall's tau.
Neighbouring blocks that resemble each other make that interval somewhat too narrow, so limits on
drift are set well above what a healthy device shows.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

LEAST_POINTS = 5
MOST_POINTS = 2000  # their pairs take 16 MB; more points are first joined in runs

Values = npt.NDArray[np.float64]


def theil_sen(
    times_s: Values, values: Values, confidence: float
) -> tuple[float | None, float, float]:
    """Slope of `values` per second, and the ends of its two-sided interval.

    The slope is None, and the ends infinite, for fewer than five points, points that are not
    finite, all at one time, or all of one value (a clock that stands, or copied samples). The ends
    are infinite where so few points cannot give the confidence that is asked for. Above 2,000
    points the medians of equal runs of neighbours stand for them.
    """
    if len(times_s) < LEAST_POINTS or not _is_testable(times_s, values):
        return None, -math.inf, math.inf
    if len(times_s) > MOST_POINTS:
        times_s, values = _joined(times_s, values)
    one, other = np.triu_indices(len(times_s), k=1)
    gaps = times_s[other] - times_s[one]
    is_distinct = gaps != 0.0
    slopes = np.sort((values[other] - values[one])[is_distinct] / gaps[is_distinct])
    low, high = _ends(times_s, values, slopes, confidence)
    return float(np.median(slopes)), low, high


def _is_testable(times_s: Values, values: Values) -> bool:
    is_finite = np.isfinite(times_s) & np.isfinite(values)
    return bool(is_finite.all() and np.ptp(times_s) > 0.0 and np.ptp(values) > 0.0)


def _joined(times_s: Values, values: Values) -> tuple[Values, Values]:
    """Medians of runs of neighbours in time, of equal length but for one."""
    order = np.argsort(times_s, kind="stable")
    runs = np.array_split(order, MOST_POINTS)
    return (
        np.array([np.median(times_s[run]) for run in runs]),
        np.array([np.median(values[run]) for run in runs]),
    )


def _ends(
    times_s: Values, values: Values, slopes: Values, confidence: float
) -> tuple[float, float]:
    """The slopes at the ranks of Sen's interval, infinite where a rank lies outside of them."""
    count = len(times_s)
    ties = sum(_tied(repeats) for repeats in (times_s, values))
    spread = math.sqrt(max(0.0, (count * (count - 1) * (2 * count + 5) - ties) / 18.0))
    reach = float(ndtri(0.5 + confidence / 2.0)) * spread
    lower, upper = (len(slopes) - reach) / 2.0, (len(slopes) + reach) / 2.0
    if not lower > 0.5:  # noqa: PLR2004 - rounds to a rank below the first
        return -math.inf, math.inf
    return float(slopes[round(lower) - 1]), float(slopes[min(round(upper), len(slopes) - 1)])


def _tied(values: Values) -> float:
    """What values that occur more than once take from the variance of Kendall's statistic."""
    repeats = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float(np.sum(repeats * (repeats - 1.0) * (2.0 * repeats + 5.0)))
