"""How far beyond the mean of a reference population a limit must lie to spare its healthy devices.

Healthy devices of one model differ, and a handful of them shows their spread only roughly. The
one-sided normal tolerance limit allows for both: mean + k sd lies, with confidence gamma, above
the part p of all devices. A practical margin narrower than it would reject good ones.
"""

from __future__ import annotations

import math

from scipy.special import nctdtrit, ndtri

LEAST_DEVICES = 2


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
