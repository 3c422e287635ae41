"""What is reported of a device, in one word for all vendors: facts, readings, counters, throttling.

A vendor's module translates its tool's fields into these names and units, so that criteria, orders
and reports need no vendor's words. Nothing else may be in `Device.facts`, `Vendor.read` or
`Vendor.counters` of an accelerator; tests hold every vendor to it. Units are SI units and stand in
the name of a reading; a fact has its unit in its record. A field that the tool lacks is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

Behaviour = Literal["growth", "state"]

FACTS: Mapping[str, str] = {
    "uuid": "identifier that the vendor gave this unit",
    "product": "marketing or product name",
    "board_part_number": "part number of the board",
    "vbios": "version of the firmware that starts the device",
    "firmware": "versions of the other firmware, each with its name",
    "driver": "version of the kernel driver",
    "driver_api": "newest version of the vendor's programming interface that the driver serves",
    "architecture": "generation of the design, or the compiler's target",
    "compute_units": "multiprocessors, compute units or Xe cores",
    "memory": "memory of the device, bytes",
    "memory_type": "kind of memory",
    "ecc_mode": "error correction of the device's memory: on or off",
    "ecc_mode_pending": "error correction after the next reset: on or off",
    "persistence_mode": "whether the driver stays loaded without users: on or off",
    "compute_mode": "who may use the device",
    "confidential_mode": "confidential computing: on or off",
    "power_limit": "power limit in force, watts",
    "power_limit_default": "power limit as delivered, watts",
    "power_limit_lowest": "lowest power limit that can be set, watts",
    "power_limit_highest": "highest power limit that can be set, watts",
    "highest_graphics_clock": "highest clock of the compute part, hertz",
    "highest_memory_clock": "highest clock of the memory, hertz",
    "graphics_clock_limit": "clock that somebody set as the highest, hertz",
    "slowdown_temperature": "temperature at which the device slows down, celsius",
    "pci_address": "domain, bus, device and function",
    "pci_device": "vendor and device id, as hexadecimal",
    "pci_subsystem": "subsystem vendor and device id, as hexadecimal",
    "pcie_generation_highest": "highest PCIe generation of the part itself",
    "pcie_width_highest": "most PCIe lanes of the part itself",
    "pcie_generation_slot": "highest PCIe generation of the part and its slot together",
    "pcie_width_slot": "most PCIe lanes of the part and its slot together",
    "numa_node": "memory node of the host that it is attached to",
    "cpu_affinity": "processors near it, as a list of ranges",
    "partition_mode": "how the device is divided: none, or the vendor's word for it",
    "memory_partition_mode": "how its memory is divided: none, or the vendor's word for it",
    "partitions": "the parts that it is divided into now, or what it is a part of",
    "fabric": "state of the switches between devices",
    "links_shown": "whether the driver shows links at all",
    "link_kind": "the vendor's own links between devices",
    "num_links": "links that the part has",
    "num_links_up": "links that work",
    "link_bytes_per_second": "rate of one link in one direction, bytes per second",
}
"""Facts of a device by name, with what they say."""

CONNECTION = "connection_to_"
"""A fact of this name and the number of another device says how the two are connected: the kind
and the number of links ("NVLink x18"), or the way over the host ("PCIe switch", "host bridge",
"between sockets")."""

THROTTLES: Mapping[str, str] = {
    "power_cap": "the power limit in force",
    "power_brake": "an external signal of the power supply",
    "thermal": "its own temperature, or that of its memory",
    "hardware": "hardware that slowed it down, for whatever cause",
    "current": "the current that its regulators give",
    "sync": "clocks held equal to those of another device",
    "setting": "a clock that somebody set",
    "other": "a reason that the vendor does not explain",
}
"""Why a device may not run at its highest clock; idleness is none of them. The reading is
"throttled_" and the name: 1 while the reason is active, else 0."""

HARMFUL_THROTTLES = ("power_brake", "thermal", "hardware", "current")
"""What a healthy device in a healthy node does not show. A power cap under load is what a cap is
for, and a setting or a sync is somebody's wish: both show in the clock that was lost."""

THROTTLE_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "power_cap": ("power_violation_ns",),
    "power_brake": ("power_brake_violation_ns",),
    "thermal": ("thermal_violation_ns",),
    "hardware": ("thermal_violation_ns", "power_brake_violation_ns"),
    "sync": ("sync_violation_ns",),
}
"""By reason the counters, one a cause, of the nanoseconds in which it was active or may have been.

Hardware slows a device down for heat or for the power brake, which are counted as these; what else
it does, as for a moment in which too much power is drawn, nobody counts. A reason that is not
here has no counter."""

