"""The budget of suites on the recorded device follows from its journals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import write_device_budget as budget  # noqa: E402 - after the path


def test_page_is_up_to_date() -> None:
    assert budget.PAGE.read_text() == budget.page(), "run make generate"


def test_parts_of_a_recorded_launch_are_within_its_time() -> None:
    launches = budget.journal("smoke").launches
    assert len(launches) == 33
    for one in launches.values():
        assert one.is_forked
        assert 0.0 < one.environment + one.build + one.second_build + one.block <= one.wall


def test_fresh_launches_lose_their_imports_as_forks() -> None:
    (launch,) = budget.journal("node").of("launch-latency", is_timed=False)
    assert not launch.is_forked
    saved = launch.environment + launch.second_build - budget.forked_setup()
    (case,) = [one for one in budget.node_cases() if one.name == "launch-latency"]
    assert case.untimed == pytest.approx(launch.wall - saved)


def test_bounded_references_make_rows_shorter_and_change_nothing_else() -> None:
    for row, bounded in zip(budget.acceptance_rows(), budget.acceptance_rows(20.0), strict=True):
        assert bounded.reference == min(20.0, row.reference)
        assert row.whole(5) - bounded.whole(5) == pytest.approx(
            2 * (row.reference - bounded.reference)
        )
