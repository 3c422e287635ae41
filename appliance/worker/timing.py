"""How steps are timed: consecutive samples in a block, each closed by a synchronise.

Nothing here knows a device: the clocks and the synchronise come from outside. Between the two
readings of a sample there is the loading of its input where a pipeline feeds it (with a reading of
its own after it), the step, the wait of another library, and the synchronise, nothing else; garbage
collection is off, the device's own marks are read and records are made after the block.

A host whose clock runs slow looks fast. So the host has a second clock, which no time service
corrects: whole blocks are measured by both, samples by the first alone, because every reading
between them would be timed too. Before the steady state the clocks, and the device's if it has
one, are compared over work that is made for this alone. A few blocks of steps that do nothing,
timed by the same loop, show what timing costs: the part of a step that its device's clock cannot
know.

Whatever else must be done between two steps is done with the clock of the block stopped: keeping
the state from before a step that will be checked and the output of one that was drawn, and asking
whether training has come to its target.

The last sample of a launch is to be checked, and a check may need the state from before it,
which `snapshot` keeps. Which step will be the last is not known when a block ends by time. So
before each step that may end the block (the longest sample so far, added to the time that has
passed, reaches the block's length; or the target is asked for after it) a snapshot is taken. A
step that ends the block against expectation is followed by one more, so a block that is to be
checked always ends with a step that has its snapshot. The alternative, to take one before each
step, would put a copy of the model's weights between all samples.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from appliance.planning.launch_constants import (
    EMPTY_BLOCK_STEPS,
    LONGEST_CLOCK_SECONDS,
    NUM_CLOCK_SPANS,
    NUM_EMPTY_BLOCKS,
    WIDEST_BRACKET,
)

T = TypeVar("T")

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
class Step:
    """One step as it is timed: its input is loaded, it is made, and it is waited for.

    Where another library is waited for, it gave the device its work, of which the marks know
    nothing: between them lies the time of handing it over, so the host's clock alone counts.
    """

    make: Callable[[], Any]
    load: Callable[[], object] | None = None
    wait: Callable[[], object] | None = None

    def marker(self, stopwatch: Stopwatch) -> Callable[[], Any]:
        """What gives a point in the device's own time; None where that says nothing of the step."""
        return stopwatch.mark if self.wait is None else lambda: None

    def emptied(self) -> Step:
        """A step of the same parts that does nothing in any of them."""
        load = None if self.load is None else _nothing
        return Step(make=_nothing, load=load, wait=None if self.wait is None else _nothing)


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class BlockHooks:
    """What is done with the clock of a block stopped.

    `snapshot` keeps the state from before a step: of the last one if `has_last`, and of each that
    `is_drawn` names by its number in the block. `has_reached` is asked after every `every` steps,
    of which `before` lie before the block, and after the last; a hit ends the block. `extra_steps`
    is asked at the end of a block that has made so many steps, how many more it shall have.
    `between` is told before each step how many were made, how many nanoseconds of the block have
    passed and that there is a next one; and after the last that there is none.
    """

    snapshot: Callable[[], object] = lambda: None
    has_last: bool = False
    is_drawn: Callable[[int], bool] | None = None
    has_reached: Callable[[], bool] | None = None
    every: int = 0
    before: int = 0
    extra_steps: Callable[[int], int] | None = None
    between: Callable[[int, int, bool], object] | None = None


NOTHING = BlockHooks()


