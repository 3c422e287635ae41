"""What is said of a plan's times: of this stack, or borrowed from another and marked."""

from __future__ import annotations

from dataclasses import replace

from support.builders import SYSTEM, a_case, a_plan

from appliance.evidence.qualification import stack
from appliance.qualifying.expectation import Expected, expected, sentence
from appliance.records.qualified import ObservedCase
from appliance.storage.qualified_file import load_observed

DEVICE = SYSTEM.identity.devices[0]
CASE = a_case("gemm")
PLAN = a_plan(CASE, a_case("bert"))


def observed(seconds: float | None, **changes: str) -> ObservedCase:
    here = stack(SYSTEM, DEVICE, CASE.libraries)
    return replace(
        load_observed(["NVIDIA H100 80GB HBM3"])[0],
        workload=CASE.workload,
        version=CASE.version,
        parameters=CASE.parameters,
        model=DEVICE.model,
        stack={**here, **changes},
        launch_seconds=seconds,
    )


def test_times_of_this_stack_come_before_those_of_another() -> None:
    other = replace(observed(9.0, torch="2.11.0"), recorded_utc="2099-01-01T00:00:00Z")
    assert expected(PLAN, SYSTEM, [other, observed(2.0)]) == {CASE.id: Expected(seconds=2.0)}


def test_time_of_another_stack_is_marked() -> None:
    known = expected(PLAN, SYSTEM, [observed(9.0, torch="2.11.0")])
    assert known == {CASE.id: Expected(seconds=9.0, borrowed="torch 2.11.0")}
    assert sentence(PLAN, known).endswith("took 9 s in all; 1 of them with torch 2.11.0")


def test_nothing_is_said_of_what_was_not_measured_or_is_another() -> None:
    another = replace(observed(2.0), version=CASE.version + 1)
    elsewhere = replace(observed(2.0), model="another")
    known = expected(PLAN, SYSTEM, [observed(None), another, elsewhere])
    assert known == {}
    assert sentence(PLAN, known) == ""
