"""A slow process that all cases share (temperature, say): 0.5 %, over 4 h; launches of 0.3 %.

A round of launches of 40 cases takes 6 minutes, so a run of 40 launches takes as long as the
process; the first five hardly notice it.
"""

import math

import numpy as np
from scipy.signal import lfilter

ROUND_HOURS, PROCESS_HOURS = 0.1, 4.0


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    rho = math.exp(-ROUND_HOURS / PROCESS_HOURS)
    shared = random.standard_normal((shape[0], 1, *shape[2:]))
    shared[..., 1:] *= math.sqrt(1 - rho**2)
    shared = np.asarray(lfilter([1.0], [1.0, -rho], shared, axis=-1))
    return 0.005 * shared + 0.003 * random.standard_normal(shape)
