"""How steps are timed: consecutive samples in a block, each closed by a synchronise.

Nothing here knows a device: the clocks and the synchronise come from outside. Between the two
readings of a sample there is the step and the synchronise, nothing else; garbage collection
is off, the device's own marks are read and records are made after the block.

A host whose clock runs slow looks fast. So the host has a second clock, which no time service
corrects: whole blocks are measured by both, samples by the first alone, because every reading
between them would be timed too. Before the steady state the clocks, and the device's if it has
one, are compared over work that is made for this alone.

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
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

NUM_SPANS = 3
"""Spans of work over which a launch compares its clocks; one alone may be disturbed."""
_CLOSE_NS = 2_000
_TRIES = 5
"""Readings of both clocks at most, until one is so close together that nothing came between."""


class Stopwatch(Protocol):
    """The clocks and the device, as the worker has them."""

    def now(self) -> int:
        """Nanoseconds of the clock of all samples, which never runs backwards."""

    def raw(self) -> int:
        """Nanoseconds of a second clock, whose rate nobody corrects."""

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


@dataclass(frozen=True, kw_only=True)
class Span:
    """One stretch of time in nanoseconds, by each clock; the device's is None where it has none."""

    wall_ns: int
    raw_ns: int
    event_ns: int | None = None


@dataclass(kw_only=True)
class Samples:
    """One block: times of its steps in nanoseconds, and what its last step needs to be checked."""

    wall_ns: list[int] = field(default_factory=list)
    event_ns: list[int] | None = None
    block_wall_ns: int = 0
    block_raw_ns: int = 0
    before: object = None
    output: Any = None

    def begin_with(self, step: Span) -> None:
        """Put a step that was timed alone before the others."""
        self.wall_ns.insert(0, step.wall_ns)
        if step.event_ns is not None:
            self.event_ns = [step.event_ns, *(self.event_ns or ())]
        self.block_wall_ns += step.wall_ns
        self.block_raw_ns += step.raw_ns


@dataclass(frozen=True)
class _Moment:
    """One moment by both clocks of the host."""

    wall_ns: int
    raw_ns: int

    def until(self, later: _Moment) -> Span:
        return Span(wall_ns=later.wall_ns - self.wall_ns, raw_ns=later.raw_ns - self.raw_ns)


def _moment(stopwatch: Stopwatch) -> _Moment:
    """Read both clocks; again if something came between, which would look like a false clock."""
    readings = []
    for _ in range(_TRIES):
        first, raw, last = stopwatch.now(), stopwatch.raw(), stopwatch.now()
        readings.append((last - first, _Moment((first + last) // 2, raw)))
        if last - first <= _CLOSE_NS:
            break
    return min(readings, key=lambda reading: reading[0])[1]


def one(step: Callable[[], Any], stopwatch: Stopwatch) -> tuple[Any, Span]:
    """Output of one step and its time."""
    begin = _moment(stopwatch)
    first = stopwatch.mark()
    output = step()
    last = stopwatch.mark()
    stopwatch.synchronise()
    span = begin.until(_moment(stopwatch))
    event_ns = None if first is None else stopwatch.between(first, last)
    return output, replace(span, event_ns=event_ns)


def compare_clocks(
    work: Callable[[], object], stopwatch: Stopwatch, nanoseconds: int
) -> tuple[Span, ...]:
    """Spans of at least `nanoseconds` in all, by each clock, in which `work` is done repeatedly."""

    def keep_busy() -> None:
        until = stopwatch.now() + nanoseconds // NUM_SPANS
        while True:
            work()
            stopwatch.synchronise()
            if stopwatch.now() >= until:
                return

    stopwatch.synchronise()
    return tuple(one(keep_busy, stopwatch)[1] for _ in range(NUM_SPANS))


def warm_up(step: Callable[[], Any], stopwatch: Stopwatch, length: Length) -> tuple[int, ...]:
    """Times of steps that nobody judges, in nanoseconds; so many that they have the length."""
    times: list[int] = []
    passed = 0
    while len(times) < length.steps or passed < length.nanoseconds:
        times.append(one(step, stopwatch)[1].wall_ns)
        passed += times[-1]
    return tuple(times)


def steps_within(nanoseconds: int, times: Sequence[int]) -> int:
    """Number of steps that take so long, at the median of these times; none for no time."""
    return max(0, math.ceil(nanoseconds / max(1, sorted(times)[len(times) // 2])))


def block(
    step: Callable[[], Any],
    stopwatch: Stopwatch,
    length: Length,
    snapshot: Callable[[], object] | None = None,
) -> Samples:
    """Time consecutive steps; with `snapshot`, the last has what its check needs in `before`.

    `block_wall_ns` and `block_raw_ns` run from before the first step to after the last one,
    without the snapshots.
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
    longest = paused = paused_raw = passed = 0
    origin = _moment(stopwatch)
    while True:
        may_be_last = (
            len(samples.wall_ns) + 1 >= length.steps and passed + longest >= length.nanoseconds
        )
        samples.output = None  # freed before the step, not inside it
        if snapshot is not None and may_be_last:
            pause = _moment(stopwatch)
            samples.before = snapshot()
            synchronise()
            pausing = pause.until(_moment(stopwatch))
            paused += pausing.wall_ns
            paused_raw += pausing.raw_ns
        begin = now()
        first = mark()
        samples.output = step()
        last = mark()
        synchronise()
        end = now()
        samples.wall_ns.append(end - begin)
        marks.append((first, last))
        longest = max(longest, end - begin)
        passed = end - origin.wall_ns - paused
        is_long_enough = len(samples.wall_ns) >= length.steps and passed >= length.nanoseconds
        if is_long_enough and (snapshot is None or may_be_last):
            break
    whole = origin.until(_moment(stopwatch))
    samples.block_wall_ns = whole.wall_ns - paused
    samples.block_raw_ns = whole.raw_ns - paused_raw
    if marks[0][0] is not None:
        samples.event_ns = [stopwatch.between(*pair) for pair in marks]
    return samples
