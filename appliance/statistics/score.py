"""One number for a suite: the weighted geometric mean of speeds against the baseline.

S = exp(sum of w ln(t_baseline / t)) over the cases, with weights that sum to 1, as users of
Milabench expect. It is for comparing at a glance and offsets no criterion. Its interval speaks of
these cases, of how far runs vary, and of the baseline's own error; another choice of workloads is
another suite. What slows one case of a run may slow all, so nothing is taken to average out over
cases: half the width of the score's interval is the weighted mean of that of the ratios, which is
wide enough whatever cases share (the standard deviation of a sum is at most the sum of theirs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.records.verdict import Ratio, Score
from appliance.statistics.estimates import CONFIDENCE

Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the score takes of one case: ln(seconds) of its baseline and of its `count` launches.

    `half` is half the width of the interval of their difference, of 95 %; no finite number above 0
    where there is none. `weight` is that of the suite file, on any scale.
    """

    case: str
    weight: float
    log_baseline: float
    log_mean: float
    half: float
    count: int

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of the speed against the baseline."""
        return self.log_baseline - self.log_mean

    @property
    def is_usable(self) -> bool:
        """True for a positive weight, at least one launch, and figures that are finite."""
        is_finite = math.isfinite(self.weight) and math.isfinite(self.log_ratio)
        return is_finite and self.weight > 0 and self.count >= 1


def suite_score(rows: Sequence[Row], left_out: Sequence[str] = ()) -> Score | None:
    """Score, and the ratio of each case, with intervals of 95 %; None where no row is usable.

    The score has no interval where one of its ratios has none. `left_out` are cases without a row;
    rows that are not usable join them. The weights of the ratios sum to 1.
    """
    usable = [row for row in rows if row.is_usable]
    if not usable:
        return None
    total = math.fsum(row.weight for row in usable)
    ratios = [(row, row.weight / total) for row in usable]
    log_score = math.fsum(weight * row.log_ratio for row, weight in ratios)
    halves = [weight * row.half if _is_width(row.half) else math.nan for row, weight in ratios]
    low, high = _interval(log_score, math.fsum(halves))
    return Score(
        value=_exp(log_score),
        low=low,
        high=high,
        confidence=CONFIDENCE,
        ratios=tuple(_ratio(row, weight) for row, weight in ratios),
        left_out=(*left_out, *(row.case for row in rows if not row.is_usable)),
    )


def _ratio(row: Row, weight: float) -> Ratio:
    low, high = _interval(row.log_ratio, row.half)
    return Ratio(
        case=row.case,
        weight=weight,
        ratio=_exp(row.log_ratio),
        low=low,
        high=high,
        count=row.count,
    )


def _is_width(half: float) -> bool:
    return 0.0 < half < math.inf


def _interval(log: float, half: float) -> Ends:
    return (_exp(log - half), _exp(log + half)) if _is_width(half) else (None, None)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:  # a baseline that is absurd, not a fault of the appliance
        return math.inf
