"""Repeats of the deterministic phase in a plan: their launches, their order and their time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import PROTOCOL, a_case
from support.planned_suites import planned, suite, suite_case

from appliance.errors import UsageError
from appliance.planning.plan import case_launches
from appliance.storage import suite_file

REPEATING = replace(PROTOCOL, repeats=3)


def test_a_case_has_its_repeats_beside_its_other_launches() -> None:
    launches = case_launches(a_case(launches=2), REPEATING)
    assert [(launch.id, launch.is_timed, launch.is_repeat) for launch in launches] == [
        ("gemm@cpu:0/0", False, False),
        ("gemm@cpu:0/1", True, False),
        ("gemm@cpu:0/2", True, False),
        ("gemm@cpu:0/r1", False, True),
        ("gemm@cpu:0/r2", False, True),
        ("gemm@cpu:0/r3", False, True),
    ]


def test_repeats_are_spread_over_the_rounds() -> None:
    plan = planned(suite(suite_case("gemm"), protocol=REPEATING))
    assert [group[0].rpartition("/")[2] for group in plan.groups] == [
        *("0", "r1", "1", "r2", "2", "r3", "3", "4", "5")
    ]


def test_a_repeat_takes_a_part_of_the_untimed_launch() -> None:
    """2 s of an untimed launch, and 1 s of each of the five timed ones."""
    plan = planned(suite(suite_case("gemm"), protocol=REPEATING))
    assert plan.expected_seconds == pytest.approx(2.0 + 5 * 1.0 + 3 * 2.0 / 3)


def test_no_deterministic_phase_and_the_shortest_and_longest_are_allowed() -> None:
    for repeats in (0, 3, 100):
        suite_file.check_protocol(replace(PROTOCOL, repeats=repeats), "mine")


@pytest.mark.parametrize("repeats", [-1, 1, 2, 101])
def test_too_few_or_too_many_repeats_are_refused(repeats: int) -> None:
    with pytest.raises(UsageError, match='key "repeats" of protocol must be 3 to 100, or 0'):
        suite_file.check_protocol(replace(PROTOCOL, repeats=repeats), "mine")


@pytest.mark.parametrize("name", suite_file.list_suites())
def test_every_shipped_suite_plans_a_deterministic_phase(name: str) -> None:
    shipped, _ = suite_file.load_suite(name)
    assert shipped.protocol.repeats == (10 if name.startswith("burn-in") else 3)
