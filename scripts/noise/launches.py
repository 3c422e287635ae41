"""Independent launches with a CV of 1 %."""

import numpy as np


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    return 0.01 * random.standard_normal(shape)
