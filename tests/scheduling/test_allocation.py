"""Which rows have room within some minutes, and with how many launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.records.plan import ScheduledRow
from appliance.scheduling.allocation import MOST_MINUTES, allocated, has_any, smallest

ANALYSES = (5, 10, 20, 40)


def row(
    name: str,
    fixed: float = 60.0,
    launch: float = 60.0,
    *,
    weight: float = 1.0,
    least: int = 1,
    most: int = 5,
    variant_of: str = "",
    group: str = "",
) -> ScheduledRow:
    return ScheduledRow(
        name=name,
        group=group or name,
        variant_of=variant_of,
        weight=weight,
        fixed_seconds=fixed,
        launch_seconds=launch,
        is_recorded=False,
        least=least,
        most=most,
        launches=None,
    )


def cost(rows: list[ScheduledRow], launches: dict[str, int | None]) -> float:
    made = [(one, launches[one.name]) for one in rows]
    return sum(one.fixed_seconds + count * one.launch_seconds for one, count in made if count)


def test_more_rows_are_worth_more_than_more_launches() -> None:
    rows = [row("a"), row("b"), row("c")]
    assert allocated(rows, 6, ANALYSES) == {"a": 1, "b": 1, "c": 1}
    assert allocated(rows, 5, ANALYSES) == {"a": 2, "b": 1, "c": None}


def test_cheapest_rows_are_covered_first() -> None:
    rows = [row("dear", fixed=240.0), row("cheap"), row("cheap-too")]
    assert allocated(rows, 4, ANALYSES) == {"dear": None, "cheap": 1, "cheap-too": 1}


def test_a_row_that_does_not_fit_keeps_no_smaller_one_out() -> None:
    rows = [row("judged", launch=60.0, least=5), row("small", fixed=200.0, launch=10.0)]
    assert allocated(rows, 4, ANALYSES)["small"] is not None


def test_rows_of_the_score_come_before_those_that_are_only_reported() -> None:
    rows = [row("reported", fixed=1.0, launch=1.0, weight=0.0), row("scored")]
    assert allocated(rows, 2, ANALYSES) == {"reported": None, "scored": 1}


def test_a_variant_is_run_only_beside_its_case_and_after_every_case() -> None:
    rows = [
        row("a", fixed=600.0),
        row("b"),
        row("a~other", fixed=1.0, launch=1.0, weight=0.0, variant_of="a"),
        row("b~other", weight=0.0, variant_of="b"),
    ]
    assert allocated(rows, 3, ANALYSES) == {"a": None, "b": 2, "a~other": None, "b~other": None}
    assert allocated(rows, 4, ANALYSES) == {"a": None, "b": 1, "a~other": None, "b~other": 1}


def test_launches_go_where_they_narrow_the_score_most_for_a_second() -> None:
    rows = [row("long", fixed=0.0, launch=120.0), row("short", fixed=0.0, launch=20.0)]
    assert allocated(rows, 4, ANALYSES) == {"long": 1, "short": 5}
    heavy = [replace(rows[0], weight=10.0), rows[1]]
    assert allocated(heavy, 7, ANALYSES) == {"long": 3, "short": 3}


def test_judged_rows_get_whole_interim_analyses_after_all_have_their_first() -> None:
    rows = [
        row("judged", fixed=0.0, least=5, most=40),
        row("reported", fixed=0.0, launch=60.0),
    ]
    assert allocated(rows, 9, ANALYSES) == {"judged": 5, "reported": 4}
    assert allocated(rows, 14, ANALYSES) == {"judged": 5, "reported": 5}
    assert allocated(rows, 15, ANALYSES) == {"judged": 10, "reported": 5}
    assert allocated(rows, 44, ANALYSES) == {"judged": 20, "reported": 5}
    assert allocated(rows, 45, ANALYSES) == {"judged": 40, "reported": 5}


def test_rows_whose_speeds_are_compared_stand_or_fall_together() -> None:
    rows = [row("one", group="one"), row("other", group="one", launch=90.0), row("third")]
    assert allocated(rows, 4, ANALYSES) == {"one": None, "other": None, "third": 3}
    assert allocated(rows, 10, ANALYSES) == {"one": 2, "other": 2, "third": 2}


@given(
    costs=st.lists(st.tuples(st.floats(0, 900), st.floats(0.1, 300)), min_size=1, max_size=12),
    minutes=st.integers(1, 200),
)
def test_no_choice_takes_longer_than_its_minutes_and_none_leaves_room_for_a_row(
    costs: list[tuple[float, float]], minutes: int
) -> None:
    rows = [row(f"row{n}", fixed, launch) for n, (fixed, launch) in enumerate(costs)]
    launches = allocated(rows, minutes, ANALYSES)
    spent = cost(rows, launches)
    assert spent <= 60.0 * minutes + 1e-5
    for one in rows:
        count = launches[one.name]
        added = one.fixed_seconds + one.launch_seconds if count is None else one.launch_seconds
        assert count == one.most or spent + added > 60.0 * minutes


def test_the_same_rows_get_the_same_choice_and_more_minutes_cover_no_less() -> None:
    rows = [row(f"row{n}", 30.0 * n, 10.0 + 7 * n) for n in range(9)]
    before = -1
    for minutes in range(1, 60):
        launches = allocated(rows, minutes, ANALYSES)
        assert launches == allocated(list(rows), minutes, ANALYSES)
        covered = sum(count is not None for count in launches.values())
        assert covered >= before
        before = covered


def test_rows_that_cannot_run_are_no_plan_by_themselves() -> None:
    rows = [row("here"), row("not-here", fixed=0.0, launch=0.0)]
    launches = allocated(rows, 1, ANALYSES)
    assert launches == {"here": None, "not-here": 5}
    assert not has_any(rows, launches)
    assert has_any(rows, allocated(rows, 2, ANALYSES))


@pytest.mark.parametrize("least", [1, 2, 12, 4711, MOST_MINUTES])
def test_smallest_number_of_minutes_is_found(least: int) -> None:
    assert smallest(lambda minutes: minutes >= least) == least


def test_a_smaller_number_that_is_enough_is_not_passed_over() -> None:
    assert smallest(lambda minutes: minutes == 4 or minutes >= 7) == 4


def test_no_number_of_minutes_is_found_where_none_is_enough() -> None:
    assert smallest(lambda _: False) is None
