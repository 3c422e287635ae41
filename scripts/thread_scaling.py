"""How long a piece of work takes on more threads than it was measured on: Amdahl's law, by bounds.

Of some work S seconds are one thread's and P seconds are shared out, so on t threads it takes
S + P / t. Both follow from two figures: T = S + P, the processor time that it takes on one thread,
and W = S + P / 2, the time that passes on two. Each is the least of some repetitions, made in turn.

Other load of the machine can only make W longer, and S = 2 W - T with it. T is processor time,
which does not count what waits for a processor; what shares a cache makes both longer, and S too.
So load makes what is predicted for more threads longer and never shorter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

THREADS = (1, 2)
TIMES = 4


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Seconds that have passed, and seconds of processors that this process has used."""

    wall: Callable[[], float] = time.perf_counter
    processor: Callable[[], float] = time.process_time


CLOCK = Clock()


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Seconds: of a processor on `one` thread; that pass on `two`; of `both` processors on two."""

    one: float
    two: float
    both: float

    @property
    def serial(self) -> float:
        """Seconds of one thread: never below 0, nor above what one thread takes in all.

        Where two threads take longer than that, others have their processors, and nothing is known
        of what could be shared out.
        """
        return min(max(0.0, 2 * self.two - self.one), self.one)

    @property
    def parallel(self) -> float:
        """Seconds that are shared out: all the rest of what one thread takes."""
        return self.one - self.serial

    def at(self, threads: float) -> float:
        """Seconds on so many threads, one or more."""
        return self.serial + self.parallel / threads

    def as_json(self) -> dict[str, float]:
        """The three figures, to a tenth of a millisecond."""
        figures = {"one": self.one, "two": self.two, "both": self.both}
        return {name: round(seconds, 4) for name, seconds in figures.items()}


def measure(
    work: Callable[[int], object],
    set_threads: Callable[[int], object],
    *,
    times: int = TIMES,
    clock: Clock = CLOCK,
) -> Scaling:
    """Make some work so many times on one thread and on two, in turn; it is told how many."""
    walls: dict[int, list[float]] = {number: [] for number in THREADS}
    processors: dict[int, list[float]] = {number: [] for number in THREADS}
    for _ in range(times):
        for number in THREADS:
            set_threads(number)
            wall, processor = clock.wall(), clock.processor()
            work(number)
            walls[number].append(clock.wall() - wall)
            processors[number].append(clock.processor() - processor)
    one, two = (min(processors[number]) for number in THREADS)
    return Scaling(one=one, two=min(walls[2]), both=two)
