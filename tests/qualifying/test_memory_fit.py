"""What is said beside a plan of the memory that its cases took before; nothing is refused by it."""

from __future__ import annotations

from dataclasses import replace

from support.builders import SYSTEM, a_case, a_plan, observed_case

from appliance.qualifying.memory import GIB, sentences
from appliance.records.system import System

CASE = a_case("gemm", device="cuda:0")
PLAN = a_plan(CASE, a_case("bert", device="cuda:0"))
H100 = "NVIDIA H100 80GB HBM3"


def system(memory_gib: int | None, vendor: str = "nvidia") -> System:
    memory = None if memory_gib is None else memory_gib * GIB
    device = replace(
        SYSTEM.identity.devices[0], id="cuda:0", vendor=vendor, model="L40S", memory_bytes=memory
    )
    return replace(SYSTEM, identity=replace(SYSTEM.identity, devices=(device,)))


def test_row_that_took_more_than_the_device_has_is_named() -> None:
    seen = [
        observed_case(CASE, model="another", device_memory_bytes=50 * GIB),
        observed_case(CASE, model=H100, device_memory_bytes=61 * GIB),
    ]
    assert list(sentences(PLAN, system(48), seen)) == [
        f"gemm used 61 GiB on {H100} before; cuda:0 has 48 GiB"
    ]


def test_rows_that_fit_are_counted() -> None:
    seen = [observed_case(CASE, model=H100, device_memory_bytes=48 * GIB)]
    assert list(sentences(PLAN, system(48), seen)) == [
        "1 of 2 cases used no more memory before, at full size, than their devices have here"
    ]


def test_nothing_is_said_of_what_is_not_known() -> None:
    large = observed_case(CASE, device_memory_bytes=61 * GIB)
    of_others = [
        replace(large, size="small"),
        replace(large, parameters={"size": 77}),
        replace(large, version=CASE.version + 1),
        replace(large, device_memory_bytes=None, host_memory_bytes=61 * GIB),
    ]
    assert list(sentences(PLAN, system(48), of_others)) == []
    assert list(sentences(PLAN, system(None), [large])) == []


def test_processor_s_memory_is_the_host_s() -> None:
    by_host = observed_case(CASE, host_memory_bytes=61 * GIB)
    assert len(list(sentences(PLAN, system(48, "cpu"), [by_host]))) == 1
    beside_a_device = replace(by_host, device_memory_bytes=GIB)
    assert list(sentences(PLAN, system(48, "cpu"), [beside_a_device])) == []
