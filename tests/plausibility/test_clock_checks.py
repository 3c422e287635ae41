"""Times of steps are held to the clock that the journal shows, where that is a fine one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from support.recorded_runs import RUNS, recorded_run

from appliance.errors import EvidenceError
from appliance.plausibility.clock_checks import check_clock, is_fine
from appliance.records.journal import Block, Event, Line, Warmed

SMOKE = "smoke"
FINE = {"smoke", "small-jax-first"}
"""The recorded runs with lines enough to show how fine their clock is."""


def on_ticks(lines: Sequence[Line], tick_ns: float, faster: float = 0.0) -> list[Line]:
    """The journal as a clock of such ticks would have it, which a time service makes faster."""
    return [
        replace(line, monotonic_ns=round(line.monotonic_ns // tick_ns * tick_ns * (1.0 + faster)))
        for line in lines
    ]


def changed(change: Callable[[Event], Event]) -> list[Line]:
    return [replace(line, event=change(line.event)) for line in recorded_run(SMOKE).lines]


def check(lines: Sequence[Line]) -> None:
    check_clock(recorded_run(SMOKE).plan, lines)


@pytest.mark.parametrize("name", RUNS)
def test_no_recorded_run_of_a_device_is_accused(name: str) -> None:
    run = recorded_run(name)
    check_clock(run.plan, run.lines)
    assert is_fine(run.lines) == (name in FINE)


@pytest.mark.parametrize("name", sorted(FINE))
@pytest.mark.parametrize("tick_ns", [200, 279.365, 1_000, 10_000, 1_000_000, 4_000_000])
@pytest.mark.parametrize("faster", [0.0, 5e-4])
def test_a_clock_that_ticks_is_not_called_fine(name: str, tick_ns: float, faster: float) -> None:
    assert not is_fine(on_ticks(recorded_run(name).lines, tick_ns, faster))


def equal(event: Event) -> Event:
    if not isinstance(event, Block):
        return event
    return replace(event, wall_ns=(sum(event.wall_ns) // len(event.wall_ns),) * len(event.wall_ns))


def whole(event: Event) -> Event:
    if not isinstance(event, Block):
        return event
    return replace(event, wall_ns=tuple(one // 1000 * 1000 for one in event.wall_ns))


def cold(event: Event) -> Event:
    if not isinstance(event, Warmed):
        return event
    return replace(event, wall_ns=(*[1] * 5, *event.wall_ns))


def short_copies(event: Event) -> Event:
    """Six steps in each block, the same in all, and clocks of the host that are one."""
    if not isinstance(event, Block):
        return event
    times = (5_000_000, 5_400_013, 6_100_200, 4_700_101, 7_300_999, 8_000_123)
    total = sum(times) + 1000
    return replace(event, wall_ns=times, block_wall_ns=total, block_raw_ns=total)


FORGED = {
    "as long as the step before them": equal,
    "in whole microseconds": whole,
    "less than a hundredth of its fastest timed step": cold,
    "to the nanosecond": short_copies,
}


@pytest.mark.parametrize("says", FORGED)
def test_what_a_fine_clock_does_not_give_is_found(says: str) -> None:
    with pytest.raises(EvidenceError, match=says):
        check(changed(FORGED[says]))


@pytest.mark.parametrize("says", FORGED)
def test_a_coarse_clock_may_give_it(says: str) -> None:
    check(on_ticks(changed(FORGED[says]), 1_000))
