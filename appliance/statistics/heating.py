"""Whether a device grows slower over a run, by the launches of all its cases together.

The slope is the median over all pairs of launches of one case (Theil and Sen, stratified), so a
case of other times, or one that was decided early, bends nothing. Its interval is Sen's (1968), of
Kendall's statistic summed over the cases. Launches of a device share its
temperature and its neighbours, so those that follow one another resemble each other, and the
interval is widened by what that may be (launch_dependence.py). Launches that tell no more than a
dozen independent ones tell nothing of a slope: how much they share is not known then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.statistics.launch_dependence import Dependence, dependence

Values = npt.NDArray[np.float64]

LEAST_LAUNCHES = 8
"""Of a device, all cases together: with fewer, what neighbours share cannot be estimated."""
LEAST_INDEPENDENT = 12
"""Independent launches that say as much; with fewer the errors exceed the risk (heating_trial)."""
MOST_PAIRS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Launches of one case on a device: seconds, and ln(seconds) of a step."""

    times_s: Values
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Change of ln(seconds) of a step in a second; the variance is of Kendall's statistic.

    `slopes` are those of all pairs, sorted; `dependence` is what launches may share.
    """

    slopes: Values
    variance: float
    dependence: Dependence
    span_s: float
    num_launches: int

    @property
    def value(self) -> float:
        return float(np.median(self.slopes))

    @property
    def num_independent(self) -> float:
        """So many independent launches would tell as much of the slope."""
        return self.num_launches / self.dependence.mean_factor

    def end(self, risk: float) -> float:
        """Upper end of the one-sided interval of this risk; infinite where none can be given."""
        return self._at(self._quantile(risk))

    def begin(self, risk: float) -> float:
        """Lower end of the one-sided interval of this risk; infinite where none can be given."""
        return self._at(-self._quantile(risk))

    def _quantile(self, risk: float) -> float:
        if self.num_independent < LEAST_INDEPENDENT:
            return math.inf
        return self.dependence.quantile(risk)

    def _at(self, z: float) -> float:
        count = len(self.slopes)
        if not math.isfinite(z):
            return z
        rank = (count + z * math.sqrt(self.variance)) / 2.0
        place = math.ceil(rank) if z > 0 else math.floor(rank) - 1
        return float(self.slopes[place]) if 0 <= place < count else math.copysign(math.inf, z)


def slope(cases: Sequence[Series]) -> Slope | None:
    """The slope of a device; None for too few launches, or any that is no finite number.

    None too where all were made at one moment, or all of a case took the same time.
    """
    cases = [one for one in cases if len(one.times_s) > 1]
    count = sum(len(one.times_s) for one in cases)
    if count < LEAST_LAUNCHES or not all(map(_is_finite, cases)):
        return None
    slopes = np.sort(np.concatenate([_pairs(one) for one in cases]))
    if not len(slopes) or len(slopes) > MOST_PAIRS or not np.ptp(slopes) > 0.0:
        return None
    return Slope(
        slopes=slopes,
        variance=sum(_variance(len(one.times_s)) for one in cases),
        dependence=_dependence(cases, float(np.median(slopes))),
        span_s=max(float(np.ptp(one.times_s)) for one in cases),
        num_launches=count,
    )


def _is_finite(one: Series) -> bool:
    return bool(np.isfinite(one.times_s).all() and np.isfinite(one.values).all())


def _pairs(one: Series) -> Values:
    """Slopes between any two launches of a case."""
    first, second = np.triu_indices(len(one.times_s), k=1)
    gaps = one.times_s[second] - one.times_s[first]
    is_apart = gaps != 0.0
    changes = (one.values[second] - one.values[first])[is_apart] / gaps[is_apart]
    return np.asarray(changes, dtype=np.float64)


def _variance(count: int) -> float:
    """Of Kendall's statistic, the sum of the signs of all pairs, of independent launches."""
    return count * (count - 1) * (2 * count + 5) / 18.0


def _dependence(cases: Sequence[Series], trend: float) -> Dependence:
    times = [one.times_s for one in cases]
    return dependence(times, [one.values - trend * one.times_s for one in cases])
