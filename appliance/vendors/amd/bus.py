"""AMD's accelerators on the PCI bus, as the kernel shows them: whether they are there, and how.

MI300X and others carry a PCIe switch of their own: above the accelerator's function lie its
downstream and its upstream port, and the link between those never changes. The link to the slot
is that of the upstream port. The kernel's driver looks for it in the same way (Linux,
drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, amdgpu_device_gpu_bandwidth). A device's errors are
those of all of its functions. A partition is no function: it has that of its device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from appliance.linux import pci
from appliance.linux.pci import DEVICES, Function, errors_of, functions
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.vendors.amd.values import Queries, Query, Readers

Value = TypeVar("Value")
ATI = "0x1002"
"""AMD's number as a vendor of graphics; its host bridges have another one."""
PROCESSING, DISPLAY = "0x12", "0x03"
"""PCI classes (PCI Code and ID Assignment Specification): accelerators, display controllers."""
DRIVER, BORROWED = "amdgpu", "vfio-pci"
"""The kernel's driver, and the one that has what is passed on to a virtual machine."""
NO_SLOT = "the kernel does not show the port that it is attached to"


def accelerators(tree: Tree) -> tuple[str, ...]:
    """Addresses of AMD's accelerators: all processing ones, and displays that the driver has."""
    candidates = functions(tree, ATI, PROCESSING, DISPLAY)
    return tuple(one.address for one in candidates if _is_accelerator(one))


def _is_accelerator(function: Function) -> bool:
    driver = or_none(function.driver)
    if (or_none(function.kind) or "").startswith(PROCESSING):
        return driver != BORROWED
    return driver == DRIVER


@dataclass(frozen=True, slots=True)
class Place:
    """Where one device, or a partition of it, sits on the bus."""

    tree: Tree
    address: str

    @property
    def function(self) -> Function:
        """The device's function; a partition's number stands where that of a function would."""
        own = Function(self.tree, self.address)
        whole = Function(self.tree, f"{self.address.rpartition('.')[0]}.0")
        return own if own.is_there or not whole.is_there else whole

    @property
    def chain(self) -> tuple[Function, ...]:
        """Functions of the device from its upstream port down, and above them its partner."""
        path = or_none(self.function.path) or (self.function.address,)
        return tuple(Function(self.tree, address) for address in path)

    @property
    def inner(self) -> tuple[Function, ...]:
        """The functions that the device is made of: three with a switch of its own, else one."""
        chain = self.chain
        has_switch = len(chain) > 2 and or_none(chain[-2].vendor) == ATI  # noqa: PLR2004 - two ports
        return chain[-3:] if has_switch else chain[-1:]

    @property
    def end(self) -> Function:
        """The function that has the link to the slot."""
        return self.inner[0]

    @property
    def partner(self) -> Function:
        """The port at the other end of that link. Raises Unreadable if it cannot be seen."""
        above = self.chain[: -len(self.inner)]
        if not above:
            raise Unreadable(NO_SLOT)
        return above[-1]

    @property
    def is_gone(self) -> bool:
        """The kernel has taken it from the bus, or it answers with ones alone."""
        if not self.tree.exists(DEVICES):
            return False
        if not self.function.is_there:
            return True
        head = or_none(lambda: self.tree.data(f"{self.function.folder}/config", 4))
        return head == b"\xff\xff\xff\xff"

    def queries(self) -> Queries:
        """Facts of the bus by name."""
        own, end = self.function, self.end
        where = f"{DEVICES}/*"
        return {
            "pci_address": Query(lambda: self._shown(own), where),
            "pci_device": Query(own.ids, f"{where}/vendor, device"),
            "pci_subsystem": Query(own.subsystem, f"{where}/subsystem_vendor, subsystem_device"),
            "pcie_generation_highest": Query(end.highest_generation, f"{where}/max_link_speed"),
            "pcie_width_highest": Query(end.highest_width, f"{where}/max_link_width"),
            "pcie_generation_slot": Query(
                lambda: min(end.highest_generation(), self.partner.highest_generation()),
                f"{where}/max_link_speed of both ends",
            ),
            "pcie_width_slot": Query(
                lambda: min(end.highest_width(), self.partner.highest_width()),
                f"{where}/max_link_width of both ends",
            ),
            "numa_node": Query(own.numa_node, f"{where}/numa_node"),
            "cpu_affinity": Query(own.processors, f"{where}/local_cpulist"),
        }

    def readings(self) -> Readers:
        return {
            "pcie_generation": lambda: float(self.end.generation()),
            "pcie_width": lambda: float(self.end.width()),
        }

    def counters(self) -> Readers:
        """Errors of all functions of the device, and packets that its driver saw sent again."""
        replays = f"{self.function.folder}/pcie_replay_count"
        return {
            "pcie_replays": lambda: float(self.tree.number(replays)),
            "pcie_correctable": lambda: float(errors_of(self.inner, "correctable")),
            "pcie_non_fatal": lambda: float(errors_of(self.inner, "nonfatal")),
            "pcie_fatal": lambda: float(errors_of(self.inner, "fatal")),
        }

    def way(self, other: Place) -> str:
        """How a packet of the bus goes from one device to the other. Raises Unreadable."""
        return pci.way(self.function, other.function)

    def _shown(self, own: Function) -> str:
        if not own.is_there:
            raise Unreadable("the kernel does not show it on the bus: mount /sys read-only")
        return own.address
