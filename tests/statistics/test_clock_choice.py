"""Which clock a case is judged by, and that what is judged is never far below the wall."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.records.journal import Block
from appliance.statistics.estimates import block_figures
from appliance.statistics.two_clocks import (
    LARGEST_OVERHEAD,
    PART,
    ClockChoice,
    TimedBlock,
    choose,
    subtracted,
)

MARGIN = 0.03
ALLOWED = math.log1p(MARGIN) * PART


def a_block(
    walls: Sequence[int], events: Sequence[int] | None = None, *, outside: int = 0
) -> Block:
    """A block of these steps (ns), with so much of its time in none of them."""
    whole = sum(walls) + outside
    return Block(
        launch="a@cuda:0/1",
        rank=0,
        index=0,
        first_step=0,
        wall_ns=tuple(walls),
        event_ns=None if events is None else tuple(events),
        block_wall_ns=whole,
        block_raw_ns=whole,
    )


def chosen(
    blocks: Sequence[Block], *, overhead: float | None = None, margin: float = MARGIN
) -> ClockChoice:
    figures = block_figures(blocks)
    return choose([TimedBlock(figures=one, overhead=overhead) for one in figures], margin)


def steps(wall_us: float, event_us: float, *, number: int = 20) -> Block:
    return a_block([round(1000 * wall_us)] * number, [round(1000 * event_us)] * number)


@pytest.mark.parametrize(
    ("wall_us", "event_us", "overhead", "clock"),
    [
        (21_419, 21_374, 15e-6, "steps"),  # float32 products on an H100: 0.2 % are missing
        (8_965, 8_900, 15e-6, "wall"),  # its launches: 0.7 %
        (1_703, 1_680, 15e-6, "wall"),  # its bfloat16 products: 1.4 %
        (76, 65, 15e-6, "wall"),  # the same at small size
        (5_000, 4_960, None, "wall"),  # 0.8 %, and nothing shows what timing costs
        (5_000, 4_960, 20e-6, "steps"),
        (5_000, 4_500, 480e-6, "wall"),  # steps that do nothing were slow: 0.025 ms count
        (20_000, 20_000, None, "steps"),
    ],
)
def test_steps_are_judged_where_the_wall_bears_them_out(
    wall_us: float, event_us: float, overhead: float | None, clock: str
) -> None:
    assert chosen([steps(wall_us, event_us)] * 5, overhead=overhead).clock == clock


def test_a_sixth_of_the_margin_may_be_missing() -> None:
    just, beyond = steps(10_000, 10_000 * math.exp(-0.99 * ALLOWED)), steps(10_000, 9_949)
    assert chosen([just] * 3).clock == "steps"
    assert chosen([beyond] * 3).clock == "wall"
    assert chosen([beyond] * 3, margin=0.05).clock == "steps"
    assert chosen([just] * 3, margin=0.0).clock == "wall"


def test_one_stalled_block_does_not_decide_and_two_halves_of_all_do() -> None:
    sound, walls = steps(10_000, 9_990), [10_000_000] * 20
    stalled = a_block(walls, [9_990_000] * 20, outside=400_000_000)
    assert chosen([stalled, *[sound] * 9]).clock == "steps"
    assert chosen([stalled, stalled, *[sound] * 8]).clock == "wall"


def test_a_lie_in_few_launches_counts_by_what_it_is_worth() -> None:
    """A part of the blocks moves the mean that is judged, whatever their median says."""
    sound, false = steps(10_000, 9_990), steps(10_000, 9_300)
    assert chosen([false] * 4 + [sound] * 6).clock == "wall"
    assert chosen([false] * 1 + [sound] * 19).clock == "steps"  # 0.4 % of the mean


def test_long_events_do_not_make_up_for_short_ones() -> None:
    """The sum is that of the wall, and the median is 10 % below it."""
    walls = [10_000_000] * 20
    events = [9_000_000] * 12 + [11_500_000] * 8
    assert sum(events) == sum(walls)
    assert chosen([a_block(walls, events)] * 5).clock == "wall"


def test_time_between_steps_is_missing_too_without_a_clock_of_the_device() -> None:
    walls = [1_000_000] * 50
    assert chosen([a_block(walls)] * 5).clock == "steps"
    assert chosen([a_block(walls, outside=400_000)] * 5).clock == "wall"


times = st.integers(min_value=20_000, max_value=50_000_000)
parts = st.floats(min_value=0.5, max_value=1.0)


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    """Blocks of a case: walls as they come, events of any part of them, gaps between steps."""
    made = []
    for _ in range(draw(st.integers(min_value=1, max_value=6))):
        wall = draw(times)
        walls = [
            round(wall * draw(st.floats(min_value=1.0, max_value=1.5)))
            for _ in range(draw(st.integers(min_value=1, max_value=6)))
        ]
        events = [round(one * draw(parts)) for one in walls]
        made.append(a_block(walls, events, outside=draw(st.integers(0, 100_000))))
    return made


overheads = st.one_of(st.none(), st.floats(min_value=0.0, max_value=1.0))
margins = st.floats(min_value=0.0, max_value=0.2)


@given(blocks(), overheads, margins)
@settings(deadline=None)
def test_judged_steps_are_at_most_a_third_of_the_margin_below_their_wall(
    made: list[Block], overhead: float | None, margin: float
) -> None:
    figures = block_figures(made)
    if chosen(made, overhead=overhead, margin=margin).clock == "steps":
        below = [one.median_wall - one.log_seconds for one in figures]
        allowed = PART * math.log1p(margin)
        assert sum(below) / len(below) <= allowed - math.log1p(-allowed) + 1e-12


@given(blocks(), overheads, margins)
@settings(deadline=None)
def test_shorter_events_never_bring_the_steps_back(
    made: list[Block], overhead: float | None, margin: float
) -> None:
    if chosen(made, overhead=overhead, margin=margin).clock == "wall":
        shorter = [
            a_block(
                one.wall_ns,
                [max(1, event * 9 // 10) for event in one.event_ns or ()],
                outside=one.block_wall_ns - sum(one.wall_ns),
            )
            for one in made
        ]
        assert chosen(shorter, overhead=overhead, margin=margin).clock == "wall"


@given(blocks(), st.floats(min_value=0.0, max_value=1.0), margins)
@settings(deadline=None)
def test_what_is_subtracted_is_bounded_whatever_was_measured(
    made: list[Block], overhead: float, margin: float
) -> None:
    allowed = PART * math.log1p(margin)
    for one in block_figures(made):
        counted = subtracted(TimedBlock(figures=one, overhead=overhead), allowed)
        wall = one.held / one.num_steps
        assert 0.0 <= counted <= min(overhead, LARGEST_OVERHEAD, allowed * wall) + 1e-15
