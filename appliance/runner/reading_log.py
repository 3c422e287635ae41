"""Readings on their way to the journal: one by one, and of a segment's steps by the minute.

A reading is recorded as it is taken. While the steps of a launch run whose times nobody judges (a
segment of a burn-in), readings of each device are held back for a minute, of long runs for up to
ten, and recorded together (`evidence.folding`). Whatever else the journal gets of that launch comes
after the minute that was under way, so the journal's order stays that of time. A run that is killed
loses the readings of the minutes that were under way, of the segments that it loses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.evidence.folding import FOLD_NS, ReadingFold, Values
from appliance.planning.launch_constants import SEGMENTED
from appliance.records.journal import END, Event, PhaseBegan, Reading, UsersCounted, Warmed
from appliance.records.plan import Case
from appliance.records.vocabulary import possible


@dataclass(kw_only=True)
class ReadingLog:
    """`record` stores an event; `now_ns` is the journal's clock; `case_of` a launch's case.

    `fold_ns` is how much time is recorded together.
    """

    record: Callable[[Event], None]
    now_ns: Callable[[], int]
    case_of: Callable[[str], Case | None]
    fold_ns: int = FOLD_NS
    _folds: dict[str, dict[str, ReadingFold]] = field(default_factory=dict)

    def read(self, launch: str, device: str, values: Values) -> None:
        """Take a reading of a device while this launch runs; what no device has is not reported."""
        values = possible(values)
        fold = self._folds.get(launch, {}).get(device)
        if fold is None:
            self.record(Reading(launch=launch, device=device, values=values))
            return
        ended = fold.add(self.now_ns(), values)
        if ended is not None:
            self.record(ended)

    def before(self, event: Event) -> None:
        """Another event of a launch is about to be recorded: what was held back comes first."""
        if isinstance(event, UsersCounted):
            return  # says nothing of the launch's steps
        now = self.now_ns()
        if isinstance(event, PhaseBegan):
            self._cut(event.launch, now, is_end=event.phase == END)
            return
        for fold in self._folds.pop(getattr(event, "launch", ""), {}).values():
            ended = fold.close(now)
            if ended is not None:
                self.record(ended)

    def _cut(self, launch: str, now_ns: int, *, is_end: bool) -> None:
        """Record what was held back of another phase of load; the steps go on."""
        for fold in self._folds.get(launch, {}).values():
            ended = fold.close(now_ns) if is_end else fold.cut(now_ns)
            if ended is not None:
                self.record(ended)

    def after(self, event: Event) -> None:
        """An event was recorded: once a segment has warmed up, its steps run."""
        case = self.case_of(event.launch) if isinstance(event, Warmed) else None
        if case is None or case.workload not in SEGMENTED:
            return
        launch, now = getattr(event, "launch", ""), self.now_ns()
        self._folds[launch] = {
            device: ReadingFold(launch=launch, device=device, begin_ns=now, fold_ns=self.fold_ns)
            for device in case.all_devices
        }
