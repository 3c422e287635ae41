"""One number for a suite: the weighted geometric mean of speeds against the baseline.

S = exp(sum of w ln(t_baseline / t)) over the cases, with weights that sum to 1, as users of
Milabench expect. It is for comparing at a glance and offsets no criterion. Its interval speaks
of these cases and of the spread between their launches: the baseline is frozen and taken as
exact, and another choice of workloads is another suite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from appliance.records.verdict import Ratio, Score
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES

Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the score takes of one case: ln(seconds) of its baseline and of its launches.

    `log_mean` and `log_sd` are over `count` launch statistics; `log_sd` has no meaning for one.
    `weight` is that of the suite file, on any scale.
    """

    case: str
    weight: float
    log_baseline: float
    log_mean: float
    log_sd: float
    count: int

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of the speed against the baseline."""
        return self.log_baseline - self.log_mean

    @property
    def variance(self) -> float:
        """Of `log_ratio`; NaN below five launches."""
        if self.count < LEAST_LAUNCHES:
            return math.nan
        return self.log_sd * self.log_sd / self.count

    @property
    def is_usable(self) -> bool:
        """True for a positive weight, at least one launch, and figures that are finite."""
        has_spread = self.count == 1 or (math.isfinite(self.log_sd) and self.log_sd >= 0)
        is_finite = math.isfinite(self.weight) and math.isfinite(self.log_ratio)
        return is_finite and has_spread and self.weight > 0 and self.count >= 1


def suite_score(rows: Sequence[Row], left_out: Sequence[str] = ()) -> Score | None:
    """Score, and the ratio of each case, with t intervals of 95 %; None where no row is usable.

    The score's variance is the sum of w**2 s**2 / n, its degrees of freedom are Satterthwaite's.
    There is no interval below five launches of a case (for the score: of any case), nor where
    all launches took the same time. `left_out` are cases without a row; rows that are not usable
    join them. The weights of the ratios sum to 1.
    """
    usable = [row for row in rows if row.is_usable]
    if not usable:
        return None
    total = math.fsum(row.weight for row in usable)
    weights = [row.weight / total for row in usable]
    log_score = math.fsum(
        weight * row.log_ratio for weight, row in zip(weights, usable, strict=True)
    )
    parts = [weight * weight * row.variance for weight, row in zip(weights, usable, strict=True)]
    low, high = _interval(log_score, math.fsum(parts), _freedom(parts, usable))
    return Score(
        value=_exp(log_score),
        low=low,
        high=high,
        confidence=CONFIDENCE,
        ratios=tuple(_ratio(row, weight) for row, weight in zip(usable, weights, strict=True)),
        left_out=(*left_out, *(row.case for row in rows if not row.is_usable)),
    )


def _ratio(row: Row, weight: float) -> Ratio:
    low, high = _interval(row.log_ratio, row.variance, row.count - 1)
    return Ratio(
        case=row.case,
        weight=weight,
        ratio=_exp(row.log_ratio),
        low=low,
        high=high,
        count=row.count,
    )


def _freedom(parts: Sequence[float], rows: Sequence[Row]) -> float:
    """Satterthwaite: (sum of parts)**2 / sum of part**2 / (n - 1), by shares of the sum."""
    total = math.fsum(parts)
    if not total > 0:
        return math.nan
    shares = [part / total for part in parts]
    return 1 / math.fsum(
        share * share / (row.count - 1) for share, row in zip(shares, rows, strict=True)
    )


def _interval(log: float, variance: float, freedom: float) -> Ends:
    if not variance > 0:  # NaN too: too few launches
        return None, None
    half = math.sqrt(variance) * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    return (_exp(log - half), _exp(log + half)) if math.isfinite(half) else (None, None)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:  # a baseline that is absurd, not a fault of the appliance
        return math.inf
