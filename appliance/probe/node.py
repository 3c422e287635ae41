"""The node as system.json records it: what it is (identity) and how it is now (conditions).

Vendors are asked for their devices and /proc and /sys for the rest; torch is never imported, so
that no device is touched before the first case. Identity is what a resumed run must find
again, so it has nothing that two containers on the same host would not share;
`records.system.identity_differences` states in sentences what differs.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import UsageError
from appliance.linux.sysfs import Tree
from appliance.probe import components, conditions, host
from appliance.records.json import sha256, to_json
from appliance.records.system import Conditions, Device, Fact, Facts, Identity, System
from appliance.storage.toml_file import did_you_mean
from appliance.vendors.base import Vendor
from appliance.vendors.registry import VENDORS
from appliance.vendors.visibility import NOT_VISIBLE, VENDOR_NAMES
from appliance.version import VERSION

WINDOW_SECONDS = 0.3
"""How long other processes are watched."""
OF_IMAGE = "BENCH_VENDOR"
"""Variable by which an image says for whose devices it is."""


def present(name: str | None = None) -> Vendor:
    """The vendor of that name, or the first that has devices. Raises UsageError.

    An image is made for one vendor and says so in BENCH_VENDOR: without a name nothing else will
    do, so that nobody gets an acceptance of the processors from an image for accelerators.
    """
    name = name or os.environ.get(OF_IMAGE) or None
    if name is not None and name not in VENDORS:
        if name in NOT_VISIBLE:
            raise UsageError(f"no accelerator visible: {NOT_VISIBLE[name]}")
        raise UsageError(f'there is no vendor called "{name}"{did_you_mean(name, _names())}')
    for one in VENDORS if name is None else (name,):
        vendor = VENDORS[one]()
        if vendor.probe():
            return vendor
    reason = NOT_VISIBLE.get(name or "", "no device was found")
    absence = getattr(vendor, "absence", "")  # what its driver says
    raise UsageError(f"no accelerator visible: {reason}{f' ({absence})' if absence else ''}")


def visible(name: str | None = None) -> tuple[Vendor, str]:
    """The vendor to look at, and what to tell if it is not the one that the image is for.

    Looking commits nobody to anything, so an image without its accelerators shows the processors.
    """
    try:
        return present(name), ""
    except UsageError as absence:
        if name is not None or not os.environ.get(OF_IMAGE):
            raise
        return present("cpu"), str(absence)


def _names() -> set[str]:
    return {*VENDORS, *NOT_VISIBLE, *VENDOR_NAMES}


def probe(
    vendors: Sequence[Vendor],
    software: Facts | None = None,
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    window_seconds: float = WINDOW_SECONDS,
    since: conditions.Moment | None = None,
) -> System:
    """Read the node: devices of `vendors`, host, parts and conditions. Never fails for a gap.

    `software` is what the worker reports of its libraries. The host is read beneath `root`. Other
    processes are watched from the moment `since`, if there is one, and for `window_seconds`.
    """
    tree = Tree(root)
    environment = os.environ if environment is None else environment
    before = since or conditions.observe(tree)
    devices = tuple(device for vendor in vendors for device in vendor.probe())
    identity = _identity(tree, devices, software or {}, environment)
    time.sleep(max(0.0, window_seconds - (time.monotonic() - before.at)))
    after = conditions.observe(tree)
    return System(
        identity=identity,
        conditions=Conditions(
            utc=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            facts={
                **conditions.condition_facts(tree, environment),
                **conditions.neighbour_facts(tree, before, after),
                **_device_conditions(vendors, devices),
            },
            foreign_processes=conditions.foreign_processes(before, after),
        ),
    )


def _identity(
    tree: Tree, devices: tuple[Device, ...], software: Facts, environment: Mapping[str, str]
) -> Identity:
    num_modules, modules = components.memory_modules(tree)
    num_disks, disks = components.disks(tree)
    num_interfaces, interfaces = components.interfaces(tree)
    counts = {
        "memory_modules": num_modules,
        "disks": num_disks,
        "network_interfaces": num_interfaces,
    }
    return Identity(
        devices=devices,
        host={**host.host_facts(tree, environment), **counts},
        memory_modules=modules,
        disks=disks,
        interfaces=interfaces,
        software={**_own_software(), **software},
    )


def _own_software() -> Facts:
    library, number = platform.libc_ver()
    return {
        "bench": Fact(value=VERSION, source="appliance"),
        "python": Fact(value=platform.python_version(), source="interpreter"),
        "c_library": Fact(
            value=f"{library} {number}".strip() or None,
            source="interpreter",
            hint="" if library else "the interpreter is not linked to glibc",
        ),
    }


def _device_conditions(vendors: Sequence[Vendor], devices: Sequence[Device]) -> Facts:
    """Telemetry and error counts of every device before anything runs on it."""
    facts: dict[str, Fact] = {}
    for vendor in vendors:
        for device in (one for one in devices if one.vendor == vendor.name):
            for key, value in {**vendor.read(device), **vendor.counters(device)}.items():
                name, unit = _split_unit(key)
                hint = (
                    ""
                    if value is not None
                    else f"neither sensor nor driver of {device.id} gives it"
                )
                facts[f"{device.id}_{name}"] = Fact(
                    value=value, unit=unit, source=f"vendor {vendor.name}", hint=hint
                )
    return facts


def _split_unit(key: str) -> tuple[str, str]:
    """The unit that a telemetry key ends in."""
    for unit in ("hertz", "celsius", "bytes", "watts", "volts", "seconds", "fraction"):
        if key.endswith(f"_{unit}"):
            return key.removesuffix(f"_{unit}"), unit
    return key, ""


# ------------------------------------------------------------------ is it the same machine


def identity_digest(identity: Identity) -> str:
    """sha256 of the identity's canonical JSON, in hexadecimal."""
    return sha256(to_json(identity))
