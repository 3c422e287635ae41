"""Samples to estimates: pure functions of what the journal holds.

The independent unit is the launch, not the iteration: within-launch spread understates the
spread between launches up to twentyfold, so an interval over iterations would promise what it
cannot keep. A block's statistic is the median of ln(step time), which a few stalls do not
move; a launch's is the mean of its block medians; an estimate is a mean over launches with
Student's t interval, given for five launches or more. No sample is ever dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

from appliance.records import Block, Estimate, Work

CONFIDENCE = 0.95
LEAST_LAUNCHES = 5
METHOD = "geometric mean over launches, Student's t on ln(step time)"


def planned_looks(looks: Sequence[int], launches: int) -> tuple[int, ...]:
    """Launch counts at which a case of so many launches is judged; the last is all of them."""
    return (*(look for look in looks if look < launches), launches)


def block_statistic(block: Block) -> float:
    """Median of ln(seconds) of the steps of a block; device time where there is one.

    NaN when the block has no step, a time that is not positive, or not one device time for each
    step: a fault, never a zero.
    """
    times = block.event_ns if block.event_ns is not None else block.wall_ns
    if not times or min(times) <= 0 or len(times) != len(block.wall_ns):
        return math.nan
    return float(np.median(np.log(np.asarray(times, dtype=np.float64) * 1e-9)))


def launch_statistic(blocks: Sequence[Block]) -> float | None:
    """Mean of the block medians of ln(seconds); None for a launch without blocks."""
    return float(np.mean([block_statistic(block) for block in blocks])) if blocks else None


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Two-sided t interval of the mean; None below five values or if one is not finite."""
    if not _are_enough(values):
        return None
    mean, half = (
        float(np.mean(values)),
        _standard_error(values) * float(stdtrit(len(values) - 1, 0.5 + confidence / 2)),
    )
    return mean - half, mean + half


def risk_below(values: Sequence[float], limit: float) -> float:
    """One-sided p-value of "the mean is at or above `limit`"; small means: it is below.

    1.0, which earns no ruling, with fewer than five launches, with a value or limit that is not
    finite, and where all launches took the same time to the last digit: a clock that stands or
    copied samples, from which Student's t would conclude anything with certainty.
    """
    if not _are_enough(values) or not math.isfinite(limit) or min(values) == max(values):
        return 1.0
    distance = float(np.mean(values)) - limit
    return float(stdtr(len(values) - 1, distance / _standard_error(values)))


def _are_enough(values: Sequence[float]) -> bool:
    return len(values) >= LEAST_LAUNCHES and all(math.isfinite(value) for value in values)


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def timing_estimates(
    launches: Sequence[float], first_steps: Sequence[float], work: Work
) -> tuple[Estimate, ...]:
    """Step time and the rates that follow from it, and the time to the first step.

    `launches` are launch statistics (ln seconds), `first_steps` seconds.
    """
    found = []
    if launches and all(math.isfinite(value) for value in launches):
        mean, bounds = float(np.mean(launches)), interval(launches)
        ends = [None, None] if bounds is None else [math.exp(end) for end in bounds]
        found.append(_estimate("step_seconds", math.exp(mean), "s", (ends[0], ends[1]), launches))
        for name, amount, unit in (
            ("units_per_second", work.units, f"{work.unit}/s"),
            ("flops_per_second", work.flops, "FLOP/s"),
            ("bytes_per_second", work.bytes, "B/s"),
        ):
            if amount is not None and math.isfinite(amount) and amount > 0:
                low, high = (None if end is None else amount / end for end in reversed(ends))
                rate = amount / math.exp(mean)
                found.append(_estimate(name, rate, unit, (low, high), launches))
    if first_steps:
        found.append(
            Estimate(
                name="first_step_seconds",
                value=float(np.median(first_steps)),
                unit="s",
                low=min(first_steps),
                high=max(first_steps),
                confidence=None,
                method="median, smallest and largest over launches; kept apart from steady state",
                count=len(first_steps),
            )
        )
    return tuple(found)


def _estimate(
    name: str,
    value: float,
    unit: str,
    ends: tuple[float | None, float | None],
    launches: Sequence[float],
) -> Estimate:
    return Estimate(
        name=name,
        value=value,
        unit=unit,
        low=ends[0],
        high=ends[1],
        confidence=None if ends[0] is None else CONFIDENCE,
        method=METHOD if ends[0] is not None else "geometric mean; too few launches for bounds",
        count=len(launches),
    )
