"""The model that virtual step times are drawn from.

ln(step time) is the sum of what the workload needs, of the device, of the launch, of the block and
of autocorrelated steps, as the statistics assume; on top of it stands what goes wrong in the field:
stalls, warm-up, launches of two modes, a change of level, a pace that varies over the run. All
launches of a case are drawn at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pace = Callable[[Array], Array]
"""Factor on the step time, given the seconds since the run began."""
LAUNCH_SD = 0.01


def steady(seconds: Array) -> Array:
    """A pace that does not vary."""
    return np.ones_like(seconds)


def throttle(after_seconds: float, factor: float) -> Pace:
    """Slower by `factor` from so many seconds into the run."""
    return lambda seconds: np.where(seconds < after_seconds, 1.0, factor)


def sawtooth(size: float, period_seconds: float) -> Pace:
    """Rises from 1 - size to 1 + size and falls back, again and again."""
    return lambda seconds: 1.0 - size + 2.0 * size * np.mod(seconds / period_seconds, 1.0)


def creep(per_hour: float) -> Pace:
    """Slower and slower, by this part in each hour."""
    return lambda seconds: 1.0 + per_hour * seconds / 3600.0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The model of one case on one device; spreads are standard deviations of ln(step time).

    `effect` is ln of what the device is slower by; `rho` the correlation of a step with the one
    before it, which leaves `step_sd` as it is. A part `stall_rate` of the steps takes 1 + Exp(1)
    times as long. The first steps are longer by `warm_up`, which dies away over `warm_up_steps`.
    A part `slow_rate` of the launches is slower by `slow_factor`. From the part `change_at` of a
    launch on, steps are slower by `change_factor`. `has_events`: the device tells its own time.
    """

    step_seconds: float = 0.1
    effect: float = 0.0
    launch_sd: float = LAUNCH_SD
    block_sd: float = 0.001
    step_sd: float = 0.005
    rho: float = 0.0
    stall_rate: float = 0.0
    warm_up: float = 0.0
    warm_up_steps: float = 10.0
    slow_rate: float = 0.0
    slow_factor: float = 1.08
    change_at: float = 1.0
    change_factor: float = 1.0
    pace: Pace = steady
    has_events: bool = False

    def draw(self, rng: np.random.Generator, *, launches: int, warm: int, shape: Shape) -> Array:
        """Seconds of every step but for the pace, (launches, warm-up steps + timed steps)."""
        timed = shape.blocks * shape.steps
        logs = np.full((launches, warm + timed), math.log(self.step_seconds) + self.effect)
        logs += self.launch_sd * rng.standard_normal((launches, 1))
        logs += math.log(self.slow_factor) * (rng.random((launches, 1)) < self.slow_rate)
        blocks = self.block_sd * rng.standard_normal((launches, shape.blocks))
        logs[:, warm:] += np.repeat(blocks, shape.steps, axis=1)
        logs += self.step_sd * _autoregressive(rng.standard_normal(logs.shape), self.rho)
        stalls = np.log1p(rng.exponential(size=logs.shape))
        logs += np.where(rng.random(logs.shape) < self.stall_rate, stalls, 0.0)
        numbers = np.arange(logs.shape[1])
        logs += np.log1p(self.warm_up * np.exp(-numbers / self.warm_up_steps))
        logs += math.log(self.change_factor) * (numbers >= warm + self.change_at * timed)
        seconds: Array = np.exp(logs)
        return seconds


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Blocks of a launch, and steps of a block."""

    blocks: int
    steps: int


def _autoregressive(noise: Array, rho: float) -> Array:
    """Rows of unit normal noise as first-order autoregressive series of unit spread."""
    if rho == 0.0:
        return noise
    scale = math.sqrt(1.0 - rho * rho)
    columns = noise.T.copy()
    for index in range(1, len(columns)):
        columns[index] = rho * columns[index - 1] + scale * columns[index]
    return columns.T
