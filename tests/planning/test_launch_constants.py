"""A launch makes fewer steps where each takes very long, and no fewer than can be told steady."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.planning import launch_constants
from appliance.statistics import steady_state
from tests.support.builders import PROTOCOL

SECOND = 10**9
FULL = replace(PROTOCOL, warmup_steps=5, warmup_seconds=1.0, block_steps=30, block_seconds=1.0)


@pytest.mark.parametrize(
    ("step", "steps"), [(0.001, 30), (2.0, 30), (2.5, 24), (3.0, 20), (20.8, 20), (600.0, 20)]
)
def test_a_block_has_the_steps_that_fill_a_minute_and_twenty_at_least(
    step: float, steps: int
) -> None:
    assert launch_constants.block_steps(FULL, round(step * SECOND)) == steps
    assert launch_constants.block_seconds(FULL, step) == pytest.approx(max(1.0, steps * step))


def test_the_pace_is_the_warm_up_s_median_which_one_slow_step_does_not_move() -> None:
    assert launch_constants.median_ns([600 * SECOND, SECOND, SECOND]) == SECOND


def test_a_protocol_of_fewer_steps_asks_for_no_more() -> None:
    assert launch_constants.block_steps(replace(FULL, block_steps=5), 60 * SECOND) == 5
    assert launch_constants.block_steps(FULL, launch_constants.median_ns([])) == 30


def test_the_fewest_steps_are_those_that_are_told_steady_or_not() -> None:
    assert launch_constants.LEAST_BLOCK_STEPS == steady_state.FEWEST


@pytest.mark.parametrize(
    ("steps", "seconds", "is_warm"),
    [
        (4, 9.9, False),
        (5, 9.9, True),
        (2, 60.0, False),
        (3, 10.0, True),
        (5, 0.9, False),
    ],
)
def test_a_long_warm_up_ends_with_three_steps(steps: int, seconds: float, *, is_warm: bool) -> None:
    assert launch_constants.is_warm(FULL, steps, round(seconds * SECOND)) is is_warm


@pytest.mark.parametrize(("step", "seconds"), [(0.1, 1.0), (1.0, 5.0), (3.0, 12.0), (20.0, 60.0)])
def test_what_a_warm_up_takes_follows_from_its_steps(step: float, seconds: float) -> None:
    assert launch_constants.warm_up_seconds(FULL, step) == seconds
    num_steps = round(seconds / step)
    assert launch_constants.is_warm(FULL, num_steps, round(seconds * SECOND))
    assert not launch_constants.is_warm(FULL, num_steps - 1, round((seconds - step) * SECOND))
