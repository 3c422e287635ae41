"""What a launch's time goes to: a clock that is always in exactly one stage.

It begins with the order that the runner gave, so that what passed before the process's first
instruction counts too. The host's own clock is read, and at the borders of stages alone: never
between two samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.records.journal import StageTimes, TimedStage


class StageClock:
    """Nanoseconds of each stage, which together are all that passed since the order.

    `ordered_ns` is when the launch was ordered, None where nobody said; `began_ns` is the process's
    first instruction, which may be before the order where it has imported ahead. `now` reads the
    clock of both. The first stage is "import".
    """

    def __init__(
        self,
        ordered_ns: int | None = None,
        began_ns: int | None = None,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        began = now() if began_ns is None else began_ns
        self._now = now
        self._stage: TimedStage = "import"
        self._since = began if ordered_ns is None else max(began, ordered_ns)
        self._passed: dict[TimedStage, int] = {}
        if ordered_ns is not None:
            self._passed["start"] = self._since - ordered_ns

    def enter(self, stage: TimedStage) -> TimedStage:
        """Begin a stage; the one that ends with it."""
        now, ended = self._now(), self._stage
        self._passed[ended] = self._passed.get(ended, 0) + now - self._since
        self._stage, self._since = stage, now
        return ended

    @contextmanager
    def of(self, stage: TimedStage) -> Iterator[None]:
        """The stage while the block lasts, then again the one that it is in."""
        outer = self.enter(stage)
        try:
            yield
        finally:
            self.enter(outer)

    def times(self, launch: str, rank: int) -> StageTimes:
        """What has passed so far, as the record that is sent."""
        self.enter(self._stage)
        return StageTimes(launch=launch, rank=rank, wall_ns=dict(self._passed))
