"""Launches with a CV of 1 % that resemble those before them: autoregression of 0.6."""

import math

import numpy as np
from scipy.signal import lfilter


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    values = random.standard_normal(shape)
    values[..., 1:] *= math.sqrt(1 - 0.6**2)
    return 0.01 * np.asarray(lfilter([1.0], [1.0, -0.6], values, axis=-1))