@dataclass(frozen=True, kw_only=True)
class Span:
    """One stretch of time in nanoseconds, by each clock; the device's is None where it has none.

    `load_ns` is the part of it that loading took, None where nothing is loaded. `inner_ns` is the
    part of `wall_ns` in which the device's span must lie wholly, of a comparison of clocks alone.
    """

    wall_ns: int
    raw_ns: int
    event_ns: int | None = None
    load_ns: int | None = None
    inner_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A step that was drawn to be checked: its number in the block, what was before, its output."""

    number: int
    before: object
    output: Any


@dataclass(kw_only=True)
class Samples:
    """One block: times of its steps in nanoseconds, and what its last step needs to be checked.

    `has_reached`: training came to its target with the last step.
    """

    wall_ns: list[int] = field(default_factory=list)
    event_ns: list[int] | None = None
    load_ns: list[int] | None = None
    block_wall_ns: int = 0
    block_raw_ns: int = 0
    before: object = None
    output: Any = None
    drawn: list[Drawn] = field(default_factory=list)
    has_reached: bool = False

    def begin_with(self, step: Span) -> None:
        """Put a step that was timed alone before the others."""
        self.wall_ns.insert(0, step.wall_ns)
        if step.event_ns is not None:
            self.event_ns = [step.event_ns, *(self.event_ns or ())]
        if step.load_ns is not None:
            self.load_ns = [step.load_ns, *(self.load_ns or ())]
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


def one(step: Step, stopwatch: Stopwatch) -> tuple[Any, Span]:
    """Output of one step and its time."""
    mark = step.marker(stopwatch)
    begin = _moment(stopwatch)
    first = mark()
    loaded = None
    if step.load is not None:
        step.load()
        loaded = stopwatch.now()
    output = step.make()
    last = mark()
    if step.wait is not None:
        step.wait()
    stopwatch.synchronise()
    span = begin.until(_moment(stopwatch))
    event_ns = None if first is None else stopwatch.between(first, last)
    load_ns = None if loaded is None else loaded - begin.wall_ns
    return output, replace(span, event_ns=event_ns, load_ns=load_ns)


LONGER = 1.25
"""What a span of clocks is lengthened to, in terms of what the bracket so far would take."""


def compare_clocks(
    work: Callable[[], object], stopwatch: Stopwatch, nanoseconds: int
) -> tuple[Span, ...]:
    """Spans of at least `nanoseconds` in all, by each clock, in which `work` is done repeatedly.

    A mark waits in the device's queue, for as long as another user has the device. So the host's
    clock is read before the first mark is given and once it was reached, and before the last one is
    given and once that was reached: an honest span of the device lies between the inner and the
    outer span of its host. Where these differ by too much the span is lengthened.

    The first work loads its kernel and the first mark makes what marks need, which would widen the
    bracket of the first span and make it several times as long: both are made before.
    """
    work()
    stopwatch.mark()
    stopwatch.synchronise()
    shortest = nanoseconds // NUM_CLOCK_SPANS
    return tuple(_clock_span(work, stopwatch, shortest) for _ in range(NUM_CLOCK_SPANS))


def _clock_span(work: Callable[[], object], stopwatch: Stopwatch, shortest: int) -> Span:
    begin = _moment(stopwatch)
    first = stopwatch.mark()
    stopwatch.synchronise()
    entered = stopwatch.now()
    longest = begin.wall_ns + round(LONGEST_CLOCK_SECONDS * 1e9) // NUM_CLOCK_SPANS
    until = entered + shortest
    while True:
        left = _keep_busy(work, stopwatch, until)
        last = stopwatch.mark()
        stopwatch.synchronise()
        span = begin.until(_moment(stopwatch))
        inner = left - entered
        open_ns = span.wall_ns - inner
        if first is None or open_ns <= WIDEST_BRACKET * span.wall_ns or left >= longest:
            break
        # The next end may come later than this one did, so the span is somewhat longer than needed.
        needed = entered + round(LONGER * open_ns / WIDEST_BRACKET)
        until = min(longest, max(left + round((LONGER - 1) * inner), needed))
    if first is None:
        return span
    return replace(span, event_ns=stopwatch.between(first, last), inner_ns=inner)


def _keep_busy(work: Callable[[], object], stopwatch: Stopwatch, until: int) -> int:
    """Do the work at least once, and until then; the moment at which the last of it was done."""
    while True:
        work()
        stopwatch.synchronise()
        now = stopwatch.now()
        if now >= until:
            return now


def warm_up(
    step: Step, stopwatch: Stopwatch, is_warm: Callable[[int, int], bool]
) -> tuple[int, ...]:
    """Times of steps that nobody judges, in nanoseconds.

    `is_warm` is asked before each whether so many steps in so many nanoseconds are enough.
    """
    times: list[int] = []
    passed = 0
    while not is_warm(len(times), passed):
        times.append(one(step, stopwatch)[1].wall_ns)
        passed += times[-1]
    return tuple(times)


def steps_within(nanoseconds: int, times: Sequence[int]) -> int:
    """Number of steps that take so long, at the median of these times; none for no time."""
    return max(0, math.ceil(nanoseconds / max(1, sorted(times)[len(times) // 2])))


def block(step: Step, stopwatch: Stopwatch, length: Length, hooks: BlockHooks = NOTHING) -> Samples:
    """Time consecutive steps.

    `block_wall_ns` and `block_raw_ns` run from before the first step to after the last one,
    without what was done with the clock stopped.
    """
    stopwatch.synchronise()
    gc.collect()
    with without_collection():
        return _Course(step=step, stopwatch=stopwatch, length=length, hooks=hooks).run()


def empty_steps(step: Step, stopwatch: Stopwatch) -> tuple[int, ...]:
    """Nanoseconds of a step of the same parts that does nothing: of each of a few blocks the mean.

    It is what a step takes beside its work: readings of the clocks, two marks, and a synchronise.
    """
    empty, length = step.emptied(), Length(steps=EMPTY_BLOCK_STEPS)
    stopwatch.synchronise()
    with without_collection():
        blocks = [
            _Course(step=empty, stopwatch=stopwatch, length=length, hooks=NOTHING).run()
            for _ in range(NUM_EMPTY_BLOCKS)
        ]
    return tuple(block.block_wall_ns // EMPTY_BLOCK_STEPS for block in blocks)


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is collected between two readings of a clock."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(kw_only=True)
class _Course:
    """A block under way. `stopped` is the time that its clock stood, by each clock."""

    step: Step
    stopwatch: Stopwatch
    length: Length
    hooks: BlockHooks
    samples: Samples = field(default_factory=Samples)
    marks: list[tuple[Any, Any]] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    stopped: Span = field(default_factory=lambda: Span(wall_ns=0, raw_ns=0))
    longest: int = 0

    @property
    def num_steps(self) -> int:
        return len(self.samples.wall_ns)

    def run(self) -> Samples:
        origin = _moment(self.stopwatch)
        passed = 0
        while True:
            may_be_last = self._may_be_last(passed)
            is_drawn = self.hooks.is_drawn is not None and self.hooks.is_drawn(self.num_steps)
            self.samples.output = None  # freed before the step, not inside it
            self._tell(passed, has_next=True)
            if is_drawn or (may_be_last and self.hooks.has_last):
                self.samples.before = self._stop(self.hooks.snapshot)
            end = self._sample()
            if is_drawn:
                self.samples.drawn.append(self._stop(self._drawn))
            passed = end - origin.wall_ns - self.stopped.wall_ns
            if self._is_over(passed, has_snapshot=may_be_last):
                break
        self._tell(passed, has_next=False)
        return self._finished(origin.until(_moment(self.stopwatch)))

    def _tell(self, passed: int, *, has_next: bool) -> None:
        between = self.hooks.between
        if between is not None:
            self._stop(lambda: between(self.num_steps, passed, has_next))

    def _may_be_last(self, passed: int) -> bool:
        is_due = self.num_steps + 1 >= self.length.steps
        return self._is_evaluated(self.num_steps + 1) or (
            is_due and passed + self.longest >= self.length.nanoseconds
        )

    def _is_evaluated(self, num_steps: int) -> bool:
        """Whether the target is evaluated after so many steps."""
        every = self.hooks.every
        return every > 0 and (
            (self.hooks.before + num_steps) % every == 0 or num_steps >= self.length.steps
        )

    def _sample(self) -> int:
        """Time one step; the moment of its end."""
        step, stopwatch = self.step, self.stopwatch
        load, make, wait = step.load, step.make, step.wait
        now, synchronise, mark = stopwatch.now, stopwatch.synchronise, step.marker(stopwatch)
        loaded = None
        begin = now()
        first = mark()
        if load is not None:
            load()
            loaded = now()
        output = make()
        last = mark()
        if wait is not None:
            wait()
        synchronise()
        end = now()
        self.samples.output = output
        self.samples.wall_ns.append(end - begin)
        self.marks.append((first, last))
        if loaded is not None:
            self.loads.append(loaded - begin)
        self.longest = max(self.longest, end - begin)
        return end

    def _is_over(self, passed: int, *, has_snapshot: bool) -> bool:
        hooks, num_steps = self.hooks, self.num_steps
        if hooks.has_reached is not None and self._is_evaluated(num_steps):
            self.samples.has_reached = self._stop(hooks.has_reached)
            if self.samples.has_reached:
                return True
        is_long_enough = num_steps >= self.length.steps and passed >= self.length.nanoseconds
        if not is_long_enough or (hooks.has_last and not has_snapshot):
            return False
        return not self._extended()

    def _extended(self) -> bool:
        """Whether the block has more steps to make; it is asked for them once."""
        extra_steps = self.hooks.extra_steps
        if extra_steps is None:
            return False
        more = self._stop(lambda: extra_steps(self.num_steps))
        self.hooks = replace(self.hooks, extra_steps=None)
        self.length = Length(steps=self.num_steps + more)
        return more > 0

    def _stop(self, action: Callable[[], T]) -> T:
        """Do something with the clock stopped."""
        begin = _moment(self.stopwatch)
        outcome = action()
        self.stopwatch.synchronise()
        span = begin.until(_moment(self.stopwatch))
        self.stopped = Span(
            wall_ns=self.stopped.wall_ns + span.wall_ns, raw_ns=self.stopped.raw_ns + span.raw_ns
        )
        return outcome

    def _drawn(self) -> Drawn:
        """What a drawn step needs to be checked; a copy, as the next may reuse the memory."""
        return Drawn(
            number=self.num_steps - 1,
            before=self.samples.before,
            output=copy.deepcopy(self.samples.output),
        )

    def _finished(self, whole: Span) -> Samples:
        samples = self.samples
        samples.block_wall_ns = whole.wall_ns - self.stopped.wall_ns
        samples.block_raw_ns = whole.raw_ns - self.stopped.raw_ns
        if self.marks[0][0] is not None:
            samples.event_ns = [self.stopwatch.between(*pair) for pair in self.marks]
        if self.step.load is not None:
            samples.load_ns = self.loads
        return samples
