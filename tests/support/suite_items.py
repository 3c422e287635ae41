"""Devices and items of a suite, and where they are placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from support.builders import PROTOCOL, SEED

from appliance.planning import placement
from appliance.records.plan import NotPlanned
from appliance.records.suite import Suite, SuiteCase
from appliance.records.system import Device

GIB = placement.GIB


def device(index: int, *, gib: float | None = 80.0, vendor: str = "vendor") -> Device:
    return Device(
        id=f"{vendor}:{index}",
        vendor=vendor,
        index=index,
        model="M",
        serial=None,
        memory_bytes=None if gib is None else round(gib * GIB),
        facts={},
    )


def item(name: str = "one", **fields: object) -> SuiteCase:
    given = SuiteCase(
        id=name,
        workload="w",
        parameters={"batch": 32},
        expected_seconds=1.0,
        reference_seconds=1.0,
        time_limit_seconds=60.0,
        memory_limit_gib=1.0,
    )
    return replace(given, **fields)  # type: ignore[arg-type]


def placed(
    *items: SuiteCase, devices: Sequence[Device], varies: bool = False, seed: str = SEED
) -> tuple[tuple[placement.Placed, ...], tuple[NotPlanned, ...]]:
    suite = Suite(
        name="mine",
        version=1,
        summary="",
        time_limit_seconds=1e3,
        variants=varies,
        protocol=PROTOCOL,
        case=items,
    )
    return placement.place(suite, devices, seed)
