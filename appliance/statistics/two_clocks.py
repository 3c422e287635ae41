"""The clock that a case is judged by: its steps' own, or the wall of its blocks.

A step is timed by its device's events, where the device has a clock; that is what noise of the host
moves least. But who makes the device makes that clock. So events are judged only as far as the wall
bears them out: for each block the sum of its steps' times is held to the wall time of the whole
block, less what timing so many steps costs. Where more is missing than a sixth of the smallest
margin that the case is judged with, all launches of the case are judged by the wall, block by
block: seconds of a block over its steps. That accuses nobody; short steps are always judged so.

What timing costs was measured in the same launch, by steps that do nothing, and a device could make
those slow. So no more is subtracted than a sixth of the margin of a step's wall, nor than
`LARGEST_OVERHEAD`. On one H100 the wall of steps under 0.3 ms exceeded their events by 12 to 22 us
(bench 0.4.0, nine launches); for longer steps the rest of the difference is of the step itself. So
the events that are judged, and the wall, are at most a third of the margin apart.

Two things are held, each in ln: the sum over blocks, of which the one block where most is missing
is left out (it may have stalled, and one stall must not decide), and the medians of the steps,
which are what is judged. A step earns no more than its own wall: a few long ones cannot make up for
many short ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.records.verdict import Clock
from appliance.statistics.estimates import BlockFigures

PART = 1 / 6
"""Of the margin: what may be missing, and what may be subtracted."""
USUAL_MARGIN = 0.03
"""Where no criterion sets one: that of a launch which is called slow."""
LARGEST_OVERHEAD = 25e-6
"""Seconds a step that timing may cost at most."""
LEAST_BLOCKS = 3
"""Blocks from which on the one with most missing is left out."""
NEAR = 1e-9
"""So near to the bound the wall is judged, however the last digit was rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBlock:
    """A block, and the seconds of a step that does nothing in its launch; None: not measured."""

    figures: BlockFigures
    overhead: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChoice:
    """Which clock a case is judged by, and why.

    `missing` is what its steps lack of the wall, in ln, where `allowed` is the most for which the
    steps are judged. `overhead` is the median of what timing a step cost, in seconds (None: not
    measured in any launch), `subtracted` the mean of what of it counted. `ratio` is the sum of all
    steps over the wall of their blocks less that, `least_ratio` the least of a block.
    """

    clock: Clock
    missing: float
    allowed: float
    overhead: float | None
    subtracted: float
    ratio: float
    least_ratio: float


def choose(blocks: Sequence[TimedBlock], margin: float) -> ClockChoice:
    """The clock of a case with these blocks in all of its launches; `margin` is like 0.03."""
    allowed = PART * math.log1p(max(0.0, margin))
    sums = sorted(_missing_of_sum(block, allowed) for block in blocks)
    medians = [_missing_of_median(block, allowed) for block in blocks]
    missing = max(_mean(sums[:-1] if len(sums) >= LEAST_BLOCKS else sums), _mean(medians))
    walls = [_wall_of_sum(block, allowed) for block in blocks]
    steps = [block.figures.accounted for block in blocks]
    measured = [block.overhead for block in blocks if block.overhead is not None]
    return ClockChoice(
        clock="steps" if missing <= allowed - NEAR or not blocks else "wall",
        missing=missing,
        allowed=allowed,
        overhead=statistics.median(measured) if measured else None,
        subtracted=_mean([subtracted(block, allowed) for block in blocks]),
        ratio=_ratio(sum(steps), sum(walls)),
        least_ratio=min(map(_ratio, steps, walls), default=math.nan),
    )


def subtracted(block: TimedBlock, allowed: float) -> float:
    """Seconds of each step that count as the cost of timing it."""
    figures = block.figures
    if block.overhead is None or not figures.num_steps or not math.isfinite(figures.median_wall):
        return 0.0
    wall = min(figures.held / figures.num_steps, math.exp(figures.median_wall))
    return max(0.0, min(block.overhead, allowed * wall, LARGEST_OVERHEAD))


def _missing_of_sum(block: TimedBlock, allowed: float) -> float:
    """What all steps of a block lack of its wall; 0 where they lack nothing."""
    return _missing(_wall_of_sum(block, allowed), block.figures.accounted)


def _wall_of_sum(block: TimedBlock, allowed: float) -> float:
    """Seconds of a block less what timing its steps cost."""
    return block.figures.held - block.figures.num_steps * subtracted(block, allowed)


def _ratio(steps: float, wall: float) -> float:
    return steps / wall if wall > 0 else math.nan


def _missing_of_median(block: TimedBlock, allowed: float) -> float:
    """What the median step lacks of its own wall."""
    figures = block.figures
    wall = math.exp(figures.median_wall) - subtracted(block, allowed)
    return _missing(wall, math.exp(figures.log_seconds))


def _missing(wall: float, accounted: float) -> float:
    """Infinite where one of them is no time."""
    is_time = 0.0 < wall < math.inf and 0.0 < accounted < math.inf
    return max(0.0, math.log(wall / accounted)) if is_time else math.inf


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
