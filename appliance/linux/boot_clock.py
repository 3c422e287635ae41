"""The kernel's boot and the time since then: a clock that nobody can set."""

from __future__ import annotations

import time
from dataclasses import dataclass

from appliance.linux.sysfs import Tree, Unreadable

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTime:
    """The id of this boot, empty where it cannot be read, and nanoseconds since, asleep or not."""

    boot: str
    since_boot_ns: int


def boot_time() -> BootTime:
    """The moment, by the clock that time services and administrators cannot set."""
    try:
        boot = Tree().line(BOOT_ID)
    except Unreadable:
        boot = ""
    return BootTime(boot=boot, since_boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME))
