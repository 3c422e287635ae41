"""Events of a burn-in that says its phases: all readings in hot ones, and a plain loop behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from appliance.records.journal import END, Event, PhaseBegan, Reading


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What the plain loop of a launch drew, and the seconds that it and the proven one took."""

    watts: float | None
    seconds: float = 1.0
    proven_seconds: float = 1.02


def tagged(events: Sequence[Event], loop: Loop | None, *, core_use: float = 1.0) -> Iterator[Event]:
    """The same, all readings of the devices in hot phases, and those of the loop behind them."""
    last: Reading | None = None
    for event in events:
        if isinstance(event, Reading) and last is None:
            yield phase(event.launch, "hot", 0)
        elif last is not None and not isinstance(event, Reading):
            yield from _behind_hot(last, loop, core_use)
            last = None
        if isinstance(event, Reading):
            last = event
        yield event


def _behind_hot(reading: Reading, loop: Loop | None, core_use: float) -> Iterator[Event]:
    passed, launch = 10.0, reading.launch
    busy = core_use * passed
    if loop is not None:
        yield phase(launch, "plain loop", 1, passed, busy)
        yield replace(reading, values={**reading.values, "power_watts": loop.watts})
        yield phase(launch, "proven loop", 2, passed + loop.seconds, busy)
        passed += loop.seconds + loop.proven_seconds
    yield phase(launch, END, 3, passed, busy)


def phase(launch: str, name: str, step: int, passed: float = 0.0, busy: float = 0.0) -> PhaseBegan:
    return PhaseBegan(
        launch=launch,
        rank=0,
        index=1,
        phase=name,
        step=step,
        passed_ns=round(passed * 1e9),
        units=100 * step,
        processor_ns=round(busy * 1e9),
        threads=1,
    )
