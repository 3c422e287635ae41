"""What keeps tables and plots readable: one unit a row, two ticks an axis, nothing said twice."""

import pytest
from support.report_samples import sample

from reports import plots, words
from reports.document.view import view


@pytest.mark.parametrize(
    ("name", "value", "end", "unit", "written"),
    [
        ("flops_per_second", 6.86e11, 1.035e12, "FLOP/s", "1,035"),
        ("step_seconds", 8.613e-4, 1.432e-3, "s", "1,432"),
        ("memory_bytes", 3 * 2**30, 5 * 2**29, "bytes", "2.500"),
        ("stall_rate", 0.0219, 0.0627, "", "6.270"),
        ("units_per_second", 0.0, 2.0, "images/s", "2.000 images/s"),
    ],
)
def test_an_end_of_an_interval_is_in_the_unit_of_its_value(
    name: str, value: float, end: float, unit: str, written: str
) -> None:
    assert words.in_unit_of(name, value, end, unit) == written


@pytest.mark.parametrize(
    ("low", "high"), [(45.1, 61.0), (0.0, 0.97), (999.0, 1001.0), (4.9, 5.2), (38.0, 84.0)]
)
def test_an_axis_has_two_numbers_at_least(low: float, high: float) -> None:
    ticks = plots._ticks(low, high)
    assert len(ticks) >= 2
    assert all(low <= tick <= high + 1e-9 for tick in ticks)


def test_criteria_that_say_the_same_of_a_case_stand_in_one_box() -> None:
    made = view(sample(unsupported="gemm-bf16"))
    boxes = [one for one in made.open_rulings if one.ruling == "inconclusive"]
    assert [one.criterion for one in boxes] == ["integrity, completion, correctness"]


def test_no_row_of_a_small_run_has_a_column_of_dashes() -> None:
    made = view(sample())
    grid = made.performance.grid
    assert all(len(row) == len(grid.columns) for row in grid.rows)
    assert not any({row[place] for row in grid.rows} == {"—"} for place in range(len(grid.columns)))
    assert made.judging.score is None
    assert made.judging.stragglers is None
