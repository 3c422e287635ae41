"""Launches of heavy tails: Student's t of three degrees of freedom, a CV of 0.7 %, independent."""

import math

import numpy as np


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    return 0.007 / math.sqrt(3.0) * random.standard_t(3, shape)
