"""Which rates a bundle carries: those of its own cases on its own models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import SYSTEM, a_case, observed_case

from appliance.errors import UsageError
from appliance.records.json import from_json, to_json
from appliance.records.plan import Case
from appliance.records.qualified import ObservedCase, Qualified
from appliance.storage.qualified_file import (
    check_qualified,
    load_for_run,
    load_observed,
    load_qualified,
    reference_rates,
)

DEVICES = SYSTEM.identity.devices
CASE = a_case("gemm")
XEON = "Intel(R) Xeon(R) Processor"


def test_rate_of_the_same_work_is_carried_whatever_it_was_called() -> None:
    own = observed_case(CASE, stack={"torch": "2.11.0"}, disturbed="by others")
    own = replace(own, case="another name")
    (rate,) = reference_rates([own], [a_case("bert"), CASE], DEVICES)
    assert rate.units_per_second == own.units_per_second
    assert (rate.stack, rate.num_devices) == ({"torch": "2.11.0"}, 1)
    assert rate.disturbed == "by others"


@pytest.mark.parametrize(
    "change",
    [
        {"units_per_second": None},
        {"model": "Another"},
        {"version": CASE.version + 1},
        {"workload": "bert"},
        {"parameters": {"size": 77}},
    ],
)
def test_rate_of_anything_else_is_not(change: dict[str, object]) -> None:
    assert reference_rates([observed_case(CASE, **change)], [CASE], DEVICES) == ()


def test_run_carries_shipped_rates_of_its_cases_alone() -> None:
    shipped = next(one for one in load_observed([XEON]) if one.units_per_second is not None)
    case, device = _as_planned(shipped), replace(DEVICES[0], model=XEON)
    carried = load_for_run([case], [device])
    assert {one.workload for one in carried.rate} == {shipped.workload}
    assert replace(carried, rate=()) == load_qualified([XEON])
    assert load_for_run([CASE], [replace(DEVICES[0], model="Another")]) == Qualified(record=())


def _as_planned(one: ObservedCase) -> Case:
    return replace(
        a_case(one.workload),
        workload=one.workload,
        version=one.version,
        parameters=one.parameters,
        device=DEVICES[0].id,
    )


@pytest.mark.parametrize(
    "change", [{"units_per_second": float("nan")}, {"num_devices": 0}, {"stack": {}}]
)
def test_rate_of_nothing_is_refused(change: dict[str, object]) -> None:
    (rate,) = reference_rates([observed_case(CASE)], [CASE], DEVICES)
    sound = Qualified(record=(), rate=(rate,))
    check_qualified(sound, "qualified.json")
    bad = replace(sound, rate=(replace(rate, **change),))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r'qualified\.json: the rate of workload "gemm" on '):
        check_qualified(bad, "qualified.json")


@pytest.mark.parametrize(
    ("version", "before"),
    [
        (1, b'"record":[]'),
        (2, b'"observed":[],"record":[]'),
        (3, b'"observed":[],"rate":[],"record":[]'),
    ],
)
def test_bundles_of_older_versions_are_read(version: int, before: bytes) -> None:
    data = b'{%b,"schema":"bench/qualified/%d"}' % (before, version)
    old = from_json(Qualified, data, name="qualified.json")
    assert old == Qualified(schema=f"bench/qualified/{version}", record=())  # type: ignore[arg-type]
    assert to_json(old) == data
