"""A launch that made its float32 products in another format than its case asks for is no pass."""

from dataclasses import replace

import pytest
from support.builders import (
    FUNCTIONAL,
    a_case,
    a_plan,
    healthy_events,
    verdict_of,
    without,
)

from appliance.records.journal import Event, Float32Products
from appliance.records.json import Parameters
from appliance.records.plan import Plan
from appliance.records.verdict import Ruling
from appliance.records.workload import Work

IN_TF32 = a_plan(a_case("bert", parameters={"dtype": "float16", "tf32": True}))


def integrity(plan: Plan, events: list[Event]) -> Ruling:
    verdict = verdict_of(plan, events, FUNCTIONAL)
    return next(item for item in verdict.rulings if item.criterion == "integrity")


def with_format(plan: Plan, moment: str, actual: str) -> list[Event]:
    """The healthy run, but for convolutions in the last launch, read so at that moment."""
    last = plan.launches[-1].id
    return [
        replace(event, formats={"matmul": event.formats["matmul"], "convolution": actual})
        if isinstance(event, Float32Products) and (event.launch, event.moment) == (last, moment)
        else event
        for event in healthy_events(plan)
    ]


@pytest.mark.parametrize(
    ("parameters", "precision", "is_so"),
    [
        ({"dtype": "float16", "tf32": True}, "float16", True),
        ({"dtype": "float16", "tf32": False}, "float16", False),
        ({}, "tf32", True),
        ({"tf32": 1}, "", False),
    ],
)
def test_a_case_asks_for_tf32_by_its_parameter_or_by_its_work(
    parameters: Parameters,
    precision: str,
    is_so: bool,  # noqa: FBT001 - a row of the table
) -> None:
    assert a_case(parameters=parameters, work=Work(precision=precision)).in_tf32 is is_so


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("plan", "actual"), [(a_plan(), "tf32"), (a_plan(), "mixed"), (IN_TF32, "ieee")]
)
def test_products_in_another_format_are_no_pass_and_not_the_devices_fault(
    plan: Plan, actual: str, moment: str
) -> None:
    ruling = integrity(plan, with_format(plan, moment, actual))
    requested = "tf32" if plan is IN_TF32 else "ieee"
    assert (ruling.ruling, ruling.reason) == ("inconclusive", "setting")
    assert ruling.explanation == (
        f"launch {plan.launches[-1].id} made float32 products (convolution) in {actual} {moment} "
        f"its steps, where the case asks for {requested}"
    )
    assert "torch's settings" in ruling.action


def test_products_in_the_format_that_was_asked_for_pass() -> None:
    for plan in (a_plan(), IN_TF32):
        assert integrity(plan, healthy_events(plan)).ruling == "pass"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_format_that_was_not_read_back_is_no_pass(moment: str) -> None:
    plan = a_plan()
    events = without(
        healthy_events(plan),
        lambda event: isinstance(event, Float32Products) and event.moment == moment,
    )
    ruling = integrity(plan, events)
    assert (ruling.ruling, ruling.reason) == ("inconclusive", "evidence_missing")
    assert "did not read back the format of its float32 products" in ruling.explanation
