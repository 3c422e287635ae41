"""Readings and error counts of an NVIDIA device, by the vocabulary's names and in SI units.

Each is a number, or the Unreadable with the reason that there is none, so that values and the
reasons of gaps come from the same query. The library gives milliwatts, millijoules, megahertz and
percent (nvml.h). Throttling is a mask of bits of which several may be set at once; idleness is
one of them and no throttling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from appliance.linux import pci
from appliance.linux.fact_reader import value_of
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.system import Device
from appliance.records.vocabulary import THROTTLES
from appliance.vendors.nvidia.nvlink import COUNTERS as LINK_COUNTERS
from appliance.vendors.nvidia.nvlink import Links
from appliance.vendors.nvidia.nvml import (
    Handle,
    Nvml,
    Place,
    Refusal,
    attempt,
    first,
    present,
)

Readings = Mapping[str, float | Unreadable]
Counts = Mapping[str, int | Unreadable]
READ = (
    "graphics_clock_hertz",
    "memory_clock_hertz",
    "power_watts",
    "energy_joules",
    "temperature_celsius",
    "memory_temperature_celsius",
    "utilisation_fraction",
    "memory_utilisation_fraction",
    "memory_used_bytes",
    "fan_fraction",
    "pcie_generation",
    "pcie_width",
    "throttle_mask",
    *(f"throttled_{name}" for name in THROTTLES if name != "current"),
)
"""Readings that the library has a question for; it has no reason for the regulators' current."""
PAGES = ("pages_retired_corrected", "pages_retired_uncorrected", "pages_pending")
REMAPPED = (
    "rows_remapped_corrected",
    "rows_remapped_uncorrected",
    "row_remap_pending",
    "row_remap_failed",
)
"""In the order in which nvmlDeviceGetRemappedRows answers."""
COUNTED = (
    "ecc_corrected",
    "ecc_uncorrected",
    "ecc_uncorrected_total",
    *PAGES,
    *REMAPPED,
    "reset_wanted",
    "pcie_replays",
    "pcie_naks",
    "pcie_correctable",
    "pcie_non_fatal",
    "pcie_fatal",
    "link_replays",
    "link_recoveries",
    "link_errors",
    "links_down",
    "thermal_violation_ns",
    "power_violation_ns",
    "power_brake_violation_ns",
    "sync_violation_ns",
    "lost",
)
"""Counters that the library has a question for."""
NO_FANS = "this part has no fans of its own"
IDLE = 0x1
REASONS: Mapping[int, str] = {
    0x2: "setting",  # applications clocks
    0x4: "power_cap",
    0x8: "hardware",  # temperature, power brake or current; also for a moment as clocks change
    0x10: "sync",
    0x20: "thermal",  # by the driver, for the device or its memory
    0x40: "thermal",  # by hardware
    0x80: "power_brake",
    0x100: "setting",  # display clocks
}
"""Bits of nvmlClocksEventReasons (nvml.h). Newer drivers have more, BoardLimit and Reliability
among them, which nvml.h does not explain: they are "other"."""
REASONED = tuple(f"throttled_{name}" for name in THROTTLES if f"throttled_{name}" in READ)
"""What the mask says of each reason."""
MEGAHERTZ = 1_000_000
GRAPHICS, MEMORY = 0, 2
"""nvmlClockType_t."""
CELSIUS_OF_DEVICE = 0
"""nvmlTemperatureSensors_t."""
CORRECTED, UNCORRECTED = 0, 1
"""nvmlMemoryErrorType_t."""
SINCE_BOOT, IN_LIFE = 0, 1
"""nvmlEccCounterType_t: volatile and aggregate."""
NAKS = ("NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED", "NVML_FI_DEV_PCIE_COUNT_NAKS_SENT")
"""Refusals of what the device sent, and of what was sent to it (drivers from 535 on)."""
POWER, THERMAL, SYNC = 0, 1, 2
"""nvmlPerfPolicyType_t: how long these caused the device to be below application clocks."""
EVENT = "NVML_FI_DEV_CLOCKS_EVENT_REASON_"
EVENT_FIELDS: Mapping[str, int] = {
    "SW_THERM_SLOWDOWN": 269,
    "HW_THERM_SLOWDOWN": 270,
    "HW_POWER_BRAKE_SLOWDOWN": 271,
}
"""Nanoseconds in which a reason was active: the driver kept the device and its memory below their
highest temperatures; hardware cut clocks by half or more for heat; the same for a signal of the
power supply (nvml.h of CUDA 13.0, "Field Identifiers"; DCGM's fields of these names are the same).

Their numbers are those of drivers from 580 on. nvml.h of R575 had 251 to 253, which are power
smoothing before and after, where a field of another meaning would read as one that never grows
(compared 2026-11: nvidia-ml-py 12.570.172, 12.575.51, 13.580.82)."""
FIRST_DRIVER = 580
"""Whose fields have these numbers."""
OLD_DRIVER, LIBRARY_DIFFERS = 13, 25
"""nvmlReturn_t: the driver lacks the question, and the library differs from it in version."""


