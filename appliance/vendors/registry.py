"""The vendors that can be tested, in the order in which they are preferred.

A vendor's module is imported when the vendor is made, by name: what a node lacks is never loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from appliance.records.system import Device, DeviceLibraries
from appliance.vendors.base import Vendor

MODULES: Mapping[str, str] = {
    "cuda": "appliance.vendors.nvidia.cuda",
    "rocm": "appliance.vendors.amd.rocm",
    "xpu": "appliance.vendors.intel.xpu",
    "cpu": "appliance.vendors.cpu",
}
"""The processors, always there, come last."""


def make_vendor(name: str) -> Vendor:
    """The vendor of that name, or of a dotted module's last name: vendors/cpu.py has Cpu."""
    module = importlib.import_module(MODULES.get(name, name))
    vendor: Vendor = getattr(module, name.rpartition(".")[2].capitalize())()
    return vendor


def libraries_of(name: str) -> DeviceLibraries:
    """What drives that vendor's devices, without looking for any; of a vendor of `MODULES`."""
    module = importlib.import_module(MODULES[name])
    kind: type[Vendor] = getattr(module, name.capitalize())
    return kind.libraries


def most_absent(device: Device) -> frozenset[str] | None:
    """All counters and readings that such a device may be said not to have, by its facts alone.

    None where that does not follow from them, or the vendor is none of `MODULES`.
    """
    if device.vendor not in MODULES:
        return None
    rule = getattr(importlib.import_module(MODULES[device.vendor]), "most_absent", None)
    return None if rule is None else frozenset(rule(device))


VENDORS: Mapping[str, Callable[[], Vendor]] = {name: partial(make_vendor, name) for name in MODULES}


def unknown_vendor(devices: Iterable[Device]) -> str:
    """A sentence on the first device of a vendor that is none of MODULES; empty if there is none.

    Whoever writes a vendor can make a program of his own from this package, with devices that say
    what he likes. Nothing can keep him from running it; nobody signs or verifies what it left.
    """
    for device in devices:
        if device.vendor not in MODULES:
            return (
                f'{device.id} is of the vendor "{device.vendor}", which bench does not have '
                f"(it has {', '.join(MODULES)}): such a run proves nothing of a device"
            )
    return ""
