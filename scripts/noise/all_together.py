"""Neighbours of 1 % and 0.6, levels of runs of 0.5 %, and a shared slow process of 0.5 %."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import neighbours
import slow_process


def noise(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """ln(seconds) around the truth: nodes, cases, runs on days of their own, launches in order."""
    levels = 0.005 * random.standard_normal((*shape[:3], 1))
    return levels + neighbours.noise(random, shape) + slow_process.noise(random, shape)
