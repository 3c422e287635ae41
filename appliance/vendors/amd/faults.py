"""What AMD's driver writes into the kernel's log when a device is at fault.

The lines are those of Linux and of the driver that AMD ships, drivers/gpu/drm/amd; each pattern
names its file. They begin with "amdgpu" and the device's PCI address, some with a number of the
event in braces. A count of zero is a report of health, not a fault, and so is not matched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from appliance.linux import pci
from appliance.linux.fact_reader import value_of
from appliance.linux.sysfs import or_none
from appliance.records.system import Device
from appliance.vendors.base import KernelFault

FAMILY = re.compile(r"amdgpu|amdkfd")
ADDRESS = re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A line of the driver: our code for it, whether it is fatal, what it means, and its file."""

    expression: re.Pattern[str]
    code: str
    is_fatal: bool
    meaning: str
    file: str


def _pattern(expression: str, code: str, meaning: str, file: str, *, fatal: bool = True) -> Pattern:
    return Pattern(re.compile(expression, re.IGNORECASE), code, fatal, meaning, file)


RAS, DEVICE = "amdgpu/amdgpu_ras.c", "amdgpu/amdgpu_device.c"
JOB, EEPROM = "amdgpu/amdgpu_job.c", "amdgpu/amdgpu_ras_eeprom.c"
PATTERNS = (
    _pattern(
        r"\b[1-9]\d* (?:new )?uncorrectable hardware errors detected in",
        "RAS uncorrectable",
        "a block of the device has errors that were not corrected",
        RAS,
    ),
    _pattern(
        r"ERREVENT_ATHUB_INTERRUPT\) detected",
        "RAS fatal event",
        "the device stopped for an error that it could not correct, and is reset",
        RAS,
    ),
    _pattern(
        r"poison is consumed by client|\b[1-9]\d* (?:new )?poison consumption detected",
        "RAS poison consumed",
        "a program read data that the device knew to be damaged",
        "amdkfd/kfd_int_process_v9.c, " + RAS,
    ),
    _pattern(
        r"poison is created|\b[1-9]\d* (?:new )?deferred hardware errors detected in",
        "RAS deferred",
        "data in the device's memory is damaged and was set aside until it is used",
        RAS,
        fatal=False,
    ),
    _pattern(
        r"RAS records:\d+ exceed threshold|saved bad pages \d+ reaches threshold",
        "RAS threshold",
        "so many pages of its memory are retired that the device is to be replaced",
        EEPROM,
    ),
    _pattern(r"device lost from bus", "lost", "the device does not answer any more", DEVICE),
    _pattern(
        r"GPU reset begin!",
        "reset",
        "the device hung or failed and is reset; what ran on it is lost",
        DEVICE,
    ),
    _pattern(
        r"GPU reset\(\d+\) failed|GPU reset end with ret = -|GPU recovery failed: -",
        "reset failed",
        "the device could not be brought back by a reset",
        DEVICE + ", " + JOB,
    ),
    _pattern(
        r"GPU reset(?:\(\d+\))? succeeded",
        "reset succeeded",
        "the device was reset and works again",
        DEVICE,
        fatal=False,
    ),
    _pattern(
        r"ring \S+ timeout, but soft recovered",
        "ring recovered",
        "a queue of the device hung and was freed without a reset",
        JOB,
        fatal=False,
    ),
    _pattern(r"ring \S+ timeout, signaled", "ring timeout", "a queue of the device hangs", JOB),
    _pattern(
        r"unrecoverable state due to an unsuccessful queues preemption",
        "queue preemption",
        "a queue of the device hangs and could not be taken from it",
        "amdkfd/kfd_device_queue_manager.c",
    ),
    _pattern(
        r"page fault \(src_id",
        "page fault",
        "a program on the device used memory that is not its own; most often the program is wrong",
        "amdgpu/gmc_v9_0.c",
        fatal=False,
    ),
    _pattern(
        r"XGMI: Failed to add node",
        "XGMI",
        "the device could not be joined to the others by its links",
        "amdgpu/amdgpu_xgmi.c",
    ),
    _pattern(
        r"GPU is throttled",
        "throttled",
        "the device holds its clocks down to protect itself",
        "pm/swsmu",
        fatal=False,
    ),
)


def fault(line: str, devices: Sequence[Device]) -> KernelFault | None:
    """The fault of one of the devices that a line reports; None if it is none of AMD's."""
    if not FAMILY.search(line):
        return None
    for pattern in PATTERNS:
        if pattern.expression.search(line):
            return KernelFault(
                code=f"amdgpu {pattern.code}",
                device=_device(line, devices),
                is_fatal=pattern.is_fatal,
                meaning=f"{pattern.meaning} (Linux, drivers/gpu/drm/amd/{pattern.file})",
            )
    return None


def _device(line: str, devices: Sequence[Device]) -> str:
    """The device that the line names; of partitions, which the kernel does not name, the first."""
    named = [or_none(partial(pci.address, text)) for text in ADDRESS.findall(line)]
    known = {one.id: str(value_of(one.facts, "pci_address") or "") for one in devices}
    for address in filter(None, named):
        whole = address.rpartition(".")[0]
        same = [one for one, its in known.items() if its == address]
        near = [one for one, its in known.items() if its.rpartition(".")[0] == whole]
        if whole and near:
            return (same or near)[0]
    return ""
