"""Runs with counters, readings and kernel faults of their devices, as the judge reads them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from support.builders import (
    FUNCTIONAL,
    Watching,
    a_case,
    a_plan,
    a_system,
    verdict_of,
    watched_events,
)

from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import Event, KernelLogged
from appliance.records.plan import Plan
from appliance.records.system import Device, Fact, System
from appliance.records.verdict import Ruling, Verdict
from appliance.records.vocabulary import COUNTERS, THROTTLES
from appliance.storage import criteria_file

DEVICE = "card:0"

PLAN = a_plan(a_case(device=DEVICE))

ACCELERATOR = criteria_file.load_criteria("accelerator")[0]

HEALTHY = dict.fromkeys(COUNTERS, 0)

CALM: Mapping[str, float | None] = {
    **{f"throttled_{name}": 0.0 for name in THROTTLES},
    "graphics_clock_hertz": 1.8e9,
    "pcie_width": 16.0,
    "pcie_generation": 5.0,
    "utilisation_fraction": 1.0,
}

FACTS = {
    "highest_graphics_clock": Fact(value=2_000_000_000, unit="hertz"),
    "pcie_width_highest": Fact(value=16),
    "pcie_generation_highest": Fact(value=5),
    "power_limit": Fact(value=700, unit="watts"),
    "power_limit_default": Fact(value=700, unit="watts"),
}


def system(*names: str, **facts: Fact) -> System:
    """A node of cards that tell what their highest values are."""
    result = a_system(*(names or (DEVICE,)))
    devices = tuple(replace(one, facts={**FACTS, **facts}) for one in result.identity.devices)
    return replace(result, identity=replace(result.identity, devices=devices))


def watching(
    counters: Mapping[str, int | None] | None = None,
    values: Mapping[str, float | None] | None = None,
    **settings: Any,
) -> Watching:
    """A healthy card, which shows these counters and readings from its third launch on."""
    return Watching(
        counters=lambda n: {**HEALTHY, **((counters or {}) if n > 2 else {})},
        values=lambda n: {**CALM, **((values or {}) if n > 2 else {})},
        **settings,
    )


def ruling(verdict: Verdict, criterion: str) -> Ruling:
    (result,) = [one for one in verdict.rulings if one.criterion == criterion]
    return result


def asking(metric: str, **fields: Any) -> Criteria:
    """The functional criteria and one on health."""
    fields = {"at_most": 0.0, **fields}
    one = Criterion(id="asked", kind="health", title="Asked", metric=metric, **fields)
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, one))


def answer(events: Sequence[Event], metric: str, plan: Plan = PLAN, **fields: Any) -> Ruling:
    devices = plan.cases[0].all_devices if len(plan.cases) == 1 else ()
    names = devices or tuple(case.device for case in plan.cases)
    result = verdict_of(plan, events, asking(metric, **fields), system=system(*names))
    return ruling(result, "asked")


def fault(code: str, *, is_fatal: bool, device: str = DEVICE, launch: str = "") -> KernelLogged:
    return KernelLogged(
        launch=launch,
        device=device,
        code=code,
        is_fatal=is_fatal,
        meaning="it fell off",
        text="a line",
        sequence=7,
    )


@dataclass(frozen=True)
class Recorded:
    """A fault of a recorded machine: what it does to the run that had begun on a healthy one."""

    vendor: str
    healthy: str
    name: str
    criterion: str
    answer: tuple[str, str]


FAIL, UNSEEN = ("fail", "health"), ("inconclusive", "not_observed")

RECORDED = (
    Recorded("nvml", "h100_sxm", "ecc_uncorrected", "ecc-uncorrected", FAIL),
    Recorded("nvml", "h100_sxm", "remap_pending", "row-remap-pending", FAIL),
    Recorded("nvml", "h100_sxm", "link_down", "links-down", FAIL),
    Recorded("nvml", "h100_sxm", "pcie_x8", "pcie-lanes", FAIL),
    Recorded("nvml", "h100_sxm", "thermal_throttle", "throttling", FAIL),
    Recorded("nvml", "h100_sxm", "reset_wanted", "reset-wanted", FAIL),
    Recorded("nvml", "h100_sxm", "gpu_lost", "lost", FAIL),
    Recorded("nvml", "h100_sxm", "missing_fields", "ecc-uncorrected", UNSEEN),
    Recorded("nvml", "h100_sxm", "permission_denied", "ecc-uncorrected", UNSEEN),
    Recorded("nvml", "links_not_shown_of_two", "links_not_shown_of_two", "links-down", UNSEEN),
    Recorded("nvml", "fabric_not_ready", "fabric_not_ready", "fabric", ("inconclusive", "fabric")),
    Recorded("nvml", "pages_retired", "pages_retired", "pages-pending", FAIL),
    Recorded("rocm", "mi300x", "ecc_uncorrected", "ecc-uncorrected", FAIL),
    Recorded("rocm", "mi300x", "bad_page_pending", "pages-pending", FAIL),
    Recorded("rocm", "mi300x", "link_down", "links-down", FAIL),
    Recorded("rocm", "mi300x", "pcie_x8", "pcie-lanes", FAIL),
    Recorded("rocm", "mi300x", "thermal_throttle", "throttling", FAIL),
    Recorded("rocm", "mi300x", "gpu_lost", "lost", FAIL),
    Recorded("rocm", "mi300x", "permission_denied", "ecc-uncorrected", UNSEEN),
    Recorded("xpu", "max_1550", "max_1550_ecc", "ecc-uncorrected", FAIL),
    Recorded("xpu", "max_1550", "max_1550_link_down", "links-down", FAIL),
    Recorded("xpu", "max_1550", "max_1550_x8", "pcie-lanes", FAIL),
    Recorded("xpu", "max_1550", "max_1550_throttled", "throttling", FAIL),
    Recorded("xpu", "max_1550", "max_1550_lost", "lost", FAIL),
    Recorded("xpu", "max_1550", "max_1550_missing_field", "ecc-corrected", UNSEEN),
    Recorded("xpu", "max_1550", "max_1550_denied", "row-remap-pending", UNSEEN),
)


def replayed(vendor: str) -> ModuleType:
    """The replay of a vendor's tool."""
    return importlib.import_module(f"recorded.replayed_{vendor}")


def run_of(vendor: str, healthy: str, faulty: str) -> tuple[Verdict, tuple[Device, ...]]:
    """A run on a recorded machine, another one from the third launch on, as one verdict."""
    before, after = (replayed(vendor).vendor(name) for name in (healthy, faulty))
    others = {one.id: one for one in after.probe()}
    devices = tuple(one for one in before.probe() if one.id in others)

    def card(device: Device) -> Watching:
        other = others[device.id]
        begin = before if healthy != faulty else after
        return Watching(
            counters=lambda n: begin.counters(device) if n < 3 else after.counters(other),
            values=lambda n: {
                **(begin.read(device) if n < 3 else after.read(other)),
                "utilisation_fraction": 1.0,
            },
            hints={**before.hints(device), **after.hints(other)},
            absent=tuple(sorted(before.absent(device))),
        )

    plan = a_plan(*(a_case(device=device.id) for device in devices))
    base = a_system()
    node = replace(base, identity=replace(base.identity, devices=devices))
    events = watched_events(plan, {device.id: card(device) for device in devices})
    return verdict_of(plan, events, ACCELERATOR, system=node), devices
