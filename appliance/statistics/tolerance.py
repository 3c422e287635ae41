"""Margins from a few values, by Student's t: a limit that spares a population, and equivalence.

Healthy devices of one model differ, and a handful of them shows their spread only roughly. The
one-sided normal tolerance limit allows for both: mean + k sd lies, with confidence gamma, above
the part p of all devices. A practical margin narrower than it would reject good ones.

Whether two ways of doing the same differ by less than a margin is shown by two one-sided tests (D.
J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", Journal
of Pharmacokinetics and Biopharmaceutics 15, 1987). That they differ by more is shown by the same
interval lying wholly beyond the margin; between both nothing is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import nctdtrit, ndtri, stdtrit

LEAST_DEVICES = 2
LEAST_PAIRS = 2

Equivalence = Literal["equivalent", "different", "undecided"]


@lru_cache(maxsize=256)
def tolerance_factor(count: int, p: float, gamma: float) -> float:
    """Factor k of the one-sided normal tolerance limit of `count` devices.

    Student's noncentral t of `count` - 1 degrees of freedom and noncentrality z_p sqrt(count), at
    gamma, over sqrt(count). NaN for fewer than two devices, or where `p` or `gamma` is not between
    0 and 1: a limit from it is no number, and such a limit is never met.
    """
    if count < LEAST_DEVICES or not (0.0 < p < 1.0 and 0.0 < gamma < 1.0):
        return math.nan
    root = math.sqrt(count)
    return float(nctdtrit(count - 1, float(ndtri(p)) * root, gamma)) / root


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """How many times as large one of two quantities is as the other, by `num_pairs` pairs.

    `mean` is of ln(ratio), and `error` its standard error.
    """

    mean: float
    error: float
    num_pairs: int

    @property
    def ratio(self) -> float:
        return math.exp(self.mean)

    def interval(self, risk: float) -> tuple[float, float]:
        """The ratio's interval that misses it on either side with this risk."""
        half = self.error * float(stdtrit(self.num_pairs - 1, 1.0 - risk))
        return math.exp(self.mean - half), math.exp(self.mean + half)


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> PairedRatio | None:
    """The ratio of the second of each pair to its first; None of fewer than two, or without one.

    Both numbers of a pair are positive and of one moment, so that what drifts meets both.
    """
    if len(pairs) < LEAST_PAIRS or not all(
        0.0 < value < math.inf for pair in pairs for value in pair
    ):
        return None
    logs = np.array([math.log(second / first) for first, second in pairs])
    error = float(np.std(logs, ddof=1) / math.sqrt(len(logs)))
    return PairedRatio(mean=float(np.mean(logs)), error=error, num_pairs=len(logs))


def equivalence(
    ratio: PairedRatio, margin: float, *, equivalence_risk: float, difference_risk: float
) -> Equivalence:
    """Whether the ratio lies within 1 / (1 + margin) and 1 + margin, or beyond, as far as is shown.

    Each is shown wrongly with its risk at most, by pairs whose ln(ratio) is normal.
    """
    low, high = ratio.interval(equivalence_risk)
    if low > 1.0 / (1.0 + margin) and high < 1.0 + margin:
        return "equivalent"
    low, high = ratio.interval(difference_risk)
    is_beyond = low > 1.0 + margin or high < 1.0 / (1.0 + margin)
    return "different" if is_beyond else "undecided"
