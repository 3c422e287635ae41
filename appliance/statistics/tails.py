"""What a median hides: stalled steps, late answers, and launches of a slow mode.

The typical step decides how fast a device is, so that a few stalls do not move that ruling; here
the stalls are judged by themselves. All of it is counting: how many of so many exceeded a limit,
against the exact binomial distribution, which holds for few samples as for many. A time that is
not a positive finite number always counts as one that exceeded, and alone never earns a fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaincinv

from appliance.statistics.estimates import STALL
from appliance.statistics.group_sequential import GUARD, check_schedule, spent

Word = Literal["pass", "fail", "open"]
Times = npt.NDArray[np.float64]

SLOW_MODE = math.log(1.03)
SLOW_SPREADS = 3.0


def num_stalls(times: Times) -> int:
    """How many steps took longer than 1.25 times the median of their block.

    `times` are of one block, or of blocks of equal length as rows; any unit.
    """
    if not times.size:
        return 0
    limit = STALL * _median(times)[..., None]
    return int(np.count_nonzero(~((times > 0.0) & (times <= limit) & np.isfinite(times))))


def is_slow(values: Times, sd_reference: float | Times) -> npt.NDArray[np.bool_]:
    """Which launches of one case belong to a slow mode.

    `values` are launch statistics in ln(seconds), or of several cases as rows, with a reference
    for each. Slow is more than 3 % and three spreads of a healthy launch above the median of the
    case, or not finite.
    """
    if not values.size:
        return np.zeros(values.shape, dtype=np.bool_)
    excess = values - _median(values)[..., None]
    threshold = SLOW_MODE + SLOW_SPREADS * np.asarray(sd_reference)[..., None]
    return ~((excess <= threshold) & np.isfinite(values))


def _median(values: Times) -> Times:
    """Over the last axis; what is not a number counts as the largest, and spoils no other."""
    ordered, middle = np.sort(values, axis=-1), values.shape[-1] - 1
    median: Times = 0.5 * (ordered[..., middle // 2] + ordered[..., (middle + 1) // 2])
    return median


# ------------------------------------------------------------------ rates


def analysis_risks(alpha: float, launch_counts: Sequence[int]) -> tuple[float, ...]:
    """Part of the risk `alpha` that each interim analysis may spend; the parts sum to it.

    An exact test of counts takes its part at each interim analysis as it stands, which errs to the
    safe side.
    """
    check_schedule(launch_counts)
    sums = [
        0.0,
        *(spent(alpha, launches / launch_counts[-1]) for launches in launch_counts),
    ]
    return tuple(later - sooner for sooner, later in pairwise(sums))


def rate_bounds(bad: int, total: int, risk: float) -> tuple[float, float]:
    """Exact one-sided bounds of a rate (Clopper and Pearson 1934), each missed at most at `risk`.

    From 0 to 1 where nothing was counted, or more than there was.
    """
    if not 0 <= bad <= total or total == 0 or not 0.0 < risk < 1.0:
        return 0.0, 1.0
    lower = float(betaincinv(bad, total - bad + 1, risk)) if bad else 0.0
    upper = 1.0 - float(betaincinv(total - bad, bad + 1, risk)) if bad < total else 1.0
    return lower, upper


def test_rate(bad: int, total: int, *, limit: float, risk_pass: float, risk_fail: float) -> Word:
    """Whether a rate lies under its limit, over it, or cannot be told from it.

    "pass" where so few would be seen at most at `risk_pass` if the rate were the limit, "fail"
    where so many would be seen at most at `risk_fail`.
    """
    if not 0 <= bad <= total or total == 0 or not 0.0 <= limit < 1.0:
        return "open"
    if bad < total and _is_below(float(betainc(total - bad, bad + 1, 1.0 - limit)), risk_pass):
        return "pass"
    if bad and _is_below(float(betainc(bad, total - bad + 1, limit)), risk_fail):
        return "fail"
    return "open"


def _is_below(chance: float, risk: float) -> bool:
    """Clearly: so near to its bound another machine may round to the other side."""
    return chance < risk * (1.0 - GUARD)


# ------------------------------------------------------------------ percentiles


def test_percentile(
    times_s: Times, *, quantile: float, limit: float, risk_pass: float, risk_fail: float
) -> tuple[Word, int]:
    """Whether a percentile of latency lies under its limit, and how many times exceeded it.

    `times_s` and `limit` are seconds. The early stopping of MLPerf's LoadGen: with t times over
    the limit and h not, a pass needs I_q(h, t + 1) to be at most the risk; the mirror of it is a
    fail. The times are taken as independent.
    """
    if not 0.0 < quantile < 1.0 or not 0.0 < limit < math.inf:
        return "open", int(times_s.size)
    is_time = np.isfinite(times_s) & (times_s > 0.0)
    num_over = int(np.count_nonzero(~(is_time & (times_s <= limit))))
    num_late = int(np.count_nonzero(is_time & (times_s > limit)))
    word = test_rate(
        num_late,
        int(times_s.size),
        limit=1.0 - quantile,
        risk_pass=risk_pass if num_late == num_over else 0.0,
        risk_fail=risk_fail,
    )
    return word, num_over


def percentile(times_s: Times, quantile: float, risk: float) -> float | None:
    """A latency in seconds that the percentile exceeds at most at `risk`.

    As MLPerf reports single streams: of the largest t that the early stopping allows for so many
    times, the t-1 slowest are left aside and the next is the report. None where there are too few
    times for any, or one is not a positive finite number.
    """
    if not 0.0 < quantile < 1.0 or not bool(np.all(np.isfinite(times_s) & (times_s > 0.0))):
        return None
    total = int(times_s.size)
    low, high = 0, total  # so many over the limit are allowed, and so many are not
    while high - low > 1:
        middle = (low + high) // 2
        if _is_below(float(betainc(total - middle, middle + 1, quantile)), risk):
            low = middle
        else:
            high = middle
    return float(np.sort(times_s)[total - low]) if low else None