def throttled(mask: int) -> dict[str, float]:
    """The mask as readings: 1 for each reason that is active, else 0."""
    left = mask & ~IDLE
    active = {name for bit, name in REASONS.items() if left & bit}
    if left & ~sum(REASONS):
        active.add("other")
    return {name: float(name.removeprefix("throttled_") in active) for name in REASONED}


def readings(nvml: Nvml, place: Place) -> Readings:
    """Everything of this moment."""
    whole = place.whole
    ask = nvml.whole

    def share(member: str) -> float:
        rates = nvml.ask("nvmlDeviceGetUtilizationRates", whole)
        return int(getattr(rates, member)) / 100

    ways: Mapping[str, Callable[[], float]] = {
        "graphics_clock_hertz": lambda: ask("nvmlDeviceGetClockInfo", whole, GRAPHICS) * MEGAHERTZ,
        "memory_clock_hertz": lambda: ask("nvmlDeviceGetClockInfo", whole, MEMORY) * MEGAHERTZ,
        "power_watts": lambda: ask("nvmlDeviceGetPowerUsage", whole) / 1e3,
        "energy_joules": lambda: ask("nvmlDeviceGetTotalEnergyConsumption", whole) / 1e3,
        "temperature_celsius": lambda: temperature(nvml, whole),
        "memory_temperature_celsius": lambda: nvml.field(whole, "NVML_FI_DEV_MEMORY_TEMP"),
        "utilisation_fraction": lambda: share("gpu"),
        "memory_utilisation_fraction": lambda: share("memory"),
        "memory_used_bytes": lambda: int(memory_info(nvml, place.own).used),
        "fan_fraction": lambda: _fans(nvml, whole),
        "pcie_generation": lambda: ask("nvmlDeviceGetCurrPcieLinkGeneration", whole),
        "pcie_width": lambda: ask("nvmlDeviceGetCurrPcieLinkWidth", whole),
    }
    return {**{name: attempt(way) for name, way in ways.items()}, **_throttling(nvml, whole)}


