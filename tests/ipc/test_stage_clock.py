"""The clock of a launch's stages: no gap, no time twice, and what passed before the process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count

import pytest

from appliance.ipc.stage_clock import StageClock
from appliance.records.journal import StageTimes, TimedStage

AHEAD: tuple[TimedStage, ...] = ("device", "build", "wait")
"""Stages of a process that waits for its launch."""


def clock(
    *readings: int, ordered_ns: int | None = None, began_ns: int = 100, is_ahead: bool = False
) -> StageClock:
    """A clock that is read at these moments, and then stands still."""
    moments: Iterator[int] = chain(readings, (readings[-1] for _ in count()))
    return StageClock(ordered_ns, began_ns, now=lambda: next(moments), is_ahead=is_ahead)


def times(stages: StageClock) -> dict[TimedStage, int]:
    return dict(stages.times("a@cpu:0/1", 0).wall_ns)


def test_stages_add_up_to_all_that_passed_since_the_order() -> None:
    stages = clock(130, 140, 190, 200, ordered_ns=60)
    stages.enter("device")
    stages.enter("build")
    stages.enter("other")
    assert times(stages) == {"start": 40, "import": 30, "device": 10, "build": 50, "other": 10}


def test_a_stage_inside_another_is_not_counted_twice() -> None:
    stages = clock(110, 150, 170, 200)
    stages.enter("timed")
    with stages.of("check"):
        pass
    assert times(stages) == {"import": 10, "timed": 70, "check": 20}


def test_a_stage_that_an_exception_ends_gives_way_to_the_one_around_it() -> None:
    stages = clock(110, 120, 150, 180)
    stages.enter("build")
    with pytest.raises(ValueError, match="no"), stages.of("check"):
        raise ValueError("no")
    assert times(stages) == {"import": 10, "build": 40, "check": 30}


def test_what_was_imported_before_the_order_is_no_part_of_the_launch() -> None:
    stages = clock(520, ordered_ns=500, began_ns=100)
    assert times(stages) == {"start": 0, "import": 20}


def test_a_record_is_of_its_launch_and_rank() -> None:
    record = clock(107).times("b@cpu:0/2", 3)
    assert record == StageTimes(launch="b@cpu:0/2", rank=3, wall_ns={"import": 7})


def test_what_a_process_did_before_its_launch_began_is_kept_apart_and_its_waiting_is_not() -> None:
    stages = clock(130, 140, 190, 250, 260, ordered_ns=60, is_ahead=True)
    for stage in AHEAD:
        stages.enter(stage)
    stages.turn(240)
    told = stages.times("a@cpu:0/1", 0)
    assert dict(told.ahead_ns) == {"start": 40, "import": 30, "device": 10, "build": 50}
    assert dict(told.wall_ns) == {"wait": 20}


def test_a_build_that_lasts_beyond_the_begin_is_parted_there() -> None:
    stages = clock(130, 140, 190, 200, ordered_ns=60, is_ahead=True)
    for stage in AHEAD:
        stages.enter(stage)
    stages.turn(170)
    told = stages.times("a@cpu:0/1", 0)
    assert dict(told.ahead_ns) == {"start": 40, "import": 30, "device": 10, "build": 30}
    assert dict(told.wall_ns) == {"build": 20, "wait": 10}
