"""Lines of the kernel's log in which i915 and xe say that a card or its driver failed.

Words by drivers/gpu/drm/xe and drivers/gpu/drm/i915 of Linux, each with its file. Whether a device
may still be accepted: not with an error of the hardware that was not corrected, not with a card
that the driver gave up, and not with a hang, which Intel's own check of a machine also calls
critical (intel/xpumanager, cli/src/local_functions.h). A page that software asked for in vain, or
an engine that serves video alone, is reported and judged by what else the run shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from appliance.linux.fact_reader import value_of
from appliance.linux.pci import address
from appliance.linux.sysfs import or_none
from appliance.records.system import Device
from appliance.vendors.base import KernelFault

DRIVER = re.compile(r"\b(?:i915|xe) ((?:[0-9a-f]{4,8}:)[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
OLD_DRIVER = re.compile(r"\[drm\] (?:\*ERROR\* )?GPU HANG")
"""Before Linux 4.14, i915 did not write which card it means."""

FAULTS: Sequence[tuple[str, str, bool, str]] = (
    (
        r"declared device \S+ as wedged|declaring it wedged|[Dd]evice wedged",
        "device wedged",
        True,
        "the driver gave the card up and refuses all work (Linux, xe_device.c and intel_gt.c)",
    ),
    (
        r"\[Hardware Error\].*\b(?:uncorrectable|FATAL|NONFATAL|Fatal|Data Corruption)\b",
        "hardware error",
        True,
        "the card reported an error that it could not correct (Linux, xe_hw_error.c)",
    ),
    (
        r"\[Hardware Error\].*(?<!un)correctable",
        "hardware error, corrected",
        False,
        "the card reported an error that it corrected (Linux, xe_hw_error.c)",
    ),
    (
        r"GPU HANG",
        "GPU HANG",
        True,
        "an engine of the card made no progress and was reset (Linux, i915_gpu_error.c)",
    ),
    (
        r"Engine reset: engine_class=",
        "engine reset",
        True,
        "an engine of the card made no progress and was reset (Linux, xe_guc_submit.c)",
    ),
    (
        r"LMEM not initialized by firmware",
        "memory not initialised",
        True,
        "firmware did not bring up the card's memory (Linux, intel_uncore.c and xe_mmio.c)",
    ),
    (
        r"In Survivability Mode",
        "survivability mode",
        True,
        "the card's firmware failed, and it can only be flashed (Linux, xe_survivability_mode.c)",
    ),
    (
        r"HuC: [Aa]uthentication failed",
        "HuC load",
        False,
        "the firmware that serves video alone did not load (Linux, xe_huc.c and intel_huc.c)",
    ),
    (
        r"GuC initialization failed|(?:GT\d+: |GUC: |GuC )load failed",
        "GuC load",
        True,
        "the firmware that schedules the card's work did not load (Linux, xe_guc.c, intel_uc.c)",
    ),
    (
        r"(?i:memory cat error)",
        "CAT error",
        False,
        "an engine asked for a page that is not there (Linux, xe_guc_submit.c)",
    ),
    (
        r"Timedout job",
        "job timed out",
        False,
        "a job did not end in its time and was ended (Linux, xe_guc_submit.c)",
    ),
)
"""What a line holds, its code, whether it is fatal, and what it means; the first match counts."""


def fault(line: str, devices: Sequence[Device]) -> KernelFault | None:
    """The fault of one of the devices in a line; None if of none, or of other graphics."""
    named = DRIVER.search(line)
    if named is None and not OLD_DRIVER.search(line):
        return None
    device = _device(named[1], devices) if named is not None else ""
    if device is None:
        return None
    for pattern, code, is_fatal, meaning in FAULTS:
        if re.search(pattern, line):
            return KernelFault(code=code, device=device, is_fatal=is_fatal, meaning=meaning)
    return None


def _device(named: str, devices: Iterable[Device]) -> str | None:
    """Id of the device at this PCI address; None if none is."""
    wanted = or_none(lambda: address(named))
    matching = (one.id for one in devices if value_of(one.facts, "pci_address") == wanted)
    return next(matching, None)
