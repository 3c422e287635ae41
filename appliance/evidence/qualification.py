"""Which qualified record speaks of a case: that of its workload, device model and library stack.

Whether a workload gives the same bits each time is a matter of kernels, and they change with every
release of a library and with every model. So a record is one only for exactly the stack that it
names, of the libraries that the workload needs: what one side does not report differs from what the
other does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from appliance.evidence.baseline_key import LIBRARIES, pairs, stated, worded
from appliance.records.json import sha256
from appliance.records.plan import Case
from appliance.records.qualified import Qualified, QualifiedRecord
from appliance.records.system import Device, System

KERNELS = (*LIBRARIES, "jax", "jaxlib")
"""Facts of the node's software that choose kernels."""
BROUGHT_BY = {
    "numpy": "numpy",
    "transformers": "transformers",
    "onnxruntime": "onnxruntime",
    "jax": "jax",
    "jaxlib": "jax",
}
"""Libraries among them that not every workload needs, by the distribution that it needs then."""
DRIVERS = (
    "driver",
    "driver_version",
    "runtime",
    "runtime_version",
    "firmware_version",
    "usable_processors",
)
"""Facts of a device that choose them too, or how many threads share a sum."""


def stack(system: System, device: Device, libraries: Collection[str]) -> Mapping[str, str]:
    """Versions and settings, by name, that choose the kernels of a workload on this device.

    `libraries` are the distributions that it needs, and what else is installed says nothing of it;
    of a workload that names none everything counts.
    """
    chosen = [
        name
        for name in KERNELS
        if not libraries or name not in BROUGHT_BY or BROUGHT_BY[name] in libraries
    ]
    return {
        **stated(chosen, system.identity.software),
        **stated(DRIVERS, device.facts),
    }


def device_digest(system: System, device: Device) -> str:
    """What a record calls one device: a digest, so that no serial is published."""
    named = system.identity.host.get("system_uuid")
    name = "" if named is None or named.value is None else str(named.value)
    return sha256(f"{device.model}\0{device.serial}\0{name}\0{device.id}".encode())


def find(qualified: Qualified, case: Case, system: System) -> tuple[QualifiedRecord | None, str]:
    """The record of this case on this node; else None and why there is none, in one clause."""
    device = next((one for one in system.identity.devices if one.id == case.device), None)
    if device is None:
        return None, f"{case.device} is not in this node"
    named = f"{case.workload} on {device.model}"
    known = [
        one
        for one in qualified.record
        if (one.workload, one.model) == (case.workload, device.model)
    ]
    if not known:
        return None, f"there is no qualified record of {named}"
    same = [one for one in known if one.version == case.version]
    if not same:
        versions = ", ".join(map(str, sorted({one.version for one in known})))
        why = f"is of its version {versions}, this run has version {case.version}"
        return None, f"the qualified record of {named} {why}"
    here = stack(system, device, case.libraries)
    for record in same:
        if dict(record.stack) == dict(here):
            return record, ""
    return None, f"the qualified record of {named} is for {_nearest(same, here)}"


def _nearest(records: list[QualifiedRecord], here: Mapping[str, str]) -> str:
    """What differs first in the record that differs least: "torch 2.12.0, this run has 2.13.0"."""
    differing = [
        [(name, one, two) for name, one, two in pairs("", record.stack, here) if one != two]
        for record in records
    ]
    name, there, now = min(differing, key=len)[0]
    return f"{name} {worded(there)}, this run has {worded(now)}"
