"""A ruling in the terms of JCGM 106:2012, conformity assessment under measurement uncertainty.

The limit of a criterion is a tolerance limit T. Accepted is not what measures below T, but what
measures below the acceptance limit A = T - w: the guard band w is so wide that a device at the
limit or beyond it is accepted with the stated risk at most (guarded acceptance, 8.3.2). Rejected is
what measures above T plus a band of its own (guarded rejection, 8.3.3). Between both nothing is
ruled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import stdtr


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardBand:
    """One measured quantity at one upper tolerance limit; all in ln(seconds).

    `uncertainty` is the standard uncertainty for acceptance, with `freedom`; `factor` how many of
    it make the band. Those of `rejection_` are for a fail.
    """

    value: float
    limit: float
    uncertainty: float
    freedom: float
    factor: float
    rejection_uncertainty: float
    rejection_freedom: float
    rejection_factor: float

    @property
    def width(self) -> float:
        """Of the guard band for acceptance."""
        return self.factor * self.uncertainty

    @property
    def acceptance_limit(self) -> float:
        return self.limit - self.width

    @property
    def rejection_limit(self) -> float:
        return self.limit + self.rejection_factor * self.rejection_uncertainty

    @property
    def consumer_risk(self) -> float:
        """Specific consumer's risk: that what measures so is beyond the limit (JCGM 106, 3.3.13).

        By a flat prior, so it is the probability of Student's t beyond the limit.
        """
        return _tail(self.value - self.limit, self.uncertainty, self.freedom)

    @property
    def producer_risk(self) -> float:
        """Specific producer's risk: that what measures so is within the limit."""
        distance = self.limit - self.value
        return _tail(distance, self.rejection_uncertainty, self.rejection_freedom)


def _tail(distance: float, uncertainty: float, freedom: float) -> float:
    """NaN where nothing is known of the uncertainty."""
    return float(stdtr(freedom, distance / uncertainty)) if uncertainty > 0.0 else math.nan
