"""Whether times of steps are ones that the clock of the run gives, by the fineness that it shows.

A process times its steps by the clock that the journal's lines have, too. That clock may tick every
100 ns or every microsecond: then lengths repeat themselves, and nothing can be said. Whether it
does so shows in the lines, of which hundreds follow within SHORT_NS of the one before. Where a
clock ticks every COARSE_NS or more, such stretches are whole multiples of its tick, and the phases
that they have of it are all one; of a finer clock they are spread (the length of the mean of n
phases is about 1 / sqrt(n)). It is called fine where no tick from COARSE_NS to MOST_TICK_NS, in
steps that no tick can fall between, brings that length to ALIGNED, which a tick with a tenth of
its length of noise still has. The recorded runs of an H100 with as many stretches, and runs on
processors, show up to 0.71; the same lines on ticks of 200 ns to 4 ms show 0.99 and more, also
where a time service makes the clock 500 parts in a million faster.

On a fine clock:

- nine of ten steps do not take as long as the step before them, to the nanosecond;
- no times of a block are whole microseconds, all of FEWEST_WHOLE or more;
- no two blocks are the same where chance would bring that about once in 10^12, even if the host's
  two clocks, which otherwise tell blocks apart, are one;
- no step is shorter than a tenth of what a step takes that does nothing, as the launch timed it;
- no quarter of the steps of a warm-up take less than a hundredth of the fastest timed step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from appliance.errors import EvidenceError
from appliance.records.journal import Block, Calibrated, Line, Warmed
from appliance.records.plan import Plan

SHORT_NS = 1_000_000
FEWEST_SHORT = 24
"""Stretches so short from which on the clock is known."""
MOST_SHORT = 64
"""The shortest are taken, which a clock that is steered changes least."""
COARSE_NS, MOST_TICK_NS = 200, 100_000
ALIGNED = 0.8
FEWEST_EQUAL, MOST_EQUAL_SHARE = 24, 0.9
WHOLE_NS, FEWEST_WHOLE = 1000, 12
BY_CHANCE = 1e-12
LEAST_OF_EMPTY = 0.1
QUICK, MOST_QUICK_SHARE, FEWEST_QUICK = 0.01, 0.25, 3
"""Of the fastest timed step: a warm-up of which so many steps are as quick is none."""
OVERSAMPLED = 8


def check_clock(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for times of steps that a clock as fine as the journal's does not give."""
    if is_fine(lines):
        _check_quick(plan, lines)
        _check_equal(lines)
        _check_whole(lines)
        _check_same(lines)
        _check_shortest(lines)


def is_fine(lines: Sequence[Line]) -> bool:
    """Whether the journal's clock ticks more often than every COARSE_NS, as lines show it."""
    passed = (later.monotonic_ns - line.monotonic_ns for line, later in pairwise(lines))
    short = sorted({one for one in passed if 0 < one < SHORT_NS})
    if len(short) < FEWEST_SHORT:
        return False
    stretches = np.array(short[:MOST_SHORT], dtype=np.float64)
    step = 1.0 / (OVERSAMPLED * stretches[-1])
    rates = np.arange(1.0 / MOST_TICK_NS, 1.0 / COARSE_NS + step, step)
    lengths = (
        abs(np.exp(2j * np.pi * np.outer(some, stretches)).mean(axis=1)).max()
        for some in np.array_split(rates, max(1, len(rates) // 1000))
    )
    return float(max(lengths)) < ALIGNED


def _times(lines: Sequence[Line]) -> Iterator[tuple[str, Sequence[int]]]:
    """Times of steps one after the other, of warm-ups and blocks, each with its launch."""
    for event in (line.event for line in lines):
        if isinstance(event, Block | Warmed):
            yield event.launch, event.wall_ns


def _check_equal(lines: Sequence[Line]) -> None:
    """EvidenceError where nearly all steps of the run's blocks take as long as the one before."""
    equal = number = 0
    for event in (line.event for line in lines):
        if isinstance(event, Block) and len(event.wall_ns) > 1:
            times = np.array(event.wall_ns, dtype=np.float64)
            equal += int(np.count_nonzero(np.diff(times) == 0))
            number += len(times) - 1
    if equal >= FEWEST_EQUAL and equal >= MOST_EQUAL_SHARE * number:
        raise EvidenceError(
            f"journal.jsonl: {equal} of {number} steps take as long as the step before them, to "
            "the nanosecond, and its clock is finer than that"
        )


def _check_whole(lines: Sequence[Line]) -> None:
    for launch, times in _times(lines):
        if len(times) >= FEWEST_WHOLE and all(one % WHOLE_NS == 0 for one in times):
            raise EvidenceError(
                f"journal.jsonl: launch {launch} times its steps in whole microseconds, and the "
                "clock of the journal is finer"
            )


def _check_same(lines: Sequence[Line]) -> None:
    """EvidenceError for two blocks of the same times, whose steps differ enough from each other."""
    seen: dict[tuple[int, ...], Block] = {}
    for event in (line.event for line in lines):
        if not isinstance(event, Block) or len(event.wall_ns) < FEWEST_QUICK:
            continue
        times = tuple(event.wall_ns)
        other = seen.setdefault(times, event)
        if other is event or (other.launch == event.launch and other.rank != event.rank):
            continue
        gaps = np.diff(np.sort(np.array(times, dtype=np.float64)))
        if float(np.prod(np.minimum(1.0, COARSE_NS / np.maximum(gaps, 1.0)))) < BY_CHANCE:
            raise EvidenceError(
                f"journal.jsonl: block {event.index} of launch {event.launch} has the times of "
                f"block {other.index} of launch {other.launch}, to the nanosecond"
            )


def _check_shortest(lines: Sequence[Line]) -> None:
    """EvidenceError for a step that is shorter than one that does nothing."""
    least: dict[tuple[str, int], float] = {}
    for event in (line.event for line in lines):
        if isinstance(event, Calibrated) and event.empty_ns:
            if min(event.empty_ns) <= 0:
                raise EvidenceError(
                    f"journal.jsonl: launch {event.launch} times a step that does nothing as no "
                    "time, and its clock is finer than that"
                )
            least[event.launch, event.rank] = LEAST_OF_EMPTY * min(event.empty_ns)
        elif isinstance(event, Block | Warmed) and len(event.wall_ns):
            shortest = min(event.wall_ns)
            if shortest < least.get((event.launch, event.rank), 0.0):
                raise EvidenceError(
                    f"journal.jsonl: launch {event.launch} has a step of {shortest} ns, and one "
                    "that does nothing takes more than ten times as long there"
                )


def _check_quick(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for a warm-up of which many steps take a hundredth of the fastest timed one."""
    by_blocks = {one.id for one in plan.cases if one.steps is None}
    warmed: dict[tuple[str, int], Warmed] = {}
    for event in (line.event for line in lines):
        if isinstance(event, Warmed) and event.launch.rpartition("/")[0] in by_blocks:
            warmed[event.launch, event.rank] = event
        elif isinstance(event, Block) and (event.launch, event.rank) in warmed:
            times = warmed.pop((event.launch, event.rank)).wall_ns
            limit = QUICK * min(event.wall_ns, default=0)
            number = sum(one < limit for one in times)
            if len(event.wall_ns) >= FEWEST_QUICK <= number > MOST_QUICK_SHARE * len(times):
                raise EvidenceError(
                    f"journal.jsonl: launch {event.launch} warmed up by {number} steps that took "
                    "less than a hundredth of its fastest timed step"
                )
