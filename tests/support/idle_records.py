"""Records and trials of a process that waited, as a healthy device gives them."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.qualifying.idle_trial import CLOCK, Half, IdleTrial
from appliance.records.qualified import IdleNeighbour, IdlePair
from appliance.scheduling.idle_neighbours import KINDS

NOISE = (0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0)
MODEL = "an accelerator"
STACK = {"torch": "2.13.0", "driver": "1.0"}
UTC = "2026-11-26T12:00:00Z"


def idle_neighbour(model: str = MODEL, slowed: Mapping[str, float] | None = None) -> IdleNeighbour:
    """Pairs in which steps of some kinds take so many times as long beside a process."""
    factors = dict.fromkeys(KINDS, 1.0) | dict(slowed or {})
    return IdleNeighbour(
        model=model,
        stack=STACK,
        device="5d" * 32,
        pairs={
            kind: tuple(IdlePair(alone=0.002, beside=0.002 * (factor + noise)) for noise in NOISE)
            for kind, factor in factors.items()
        },
        disturbed="",
        source=f"qualify-idle, trial {'1e' * 32}",
        recorded_utc=UTC,
        bench_version="0.15.0",
    )


def idle_trial(num_pairs: int = 3) -> IdleTrial:
    """A trial on a quiet device; steps take 2 ms alone and 2.01 ms beside."""
    return IdleTrial(
        model=MODEL,
        stack=STACK,
        device="5d" * 32,
        users_before=0,
        use_before=0.0,
        processors=16,
        halves=tuple(
            half(pair, is_beside=is_beside)
            for pair in range(num_pairs)
            for is_beside in (False, True)
        ),
        recorded_utc=UTC,
        bench_version="0.15.0",
    )


def half(pair: int, *, is_beside: bool) -> Half:
    seconds = 0.00201 if is_beside else 0.002
    return Half(
        pair=pair,
        is_beside=is_beside,
        step_seconds=dict.fromkeys(KINDS, (9.0, seconds, 0.0001)),
        users=2 if is_beside else 1,
        values={CLOCK: 1.98e9, "throttled_power_cap": 1.0, "throttled_thermal": 0.0},
        foreign_processors=0.1,
    )
