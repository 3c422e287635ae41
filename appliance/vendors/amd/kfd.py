"""Compute processes of AMD's devices, as the kernel's compute driver (amdkfd) lists them.

Each process that has opened /dev/kfd has a folder /sys/class/kfd/kfd/proc/PID, with what it holds
of each device's memory in vram_GPUID, bytes (Linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c,
kfd_procfs_add_sysfs_files). Which device a GPUID is stands in the topology, as its number and its
PCI location (kfd_topology.c, node_show: gpu_id, and in properties domain and location_id, bus in
the upper byte, device and function, or the number of a partition, in the lower). The folder is the
host's whatever container looks, with the host's process numbers: they are counted, never compared
with our own.
"""

from __future__ import annotations

from functools import partial

from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.vendors.base import DeviceUsers

PROCESSES = "/sys/class/kfd/kfd/proc"
NODES = "/sys/class/kfd/kfd/topology/nodes"
NO_DRIVER = "the kernel shows no /sys/class/kfd: mount /sys into the container"
NO_NODE = "the kernel's topology of compute devices does not show this one to this container"


def users(tree: Tree, address: str) -> DeviceUsers:
    """Who holds memory of the device, or partition, at a PCI address. Raises Unreadable."""
    if not tree.exists(PROCESSES):
        raise Unreadable(NO_DRIVER)
    number = _number(tree, address)
    held: list[int] = []
    for pid in tree.names(PROCESSES, r"[0-9]+"):
        bytes_held = or_none(partial(tree.number, f"{PROCESSES}/{pid}/vram_{number}"))
        # One that ended meanwhile has none; one that only opened the driver holds nothing.
        held += [bytes_held] if bytes_held else []
    return DeviceUsers(count=len(held), memory_bytes=sum(held))


def _number(tree: Tree, address: str) -> int:
    """The driver's number of a device. Raises Unreadable."""
    for name in tree.names(NODES, r"[0-9]+"):
        number = or_none(partial(tree.number, f"{NODES}/{name}/gpu_id"))
        text = or_none(partial(tree.text, f"{NODES}/{name}/properties"))
        if number and text is not None and _address(text) == address:  # processors have number 0
            return number
    raise Unreadable(NO_NODE)


def _address(properties: str) -> str:
    """The PCI address in the properties of a node."""
    words = properties.split()
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    domain, location = (int(pairs.get(name, "0")) for name in ("domain", "location_id"))
    return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
