"""A temperature that swings: 0.7 % up and down in 6 h, shared by all cases; launches of 0.3 %.

A run begins at any time of the swing. A round of launches of 40 cases takes 6 minutes, so the first
five see one place of it and 40 two thirds.
"""

import numpy as np

AMPLITUDE, PERIOD_HOURS, ROUND_HOURS = 0.007, 6.0, 0.1


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    nodes, _, runs, launches = shape
    begin = random.random((nodes, 1, runs, 1))
    phase = begin + ROUND_HOURS / PERIOD_HOURS * np.arange(launches)
    return AMPLITUDE * np.sin(2 * np.pi * phase) + 0.003 * random.standard_normal(shape)
