"""How steps are timed: consecutive samples in a block, each closed by a synchronise.

Nothing here knows a device: the clock and the synchronise come from outside. Between the two
readings of a sample there is the step and the synchronise, nothing else; garbage collection
is off, and records are made after the block.

The last sample of a launch is to be checked, and a check may need the state from before it,
which `snapshot` keeps. Which step will be the last is not known when a block ends by time. So
before each step that may end the block (the longest sample so far, added to the time that has
passed, reaches the block's length) a snapshot is taken, with the clock of the block stopped. A
step that ends the block against expectation is followed by one more, so a block that is to be
checked always ends with a step that has its snapshot. The alternative, to take one before each
step, would put a copy of the model's weights between all samples.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class Stopwatch(Protocol):
    """The clock and the device, as the worker has them."""

    def now(self) -> int:
        """Nanoseconds of a clock that never runs backwards."""

    def synchronise(self) -> None:
        """Return when the device has done all that it was given."""

    def mark(self) -> Any:
        """A point in the device's own time; None where it has no clock of its own."""

    def between(self, begin: Any, end: Any) -> int:
        """Nanoseconds between two points, both of them reached."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """A block has at least so many steps and takes at least so long."""

    steps: int
    nanoseconds: int = 0


@dataclass(kw_only=True)
class Samples:
    """One block: times of its steps in nanoseconds, and what its last step needs to be checked."""

    wall_ns: list[int] = field(default_factory=list)
    event_ns: list[int] | None = None
    block_wall_ns: int = 0
    before: object = None
    output: Any = None


def one(step: Callable[[], Any], stopwatch: Stopwatch) -> tuple[Any, int]:
    """Output of one step and its time."""
    begin = stopwatch.now()
    output = step()
    stopwatch.synchronise()
    return output, stopwatch.now() - begin


def block(
    step: Callable[[], Any],
    stopwatch: Stopwatch,
    length: Length,
    snapshot: Callable[[], object] | None = None,
) -> Samples:
    """Time consecutive steps; with `snapshot`, the last has what its check needs in `before`.

    `block_wall_ns` runs from the first step's begin to the last one's end, without the
    snapshots.
    """
    stopwatch.synchronise()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _block(step, stopwatch, length, snapshot)
    finally:
        if was_enabled:
            gc.enable()


def _block(
    step: Callable[[], Any],
    stopwatch: Stopwatch,
    length: Length,
    snapshot: Callable[[], object] | None,
) -> Samples:
    samples, marks = Samples(), []
    now, synchronise, mark = stopwatch.now, stopwatch.synchronise, stopwatch.mark
    longest = paused = passed = 0
    origin = now()
    while True:
        may_be_last = (
            len(samples.wall_ns) + 1 >= length.steps and passed + longest >= length.nanoseconds
        )
        samples.output = None  # freed before the step, not inside it
        if snapshot is not None and may_be_last:
            pause = now()
            samples.before = snapshot()
            synchronise()
            paused += now() - pause
        begin = now()
        first = mark()
        samples.output = step()
        last = mark()
        synchronise()
        end = now()
        samples.wall_ns.append(end - begin)
        marks.append((first, last))
        longest = max(longest, end - begin)
        passed = end - origin - paused
        is_long_enough = len(samples.wall_ns) >= length.steps and passed >= length.nanoseconds
        if is_long_enough and (snapshot is None or may_be_last):
            break
    samples.block_wall_ns = passed
    if marks[0][0] is not None:
        samples.event_ns = [stopwatch.between(*pair) for pair in marks]
    return samples