READINGS: Mapping[str, str] = {
    "graphics_clock_hertz": "clock of the compute part",
    "memory_clock_hertz": "clock of the memory",
    "power_watts": "power drawn",
    "energy_joules": "energy since the driver was loaded",
    "temperature_celsius": "temperature of the device, its edge where there are several",
    "hotspot_temperature_celsius": "temperature of the hottest place",
    "memory_temperature_celsius": "temperature of the memory",
    "utilisation_fraction": "share of the time in which something ran",
    "memory_utilisation_fraction": "share of the time in which memory was read or written",
    "memory_used_bytes": "memory in use",
    "fan_fraction": "speed of the fans, of the fastest",
    "pcie_generation": "PCIe generation at this moment; idle devices may lower it",
    "pcie_width": "PCIe lanes at this moment",
    "throttle_mask": "the vendor's own mask of reasons",
    **{f"throttled_{name}": text for name, text in THROTTLES.items()},
}
"""Readings by name, with what they say."""

COLDEST, HOTTEST = -100.0, 300.0
"""Degrees Celsius, wider than the -50 to 200 in which AMD's tools are believed."""
FASTEST_CLOCK = 1e11
"""Hertz; the clocks of the recorded H100 are 1.98e9 and 2.62e9 (tests/recorded/h100)."""
MOST_WATTS = 1e5
"""Of one device; the recorded H100 drew 702."""
MOST_JOULES = 1e14
"""MOST_WATTS for 30 years."""
MOST_BYTES = 2.0**60
MOST_PROCESSORS = 1e6
RANGES: Mapping[str, tuple[float, float]] = {
    "graphics_clock_hertz": (0.0, FASTEST_CLOCK),
    "memory_clock_hertz": (0.0, FASTEST_CLOCK),
    "frequency_hertz": (0.0, FASTEST_CLOCK),
    "power_watts": (0.0, MOST_WATTS),
    "energy_joules": (0.0, MOST_JOULES),
    "temperature_celsius": (COLDEST, HOTTEST),
    "hotspot_temperature_celsius": (COLDEST, HOTTEST),
    "memory_temperature_celsius": (COLDEST, HOTTEST),
    "utilisation_fraction": (0.0, 2.0),
    "memory_utilisation_fraction": (0.0, 2.0),
    "memory_used_bytes": (0.0, MOST_BYTES),
    "memory_available_bytes": (0.0, MOST_BYTES),
    "fan_fraction": (0.0, 10.0),  # may exceed the whole (nvml.h)
    "pcie_generation": (0.0, 20.0),
    "pcie_width": (0.0, 64.0),
    "throttle_mask": (0.0, 2.0**64),
    "load1": (0.0, 1e9),
    "foreign_processors": (-MOST_PROCESSORS, MOST_PROCESSORS),  # a difference of counts
    "stolen_processors": (-MOST_PROCESSORS, MOST_PROCESSORS),
    **{f"throttled_{name}": (0.0, 1.0) for name in THROTTLES},
}
"""Between which values a reading is one, far wider than any device: what lies outside is a sensor
or a field that was not filled, and is recorded as not reported."""
MOST_COUNTED = 2**64 - 1
"""The largest that a register or a field of a vendor's tool holds."""


def is_possible(name: str, value: float | None) -> bool:
    """Whether any device can have this reading; None is not reported, which every one may be."""
    if value is None:
        return True
    low, high = RANGES.get(name, (-math.inf, math.inf))
    return math.isfinite(value) and low <= value <= high


