"""What an NVIDIA device cannot have, by its generation, its model, or what it reports.

Rows are replaced from Ampere on, and pages were retired before (NVIDIA GPU Memory Error
Management, "Row-remapping"; Dynamic Page Retirement). Blackwell's links have no count of replays
(NVML change log, "Changes between v560 and v565").
"""

from __future__ import annotations

import re

from appliance.linux.fact_reader import value_of
from appliance.linux.sysfs import or_none
from appliance.records.system import Device
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.vendors.nvidia.nvlink import CARD
from appliance.vendors.nvidia.nvml import Handle, Nvml
from appliance.vendors.nvidia.nvml_telemetry import COUNTED, PAGES, READ, REMAPPED

AMPERE, BLACKWELL = (8, 0), (10, 0)
"""Compute capability of the first parts of a generation."""
LINK_COUNTERS = ("link_replays", "link_recoveries", "link_errors")
LINKLESS = re.compile(r"\b(T4|L4|L40S?)\b")
"""Cards without NVLink (NVIDIA T4, L4, L40 and L40S datasheets)."""
NO_QUESTION = frozenset({*COUNTERS, *READINGS} - {*COUNTED, *READ})
"""What the library has no question for, on any part."""


def capability(device: Device) -> tuple[int, int]:
    """Compute capability of the device's architecture (sm_90); (0, 0) if it is not known."""
    matched = re.fullmatch(r"sm_([0-9]+)([0-9])", str(value_of(device.facts, "architecture")))
    return (int(matched[1]), int(matched[2])) if matched else (0, 0)


def absent(device: Device) -> frozenset[str]:
    """Counters and readings that the device cannot have, by the facts of its probe."""
    return NO_QUESTION | _of_memory(device) | _of_links(device)


def has_no_fans(nvml: Nvml, handle: Handle) -> bool:
    """True if the device reports so; False also where it reports nothing."""
    return or_none(lambda: nvml.whole("nvmlDeviceGetNumFans", handle)) == 0


def _of_memory(device: Device) -> frozenset[str]:
    compute_capability = capability(device)
    if compute_capability == (0, 0):
        return frozenset()
    return frozenset(PAGES if compute_capability >= AMPERE else REMAPPED)


def _of_links(device: Device) -> frozenset[str]:
    number, num_up = (value_of(device.facts, name) for name in ("num_links", "num_links_up"))
    if number == 0 or LINKLESS.search(device.model):
        return frozenset((*LINK_COUNTERS, "links_down"))
    if num_up == 0 and CARD.search(device.model):  # nobody plugged bridges in
        return frozenset(LINK_COUNTERS)
    return frozenset({"link_replays"} if capability(device) >= BLACKWELL else ())
