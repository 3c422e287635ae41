"""Blocks that are copies but for their last digits are found, and no healthy ones are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.recorded_runs import RUNS, recorded_run

from appliance.errors import EvidenceError
from appliance.plausibility.near_copies import (
    FEWEST_SORTED,
    are_copies,
    check_near_copies,
    repeats_itself,
)
from appliance.records.journal import Block, Line

RNG = np.random.default_rng(5)
Change = Callable[[np.ndarray], np.ndarray]


def copied(lines: Sequence[Line], noise_ns: int, share: float = 1.0) -> list[Line]:
    """The block after the first of each case as a copy of it, with noise in each time.

    In the rest of its samples, beyond this share, it keeps its own times.
    """
    first: dict[str, Block] = {}
    made = []
    for line in lines:
        event = line.event
        if isinstance(event, Block):
            case = event.launch.rpartition("/")[0]
            other = first.setdefault(case, event)
            if other is not event and other.launch != event.launch:
                number = min(len(other.wall_ns), int(share * len(event.wall_ns)))
                noise = RNG.integers(-noise_ns, noise_ns + 1, number)
                fake = [one + int(by) for one, by in zip(other.wall_ns, noise, strict=False)]
                event = replace(event, wall_ns=(*fake, *event.wall_ns[number:]))
        made.append(replace(line, event=event))
    return made


@pytest.mark.parametrize("name", RUNS)
def test_no_recorded_run_of_a_device_is_accused(name: str) -> None:
    run = recorded_run(name)
    check_near_copies(run.plan, run.lines)


@pytest.mark.parametrize(("noise_ns", "share"), [(1, 1.0), (9, 1.0), (50, 1.0), (9, 0.6)])
def test_copies_with_other_last_digits_are_found(noise_ns: int, share: float) -> None:
    run = recorded_run("smoke")
    with pytest.raises(EvidenceError, match="but for the last digits"):
        check_near_copies(run.plan, copied(run.lines, noise_ns, share))


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda times: times[::-1], "in another order"),
        (lambda times: np.roll(times, 5), "in another order"),
        (RNG.permutation, "in another order"),
        (lambda times: times + 12_345, "and as much more in each"),
        (lambda times: times - 777, "and as much more in each"),
    ],
)
def test_copies_in_another_order_or_shifted_are_found(change: Change, how: str) -> None:
    run = recorded_run("smoke")
    blocks = [line for line in run.lines if isinstance(line.event, Block)]
    long = [line for line in blocks if len(set(line.event.wall_ns)) >= FEWEST_SORTED]
    one, other = _of_two_launches(long)
    times = tuple(change(np.array(one.event.wall_ns)).tolist())
    forged = replace(other, event=replace(other.event, wall_ns=times))
    lines = [forged if line is other else line for line in run.lines]
    with pytest.raises(EvidenceError, match=f"has the times of .*, {how}"):
        check_near_copies(run.plan, lines)


def _of_two_launches(blocks: Sequence[Line]) -> tuple[Line, Line]:
    """The first two blocks that are of one case and of different launches of it."""
    return next(
        (one, other)
        for one, other in itertools.combinations(blocks, 2)
        if one.event.launch != other.event.launch
        and one.event.launch.rpartition("/")[0] == other.event.launch.rpartition("/")[0]
    )


def test_the_same_few_times_in_another_order_are_no_copies() -> None:
    """On a clock that ticks every 40 ns a few steps have the same times now and then."""
    run = recorded_run("smoke")
    blocks = [line for line in run.lines if isinstance(line.event, Block)]
    one, other = _of_two_launches(blocks)
    times = 1_000_000 + 40 * RNG.permutation(25)[: FEWEST_SORTED - 1]
    forged = [
        replace(line, event=replace(line.event, wall_ns=tuple(RNG.permutation(times).tolist())))
        for line in (one, other)
    ]
    check_near_copies(run.plan, forged)


def test_times_with_the_noise_of_a_device_are_no_copies() -> None:
    run = recorded_run("smoke")
    check_near_copies(run.plan, copied(run.lines, 20_000))


def test_steady_steps_are_no_copies() -> None:
    """All within the last digits of each other, whatever they are laid beside."""
    one, other = (50_000 + RNG.integers(0, 90, 400) for _ in range(2))
    assert not are_copies(one, other)


def test_steps_of_the_same_pattern_are_no_copies() -> None:
    """Inputs of other sizes take their turns; a process waits for each step for microseconds."""
    pattern = np.tile([100_000, 250_000, 900_000], 100)
    one, other = (pattern + RNG.normal(0, 1500, 300).astype(np.int64) for _ in range(2))
    assert not are_copies(one, other)


@pytest.mark.parametrize(("length", "number"), [(6, 12), (8, 12), (8, 40), (32, 64), (200, 512)])
def test_steps_of_a_long_pattern_are_no_copies(length: int, number: int) -> None:
    """Of a device whose steps take the same times to within 60 ns whenever the pattern returns."""
    for _ in range(2400 // number):
        pattern = np.resize(RNG.integers(10**5, 10**6, length), number)
        one, other = (pattern + RNG.integers(-30, 31, number) for _ in range(2))
        assert not are_copies(one, other)
        assert repeats_itself(one)


def test_a_pattern_that_is_met_in_half_of_the_steps_is_no_copy() -> None:
    for _ in range(200):
        pattern = np.resize(RNG.integers(10**5, 10**6, 16), 96)
        one, other = (
            pattern + np.where(RNG.random(96) < 0.7, 0, RNG.integers(0, 10**5, 96))
            for _ in range(2)
        )
        assert not are_copies(one, other)


@pytest.mark.parametrize("number", [12, 40, 512])
def test_copies_without_a_pattern_are_found_whatever_their_length(number: int) -> None:
    found, tried = 0, 2400 // number
    for _ in range(tried):
        times = RNG.integers(10**6, 2 * 10**6, number)
        found += are_copies(times, times + RNG.integers(-40, 41, number))
    assert found >= 0.9 * tried  # in 12 samples one may agree with another by chance


def test_few_steps_show_nothing() -> None:
    times = RNG.integers(10**6, 2 * 10**6, 12)
    assert are_copies(times, times)
    assert not are_copies(times[:11], times[:11])
