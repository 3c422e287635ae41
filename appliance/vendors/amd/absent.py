"""What an AMD device cannot have, whatever the permission: by its design, or by what it reports.

AMD gives up pages, for errors that were not corrected alone (amdsmi.h, amdsmi_retired_page_
record_t; Linux, amdgpu_ras.c), counts a violation in cycles of the firmware (amdsmi.h,
"accumulation_counter"), of its links errors alone, and no resets. Why a device is slow has other
names by design (`amd_throttles`).
"""

from __future__ import annotations

from appliance.linux.fact_reader import value_of
from appliance.records.system import Device
from appliance.records.vocabulary import COUNTERS, THROTTLES
from appliance.vendors.amd.throttles import CAUSES, MASKED

OF_LINKS = frozenset(("links_down", "link_errors"))
OF_OTHERS = (
    "ecc_uncorrected_total",
    "pages_retired_corrected",
    "driver_errors",
    "programming_errors",
    "resets",
    "reset_wanted",
    "link_replays",
    "link_recoveries",
    "thermal_violation_ns",
    "power_violation_ns",
    "power_brake_violation_ns",
    "sync_violation_ns",
)
COUNTED_CAUSES = frozenset(word for _, word in CAUSES.values())
NO_QUESTION = frozenset(
    (
        *OF_OTHERS,
        *(name for name in COUNTERS if name.startswith(("rows_", "row_"))),
        *(f"throttled_{name}" for name in THROTTLES if name not in {*COUNTED_CAUSES, *MASKED}),
    )
)
"""Counters and readings that neither AMD's library nor its tool has a question for."""
UNCOUNTED = frozenset(f"throttled_{name}" for name in MASKED if name not in COUNTED_CAUSES)
"""Reasons that the mask of MI200 has and the counts of MI300 and later have not."""
COUNTING = ("gfx94", "gfx95")
"""Targets of MI300 and later ("GPU violations", ROCm documentation: from MI300 on)."""


def absent(device: Device) -> frozenset[str]:
    """Counters and readings that the device cannot have, by the facts of its probe."""
    target = str(value_of(device.facts, "architecture") or "")
    causes = UNCOUNTED if target.startswith(COUNTING) else frozenset[str]()
    links = OF_LINKS if value_of(device.facts, "num_links") == 0 else frozenset[str]()
    return NO_QUESTION | causes | links
