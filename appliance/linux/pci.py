"""What the kernel reports of one PCI function: its links, its place, and its error counts.

Of the files in /sys/bus/pci/devices/ADDRESS (Linux, Documentation/ABI/testing/sysfs-bus-pci and
sysfs-bus-pci-devices-aer_stats). An upstream bridge limits a device, so the link of the device
itself is read, and what its slot allows is the lower of the two ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from appliance.linux.sysfs import Tree, Unreadable, number, or_none

DEVICES = "/sys/bus/pci/devices"
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""PCIe generations by the rate of a lane in GT/s (PCI Express Base Specification 6.0)."""
NO_AER = "the kernel keeps no error counts of this function: it needs AER from firmware and kernel"
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def address(text: str) -> str:
    """A PCI address as the kernel writes it (0000:1b:00.0). Raises Unreadable.

    Vendors' tools write eight digits of domain, or none, and capitals.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise Unreadable(f'"{text[:20]}" is no PCI address')
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


@dataclass(frozen=True, slots=True)
class Function:
    """One PCI function of a machine, by its address in the kernel's form.

    Every method raises Unreadable where the kernel does not report it.
    """

    tree: Tree
    address: str

    @property
    def folder(self) -> str:
        return f"{DEVICES}/{self.address}"

    @property
    def is_there(self) -> bool:
        """False for one that fell off the bus; also where /sys is not mounted."""
        return self.tree.exists(self.folder)

    def vendor(self) -> str:
        """PCI vendor: 0x10de."""
        return self.tree.line(f"{self.folder}/vendor")

    def kind(self) -> str:
        """Class: 0x030200."""
        return self.tree.line(f"{self.folder}/class")

    def ids(self) -> str:
        """Vendor and device, hexadecimal: 10de:2335."""
        return self._pair("vendor", "device")

    def subsystem(self) -> str:
        """Vendor and device of the subsystem, hexadecimal."""
        return self._pair("subsystem_vendor", "subsystem_device")

    def generation(self) -> int:
        """PCIe generation of the link now."""
        return self._generation("current_link_speed")

    def highest_generation(self) -> int:
        """PCIe generation that the part can do."""
        return self._generation("max_link_speed")

    def width(self) -> int:
        """Lanes of the link now."""
        return self._width("current_link_width")

    def highest_width(self) -> int:
        """Lanes that the part has."""
        return self._width("max_link_width")

    def numa_node(self) -> int:
        """Memory node of the host; Unreadable where the firmware does not say (-1)."""
        node = self.tree.number(f"{self.folder}/numa_node")
        if node < 0:
            raise Unreadable("the firmware does not say which memory node it is attached to")
        return node

    def processors(self) -> str:
        """Processors near it, as the kernel's list of ranges."""
        return self.tree.line(f"{self.folder}/local_cpulist")

    def driver(self) -> str:
        """Name of the kernel driver that has it."""
        return self.tree.target(f"{self.folder}/driver").rpartition("/")[2]

    def errors(self, kind: str) -> int:
        """Errors since boot of a kind: correctable, nonfatal or fatal."""
        path = f"{self.folder}/aer_dev_{kind}"
        if not self.tree.exists(path):
            raise Unreadable(NO_AER)
        for line in self.tree.text(path).splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("TOTAL_ERR_"):
                return number(value, path)
        raise Unreadable(f"{path} is damaged: it has no total")

    def path(self) -> tuple[str, ...]:
        """Addresses of the functions above it, from the root port down to itself."""
        target = self.tree.target(self.folder)
        return tuple(part for part in target.split("/") if _ADDRESS.fullmatch(part))

    def root(self) -> str:
        """Name of the host bridge above it (pci0000:00)."""
        parts = [part for part in self.tree.target(self.folder).split("/") if "pci" in part]
        if not parts:
            raise Unreadable("the kernel does not show which host bridge it is under")
        return parts[0]

    def _pair(self, first: str, second: str) -> str:
        texts = (self.tree.line(f"{self.folder}/{name}") for name in (first, second))
        return ":".join(text.removeprefix("0x") for text in texts)

    def _generation(self, name: str) -> int:
        text = self.tree.line(f"{self.folder}/{name}")
        rate = text.partition(" ")[0]
        if rate not in GENERATIONS:
            raise Unreadable(f'{name} of {self.address} is "{text[:20]}", which is no PCIe rate')
        return GENERATIONS[rate]

    def _width(self, name: str) -> int:
        lanes = self.tree.number(f"{self.folder}/{name}")
        if lanes <= 0 or lanes > 32:  # noqa: PLR2004 - PCIe has at most 32; 255 means unknown
            raise Unreadable(f"{name} of {self.address} is {lanes}, which is no number of lanes")
        return lanes


def functions(tree: Tree, vendor: str, *kinds: str) -> Iterator[Function]:
    """The functions of a vendor whose class begins with one of these, by address."""
    for name in or_none(lambda: tree.names(DEVICES, _ADDRESS.pattern)) or ():
        one = Function(tree, name)
        if or_none(one.vendor) == vendor and (or_none(one.kind) or "").startswith(kinds):
            yield one


def errors_of(functions: Iterable[Function], kind: str) -> int:
    """Errors since boot of a kind, of all functions that count them. Raises Unreadable if none."""
    counts = [or_none(partial(one.errors, kind)) for one in functions]
    counted = [value for value in counts if value is not None]
    if not counted:
        raise Unreadable(NO_AER)
    return sum(counted)


def way(one: Function, other: Function) -> str:
    """How a packet goes over the host from one device to the other. Raises Unreadable.

    A root port has one link: what two devices have in common below it is a switch.
    """
    if set(one.path()) & set(other.path()):
        return "PCIe switch"
    if one.root() == other.root():
        return "host bridge"
    nodes = or_none(one.numa_node), or_none(other.numa_node)
    if None in nodes:
        raise Unreadable("the firmware does not say which memory nodes the cards belong to")
    return "host bridge" if nodes[0] == nodes[1] else "between sockets"
