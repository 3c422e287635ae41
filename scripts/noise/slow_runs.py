"""One run in ten is 1.6 % slower in all its cases; launches of 0.3 %.

A baseline of twelve runs has none of these in 28 %, and then knows nothing of them.
"""

import numpy as np

PART, SHIFT = 0.1, 0.016


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    is_slow = random.random((shape[0], 1, shape[2], 1)) < PART
    return SHIFT * (is_slow - PART) + 0.003 * random.standard_normal(shape)
