"""Launches of two modes: one in ten is 3 % slower (memory lies elsewhere, say), each within 0.3 %.

A mean over both is the truth, and the CV is 0.95 %.
"""

import numpy as np

PART, SHIFT = 0.1, 0.03


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    is_slow = random.random(shape) < PART
    return SHIFT * (is_slow - PART) + 0.003 * random.standard_normal(shape)