def counters(nvml: Nvml, tree: Tree, place: Place, device: Device) -> Counts:
    """Every count since the driver was loaded, and every state that shows a fault."""
    whole = place.whole
    links = Links(nvml, whole)
    errors = partial(nvml.whole, "nvmlDeviceGetTotalEccErrors", whole)
    pages = partial(_pages, nvml, whole)
    ways: Mapping[str, Callable[[], int]] = {
        "ecc_corrected": partial(errors, CORRECTED, SINCE_BOOT),
        "ecc_uncorrected": partial(errors, UNCORRECTED, SINCE_BOOT),
        "ecc_uncorrected_total": partial(errors, UNCORRECTED, IN_LIFE),
        "pages_retired_corrected": partial(pages, 0),
        "pages_retired_uncorrected": partial(pages, 1),
        "pages_pending": partial(nvml.whole, "nvmlDeviceGetRetiredPagesPendingStatus", whole),
        "reset_wanted": lambda: int(nvml.field(whole, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION") != 0),
        "pcie_replays": partial(nvml.whole, "nvmlDeviceGetPcieReplayCounter", whole),
        "pcie_naks": lambda: sum(nvml.field(whole, name) for name in NAKS),
        **_bus_errors(nvml, tree, whole, device),
        **{name: partial(links.counted, name) for name in LINK_COUNTERS},
        "links_down": partial(links.down, device),
        **_violations(nvml, whole),
    }
    counts = {**{name: attempt(way) for name, way in ways.items()}, **_remapped(nvml, whole)}
    return {**counts, "lost": attempt(partial(_lost, nvml, tree, whole, device))}


def temperature(nvml: Nvml, handle: Handle) -> int:
    """Of the device, celsius; newer drivers know another question for it."""
    return first(
        lambda: nvml.whole("nvmlDeviceGetTemperature", handle, CELSIUS_OF_DEVICE),
        lambda: nvml.whole("nvmlDeviceGetTemperatureV", handle, CELSIUS_OF_DEVICE),
    )


def memory_info(nvml: Nvml, handle: Handle) -> Any:
    """Total and used bytes; the second form does not count what the driver keeps as used."""
    second = getattr(nvml.library, "nvmlMemory_v2", None)
    return first(
        lambda: nvml.ask("nvmlDeviceGetMemoryInfo", handle, second),
        lambda: nvml.ask("nvmlDeviceGetMemoryInfo", handle),
    )


def _fans(nvml: Nvml, handle: Handle) -> float:
    count = nvml.whole("nvmlDeviceGetNumFans", handle)
    if not count:
        raise Unreadable(NO_FANS)
    return max(nvml.whole("nvmlDeviceGetFanSpeed_v2", handle, fan) for fan in range(count)) / 100


def _throttling(nvml: Nvml, handle: Handle) -> Readings:
    mask = attempt(
        lambda: first(
            lambda: nvml.whole("nvmlDeviceGetCurrentClocksEventReasons", handle),
            lambda: nvml.whole("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
        )
    )
    if isinstance(mask, Unreadable):
        return {"throttle_mask": mask, **dict.fromkeys(REASONED, mask)}
    return {"throttle_mask": mask, **throttled(mask)}


def _remapped(nvml: Nvml, handle: Handle) -> Counts:
    rows = attempt(lambda: nvml.ask("nvmlDeviceGetRemappedRows", handle))
    if isinstance(rows, Unreadable):
        return dict.fromkeys(REMAPPED, rows)
    return {name: int(value) for name, value in zip(REMAPPED, rows, strict=True)}


def _pages(nvml: Nvml, handle: Handle, cause: int) -> int:
    """Pages that were retired for a cause (nvmlPageRetirementCause_t)."""
    return len(nvml.ask("nvmlDeviceGetRetiredPages", handle, cause))


def _bus_errors(
    nvml: Nvml, tree: Tree, handle: Handle, device: Device
) -> Mapping[str, Callable[[], int]]:
    """Errors of PCIe as the kernel counts them, else as the device does."""
    function = pci.Function(tree, str(value_of(device.facts, "pci_address")))
    kinds = {
        "pcie_correctable": ("correctable", "NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS"),
        "pcie_non_fatal": ("nonfatal", "NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR"),
        "pcie_fatal": ("fatal", "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR"),
    }
    return {
        name: partial(first, partial(function.errors, kind), partial(nvml.field, handle, field))
        for name, (kind, field) in kinds.items()
    }


def _violations(nvml: Nvml, handle: Handle) -> Mapping[str, Callable[[], int]]:
    """Nanoseconds below the wanted clock by cause, of the newest question that is answered.

    Heat is what the driver did for it and what hardware did, which counts twice where both were at
    once. Older drivers answer for both together, and have no count of the power brake.
    """

    def status(policy: int) -> int:
        return int(nvml.ask("nvmlDeviceGetViolationStatus", handle, policy).violationTime)

    events = attempt(lambda: _event_fields(nvml, handle))

    def event(*kinds: str) -> int:
        if isinstance(events, Unreadable):
            raise events
        return sum(present(events[kind]) for kind in kinds)

    def field(kind: str) -> int:
        return nvml.field(handle, EVENT + kind)

    heat = partial(event, "SW_THERM_SLOWDOWN", "HW_THERM_SLOWDOWN")
    return {
        "thermal_violation_ns": lambda: first(heat, lambda: status(THERMAL)),
        "power_violation_ns": lambda: first(lambda: status(POWER), lambda: field("SW_POWER_CAP")),
        "power_brake_violation_ns": lambda: event("HW_POWER_BRAKE_SLOWDOWN"),
        "sync_violation_ns": lambda: first(lambda: status(SYNC), lambda: field("SYNC_BOOST")),
    }


def _event_fields(nvml: Nvml, handle: Handle) -> Counts:
    """EVENT_FIELDS in one call, where library and driver both mean them by these numbers."""
    if any(nvml.constant(EVENT + kind) != number for kind, number in EVENT_FIELDS.items()):
        raise Refusal(LIBRARY_DIFFERS)
    branch = nvml.text("nvmlSystemGetDriverVersion").partition(".")[0]
    if not branch.isdigit() or int(branch) < FIRST_DRIVER:
        raise Refusal(OLD_DRIVER)
    values = nvml.fields(handle, [(EVENT + kind, 0) for kind in EVENT_FIELDS])
    return dict(zip(EVENT_FIELDS, values, strict=True))


def _lost(nvml: Nvml, tree: Tree, handle: Handle, device: Device) -> int:
    """Asked of a sensor, because the driver answers for names from its own memory."""
    if _is_gone(tree, device):
        return 1
    try:
        temperature(nvml, handle)
    except Refusal as gap:
        if gap.is_lost:
            return 1
        raise
    return 0


def _is_gone(tree: Tree, device: Device) -> bool:
    """True if the kernel showed the device's function at the probe, and does no more."""
    address, width = (value_of(device.facts, one) for one in ("pci_address", "pcie_width_highest"))
    if address is None or width is None:
        return False
    return tree.exists(pci.DEVICES) and not pci.Function(tree, str(address)).is_there