def possible(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Readings of a device, as they are recorded: what none can have is not reported."""
    return {name: value if is_possible(name, value) else None for name, value in values.items()}


def is_count(value: int | None) -> bool:
    """Whether any counter can stand there; None is not reported."""
    return value is None or 0 <= value <= MOST_COUNTED


def possible_counts(counters: Mapping[str, int | None]) -> dict[str, int | None]:
    """Counters as they are recorded: what no register holds is not reported."""
    return {name: value if is_count(value) else None for name, value in counters.items()}


OF_PROCESSORS = ("machine_checks", "thermal_throttles")
"""Counters that processors alone have; their readings beside READINGS stand in RANGES."""
COUNTERS: Mapping[str, tuple[Behaviour, str]] = {
    "ecc_corrected": ("growth", "memory errors that were corrected"),
    "ecc_uncorrected": ("growth", "memory errors that were not"),
    "ecc_uncorrected_total": ("state", "memory errors not corrected in the life of the device"),
    "ecc_deferred": ("growth", "memory errors that were set aside until the data is used"),
    "rows_remapped_corrected": ("growth", "rows replaced for errors that were corrected"),
    "rows_remapped_uncorrected": ("growth", "rows replaced for errors that were not"),
    "row_remap_pending": ("state", "1 while a row waits for a reset to be replaced"),
    "row_remap_failed": ("state", "1 once a row could not be replaced"),
    "pages_retired_corrected": ("growth", "pages given up for repeated corrected errors"),
    "pages_retired_uncorrected": ("growth", "pages given up for an error that was not corrected"),
    "pages_pending": ("state", "pages that wait for a reset to be given up"),
    "ras_corrected": ("growth", "errors of other blocks that were corrected"),
    "ras_uncorrected": ("growth", "errors of other blocks that were not"),
    "driver_errors": ("growth", "failures of the driver to speak with the device"),
    "programming_errors": ("growth", "exceptions for how software programmed the device"),
    "resets": ("growth", "resets of the device"),
    "reset_wanted": ("state", "1 while the driver wants the device or the node to be reset"),
    "pcie_replays": ("growth", "packets sent again over PCIe"),
    "pcie_naks": ("growth", "packets that were refused over PCIe, and so sent again"),
    "pcie_correctable": ("growth", "correctable errors of PCIe"),
    "pcie_non_fatal": ("growth", "errors of PCIe that were not corrected, and not fatal"),
    "pcie_fatal": ("growth", "fatal errors of PCIe"),
    "link_replays": ("growth", "packets sent again over the vendor's links"),
    "link_recoveries": ("growth", "recoveries of the vendor's links"),
    "link_errors": ("growth", "checksum errors of the vendor's links"),
    "links_down": ("state", "links of the part that do not work"),
    "thermal_violation_ns": ("growth", "time below the wanted clock for temperature"),
    "power_violation_ns": ("growth", "time below the wanted clock for power"),
    "power_brake_violation_ns": ("growth", "time below the wanted clock for the power brake"),
    "sync_violation_ns": ("growth", "time below the wanted clock for that of another device"),
    "lost": ("state", "1 once the device does not answer any more"),
}
"""Counters by name: whether their growth counts or the value itself, and what they say."""

METRICS: Mapping[str, str] = {
    "step_seconds": "Step time",
    "first_step_seconds": "First step",
    "units_per_second": "Rate",
    "flops_per_second": "Arithmetic rate",
    "bytes_per_second": "Memory rate",
    "window_throughput": "Rate, all blocks",
    "latency_seconds": "Latency",
    "seconds_to_target": "Time to target",
    "steps_to_target": "Steps to target",
    "stall_share": "Time spent loading",
    "stall_rate": "Stalled steps",
    "slow_launch_rate": "Slow launches",
    "drift_over_run": "Drift over the run",
    "drift_per_30_minutes": "Drift in 30 minutes",
    "throttle_share": "Slowed down by heat, hardware, current or power supply",
    "throttle_share_power_cap": "Slowed down by the power limit",
    "power_limit_lowered": "Power limit below the part's default",
    "unused_power": "Power left unused while held back by the power limit",
    "lost_clock": "Clock below the highest",
    "power_fraction": "Power in hot phases, of the limit",
    "core_use": "Use of cores in hot phases",
    "throughput_ratio": "Rate over that of another case",
    "ratio_to_device": "Rate over that of the device case",
    "ratio_to_alone": "Rate over that of the case alone",
    "pcie_lanes_missing": "PCIe lanes missing",
    "pcie_generations_missing": "PCIe generations missing",
    "kernel_faults": "Faults in the kernel's log",
    "kernel_faults_fatal": "Fatal faults in the kernel's log",
}
"""What is measured of a case, as it is headed."""
SHARES: frozenset[str] = frozenset(
    (
        "stall_rate",
        "stall_share",
        "slow_launch_rate",
        "drift_over_run",
        "drift_per_30_minutes",
        "throttle_share",
        "throttle_share_power_cap",
        "power_limit_lowered",
        "unused_power",
        "lost_clock",
        "power_fraction",
        "core_use",
        "throughput_ratio",
        "ratio_to_device",
        "ratio_to_alone",
    )
)
"""Those that are parts of a whole, which people read as a percentage."""
_ACRONYMS = {"ecc": "ECC", "pcie": "PCIe", "ras": "RAS"}


def metric_words(name: str) -> str:
    """What a metric is called inside a sentence: "arithmetic rate", "ECC corrected"."""
    said = METRICS.get(name)
    if said is not None:
        return said if said[:2].isupper() else f"{said[0].lower()}{said[1:]}"
    return " ".join(_ACRONYMS.get(word, word) for word in name.split("_"))


def metric_value(name: str, value: float) -> str:
    """A value of a metric inside a sentence: a share as a percentage, all else as it is."""
    return f"{100 * value:.4g} %" if name in SHARES else f"{value:.6g}"
