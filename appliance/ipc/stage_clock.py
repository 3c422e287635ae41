"""What a launch's time goes to: a clock that is always in exactly one stage.

It begins with the order that the runner gave, so that what passed before the process's first
instruction counts too. The host's own clock is read, and at the borders of stages alone: never
between two samples. A process that is started ahead of its launch keeps what it did before the
launch began apart from what it did in it, and its waiting is neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.records.journal import StageTimes, TimedStage

_Stretch = tuple[TimedStage, int, int]
"""A stage, its begin and its end."""


class StageClock:
    """Nanoseconds of each stage, which together are all that passed since the order.

    `ordered_ns` is when the launch was ordered, None where nobody said; `began_ns` is the process's
    first instruction, which may be before the order where it has imported ahead. `now` reads the
    clock of both. The first stage is "import". `is_ahead`: the launch begins later, at its `turn`.
    """

    def __init__(
        self,
        ordered_ns: int | None = None,
        began_ns: int | None = None,
        now: Callable[[], int] = time.monotonic_ns,
        *,
        is_ahead: bool = False,
    ) -> None:
        began = now() if began_ns is None else began_ns
        self._now = now
        self._stage: TimedStage = "import"
        self._since = began if ordered_ns is None else max(began, ordered_ns)
        self._passed: dict[TimedStage, int] = {}
        self._ahead: dict[TimedStage, int] = {}
        self._stretches: list[_Stretch] | None = [] if is_ahead else None
        if ordered_ns is not None:
            self._add(("start", ordered_ns, self._since))

    def enter(self, stage: TimedStage) -> TimedStage:
        """Begin a stage; the one that ends with it."""
        now, ended = self._now(), self._stage
        self._add((ended, self._since, now))
        self._stage, self._since = stage, now
        return ended

    def turn(self, began_ns: int) -> None:
        """The launch began at this moment, which is not after now; what was before is ahead."""
        self.enter(self._stage)
        stretches, self._stretches = self._stretches or [], None
        for stage, begin, end in stretches:
            border = min(max(begin, began_ns), end)
            if border > begin and stage != "wait":
                self._ahead[stage] = self._ahead.get(stage, 0) + border - begin
            if end > border:
                self._add((stage, border, end))

    def _add(self, stretch: _Stretch) -> None:
        if self._stretches is not None:
            self._stretches.append(stretch)
            return
        stage, begin, end = stretch
        self._passed[stage] = self._passed.get(stage, 0) + end - begin

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
        return StageTimes(
            launch=launch, rank=rank, wall_ns=dict(self._passed), ahead_ns=dict(self._ahead)
        )
