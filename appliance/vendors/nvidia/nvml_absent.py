"""What an NVIDIA device cannot have, by its generation, its model, or what it reports.

Rows are replaced from Ampere on, and pages were retired before (NVIDIA GPU Memory Error
Management, "Row-remapping"; Dynamic Page Retirement). Blackwell's links have no count of replays
(NVML change log, "Changes between v560 and v565").
"""

from __future__ import annotations

import re
from dataclasses import replace

from appliance.linux.fact_reader import value_of
from appliance.linux.sysfs import or_none
from appliance.records.system import Device, Fact
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.vendors.nvidia.nvlink import CARD
from appliance.vendors.nvidia.nvml import Handle, Nvml
from appliance.vendors.nvidia.nvml_telemetry import COUNTED, PAGES, READ, REMAPPED

AMPERE, BLACKWELL = (8, 0), (10, 0)
"""Compute capability of the first parts of a generation."""
LINK_COUNTERS = ("link_replays", "link_recoveries", "link_errors")
WITHOUT_LINKS = ((8, 9), (12, 0))
"""Compute capability of the generations none of whose parts has NVLink: Ada Lovelace, whose chips
have no connector for it (https://www.tweaktown.com/news/88605/nvidia-kills-nvlink-support-for-ada-
lovelace-silent-death-sli/index.html), and GeForce and RTX PRO with Blackwell (https://
ai-infrastructure.net/gpu-rtx-workstation/: none of them, the Server Edition included)."""
LINKLESS = re.compile(r"\b(T4|A10G?|L4|L40S?)\b|GeForce RTX 30[5-8]0")
"""Cards without NVLink of generations that have it: NVIDIA T4 datasheet; A10 and A10G (https://
gist.github.com/shashankprasanna/10ebe6dc1ba1d8d93db17da4e2cc890e: PCIe between them; Azure's
Standard_NV72ads_A10_v5 likewise); of GeForce RTX 30 the 3090 and the 3090 Ti alone have it (https://
wccftechad.pages.dev/posts/gigabyte-geforce-rtx-4090-pcb-shows-left-out-nvidia-nvlink-traces)."""
BY_DESIGN = "design of the part: it has no NVLink"
NO_QUESTION = frozenset({*COUNTERS, *READINGS} - {*COUNTED, *READ})
"""What the library has no question for, on any part."""


def capability(device: Device) -> tuple[int, int]:
    """Compute capability of the device's architecture (sm_90); (0, 0) if it is not known."""
    matched = re.fullmatch(r"sm_([0-9]+)([0-9])", str(value_of(device.facts, "architecture")))
    return (int(matched[1]), int(matched[2])) if matched else (0, 0)


def absent(device: Device) -> frozenset[str]:
    """Counters and readings that the device cannot have, by the facts of its probe."""
    return NO_QUESTION | _of_memory(device) | _of_links(device)


def without_links(device: Device) -> Device:
    """The device; where its design has no links and nothing says otherwise, with none of them.

    The driver of such a part supports no question about links, as that of a part whose links it
    hides. What the driver reports stands above what the model or the generation would have.
    """
    is_by_design = capability(device) in WITHOUT_LINKS or LINKLESS.search(device.model)
    number = device.facts.get("num_links")
    if not is_by_design or number is None or number.value is not None:
        return device
    none = Fact(value=0, source=BY_DESIGN)
    return replace(device, facts={**device.facts, "num_links": none, "num_links_up": none})


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
    if number == 0:
        return frozenset((*LINK_COUNTERS, "links_down"))
    if num_up == 0 and CARD.search(device.model):  # nobody plugged bridges in
        return frozenset(LINK_COUNTERS)
    return frozenset({"link_replays"} if capability(device) >= BLACKWELL else ())
