"""A level of its own for each case in each run, 0.5 %, and quiet launches, 0.3 %."""

import numpy as np


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    levels = 0.005 * random.standard_normal((*shape[:3], 1))
    return levels + 0.003 * random.standard_normal(shape)
