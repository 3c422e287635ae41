"""Where a series changes its level or its spread: exact optimal partitioning, pruned (PELT).

Killick, Fearnhead and Eckley (2012) find the segmentation with the least sum of costs, where a
segment costs its normal log-likelihood with a mean and a variance of its own, plus a penalty.
This is part of the verdict, so it is our own and small. All segments that could end within one
shortest length are weighed at once: none of them can begin inside of it, so what each may
follow is already known.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PENALTY_FACTOR = 15.0
"""Times ln(n): the penalty of Barrett et al. (2017), Virtual Machine Warmup Blows Hot and Cold."""
SHORTEST = 10
ADDED_VARIANCE = 1e-6
"""Added to every segment's variance, as ruptures does: a jitter of 0.1 % where values are ln(time).

It keeps the cost of a constant segment finite, and the ticks of a clock from counting as changes.
"""


def pelt(
    values: NDArray[np.float64], *, penalty: float | None = None, min_size: int = SHORTEST
) -> tuple[int, ...]:
    """Ends of the segments of the cheapest segmentation, in order; the last is len(values).

    `values` has shape (n,) and is finite. A segment holds at least `min_size` of them; `penalty`
    is paid for each segment, 15 ln n by default. Of segmentations that cost the same, the one
    whose last segment begins first.
    """
    count = len(values)
    if count < 2 * min_size:
        return (count,) if count else ()
    if penalty is None:
        penalty = PENALTY_FACTOR * math.log(count)
    centred = values - np.median(values)  # sums of squares lose digits far from zero
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    squares = np.concatenate(([0.0], np.cumsum(centred**2)))
    least = np.zeros(count + 1)  # cost of the best segmentation of all values before
    previous = np.zeros(count + 1, dtype=np.intp)
    starts = np.zeros(1, dtype=np.intp)
    for first in range(min_size, count + 1, min_size):
        segment_ends = np.arange(first, min(first + min_size, count + 1))
        before = starts[:, np.newaxis]
        lengths = segment_ends - before
        means = (sums[segment_ends] - sums[before]) / lengths
        variances = (squares[segment_ends] - squares[before]) / lengths - means**2
        costs = least[before] + lengths * np.log(np.maximum(variances, 0.0) + ADDED_VARIANCE)
        costs[lengths < min_size] = math.inf
        best = costs.argmin(axis=0)
        least[segment_ends] = costs[best, np.arange(len(segment_ends))] + penalty
        previous[segment_ends] = starts[best]
        # A segment never costs less than its two parts, so a start from which it is dearer to come
        # here than to end a segment here stays the dearer one wherever a segment that begins here
        # may end: from `first + min_size` on, which is where the next round begins.
        is_kept = (costs[:, 0] <= least[first]) | (lengths[:, 0] < min_size)
        starts = np.concatenate((starts[is_kept], segment_ends))
    ends = [count]
    while (end := int(previous[ends[-1]])) > 0:
        ends.append(end)
    return tuple(reversed(ends))
