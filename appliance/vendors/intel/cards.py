"""Which Intel graphics cards are in the machine, what they are called, and where their link ends.

Names are those that Intel's user-space driver gives to a PCI device id, and so what sycl-ls, torch
and xpu-smi print (intel/compute-runtime, shared/source/dll/devices/devices_base.inl, 2026-08). An
id without a name there is printed as "Intel(R) Graphics [0xe210]" (intel/xpumanager,
doc/smi_user_guide.md), as by a driver from before a card had its name. Which ids are which design:
include/drm/intel/pciids.h of Linux.

Graphics inside a processor do not count. They are distinguished by their id, or, for an id that is
not listed here yet, by memory of their own, which the drivers show for cards alone. The only
earlier card, DG1, has no matrix engines and torch does not drive it, so it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from appliance.linux.pci import Function, functions
from appliance.linux.sysfs import Tree, Unreadable, or_none

PCI_VENDOR = "0x8086"
DISPLAY = "0x03"
BRIDGE = "0x0604"
"""Beginnings of the class of a PCI function (PCI Code and ID Assignment Specification)."""
DRIVERS = ("i915", "xe")
NO_PORT = (
    "the port of the card towards its slot cannot be seen here, and what lies behind it states a "
    "fixed 2.5 GT/s x1: read it on the host"
)
NO_MEMORY = "neither the kernel driver nor xpu-smi reports it: load Intel's driver package"
LOST = 2  # bytes of the configuration space that are all ones once nothing answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One generation: its name, its memory, and the formats that its units compute in.

    Formats: Intel, "Data Center GPU Max Series Technical Overview" (matrix engines with TF32,
    vector engines with float64) and "Xe HPG" (bfloat16, float16 and int8 matrix engines, no
    float64); float64 of Xe2 is Intel's word in https://github.com/pytorch/pytorch/issues/147731.
    None has float8 units. No document says whether Xe2 takes TF32, so it is not claimed.
    """

    name: str
    memory: str
    formats: frozenset[str]
    has_links: bool = False


_COMMON = frozenset({"float32", "float16", "bfloat16", "int8"})
XE_HPC = Design(
    name="Xe-HPC", memory="HBM2e", formats=_COMMON | {"float64", "tf32"}, has_links=True
)
XE_HPG = Design(name="Xe-HPG", memory="GDDR6", formats=_COMMON)
XE2_HPG = Design(name="Xe2-HPG", memory="GDDR6", formats=_COMMON | {"float64"})
UNLISTED = Design(name="", memory="", formats=frozenset({"float32"}))

_MAX = {
    0x0B69: "1450",
    0x0B6E: "1100C",
    0x0BD4: "1550VG",
    0x0BD5: "1550",
    0x0BD6: "1550",
    0x0BD7: "1350",
    0x0BD8: "1350",
    0x0BD9: "1100",
    0x0BDA: "1100",
    0x0BDB: "1100",
    0x0BE0: "",
    0x0BE1: "",
    0x0BE5: "",
}
_FLEX = {0x56C0: "170", 0x56C1: "140", 0x56C2: "170V"}
_ALCHEMIST = {
    0x5690: "A770M",
    0x5691: "A730M",
    0x5692: "A550M",
    0x5693: "A370M",
    0x5694: "A350M",
    0x5695: "",
    0x5696: "A570M",
    0x5697: "A530M",
    0x56A0: "A770",
    0x56A1: "A750",
    0x56A2: "A580",
    0x56A3: "",
    0x56A4: "",
    0x56A5: "A380",
    0x56A6: "A310 LP",
    0x56AF: "A760A",
    0x56B0: "Pro A30M",
    0x56B1: "Pro A40/A50",
    0x56B2: "Pro A60M",
    0x56B3: "Pro A60",
    0x56BA: "A380E",
    0x56BB: "A310E",
    0x56BC: "A370E",
    0x56BD: "A350E",
    0x56BE: "A750E",
    0x56BF: "A580E",
}
_BATTLEMAGE = {
    0xE202: "",
    0xE209: "B580",
    0xE20B: "B580",
    0xE20C: "B570",
    0xE20D: "",
    0xE210: "",
    0xE211: "Pro B60",
    0xE212: "Pro B50",
    0xE215: "",
    0xE216: "",
    0xE220: "",
    0xE221: "",
    0xE222: "Pro B65",
    0xE223: "Pro B70",
}


def _table() -> Iterable[tuple[int, tuple[str, Design]]]:
    families = (
        (_MAX, "Intel(R) Data Center GPU Max {}", XE_HPC),
        (_FLEX, "Intel(R) Data Center GPU Flex {}", XE_HPG),
        (_ALCHEMIST, "Intel(R) Arc(TM) {} Graphics", XE_HPG),
        (_BATTLEMAGE, "Intel(R) Arc(TM) {} Graphics", XE2_HPG),
    )
    for numbers, title, design in families:
        for number, name in numbers.items():
            yield number, (title.format(name) if name else unnamed(number), design)


def unnamed(number: int) -> str:
    """What the user-space driver prints for an id that it has no name for."""
    return f"Intel(R) Graphics [0x{number:04x}]"


MODELS: Mapping[int, tuple[str, Design]] = dict(_table())
"""Cards by PCI device id: the name and the design."""


@dataclass(frozen=True, slots=True)
class Card:
    """One Intel display function: a card, or graphics inside a processor."""

    function: Function
    number: int

    @property
    def model(self) -> str:
        return MODELS[self.number][0] if self.number in MODELS else unnamed(self.number)

    @property
    def design(self) -> Design:
        return MODELS[self.number][1] if self.number in MODELS else UNLISTED

    @property
    def is_discrete(self) -> bool:
        return self.number in MODELS or (or_none(self.memory) or 0) > 0

    @property
    def is_lost(self) -> bool:
        """It fell off the bus: removed, or its configuration space reads as ones."""
        if not self.function.is_there:
            return True
        space = or_none(lambda: self._tree.data(f"{self.function.folder}/config", LOST))
        return space == b"\xff" * LOST

    def driver(self) -> str:
        """i915 or xe. Raises Unreadable where another driver has it, or none."""
        name = self.function.driver()
        if name not in DRIVERS:
            raise Unreadable(f"{self.function.address} belongs to the driver {name}")
        return name

    def node(self) -> str:
        """The device node that computing opens (/dev/dri/renderD128). Raises Unreadable."""
        names = self._tree.names(f"{self.function.folder}/drm", r"renderD\d+")
        if not names:
            raise Unreadable(f"the driver made no render node for {self.function.address}")
        return f"/dev/dri/{names[0]}"

    def tiles(self) -> tuple[str, ...]:
        """Folders of the tiles that xe shows; none with i915. Raises Unreadable."""
        folder = self.function.folder
        return tuple(f"{folder}/{name}" for name in self._tree.names(folder, r"tile\d+"))

    def memory(self) -> int:
        """Bytes of its own memory. Raises Unreadable: i915 of Linux itself does not report it.

        xe: tile*/physical_vram_size_bytes (igt-gpu-tools, tests/intel/xe_sysfs_tile.c); i915 of
        Intel's package (intel-gpu/intel-gpu-i915-backports): lmem_total_bytes of the DRM card.
        """
        sizes = [f"{tile}/physical_vram_size_bytes" for tile in self.tiles()]
        sizes = sizes or [f"{folder}/lmem_total_bytes" for folder in self.drm()]
        if not sizes:
            raise Unreadable(NO_MEMORY)
        return sum(self._tree.number(path) for path in sizes)

    def drm(self) -> tuple[str, ...]:
        """Folders of the DRM cards (drm/card0). Raises Unreadable."""
        folder = f"{self.function.folder}/drm"
        return tuple(f"{folder}/{name}" for name in self._tree.names(folder, r"card\d+"))

    def port(self) -> Function:
        """The upstream port of the switch on the card: the end of the link to the slot.

        Every such card carries a PCIe switch with an upstream and a downstream port, and the
        graphics behind it state 2.5 GT/s x1 whatever the slot gives (measured and worked around
        in https://github.com/Syllo/nvtop/pull/344; the same listing of a B580 is in
        https://github.com/geerlingguy/raspberry-pi-pcie-devices/issues/695). Intel's own library
        goes up to the same port, which it calls the card's bus (intel/compute-runtime,
        sysman_os_pci_imp.cpp). Raises Unreadable where two Intel bridges do not lie above, as in
        a virtual machine.
        """
        above = self.function.path()[:-1][-2:]
        ports = [Function(self._tree, address) for address in above]
        if len(ports) < len(("upstream", "downstream")) or not all(map(_is_own_bridge, ports)):
            raise Unreadable(NO_PORT)
        return ports[0]

    def slot(self) -> Function:
        """What the card is plugged into: a root port, or a switch of the board."""
        above = self.port().path()[:-1]
        if not above:
            raise Unreadable("the kernel does not show what the card is plugged into")
        return Function(self._tree, above[-1])

    @property
    def _tree(self) -> Tree:
        return self.function.tree


def _is_own_bridge(function: Function) -> bool:
    kind = or_none(function.kind) or ""
    return kind.startswith(BRIDGE) and or_none(function.vendor) == PCI_VENDOR


def graphics(tree: Tree) -> tuple[Card, ...]:
    """All Intel graphics by PCI address, those inside processors too.

    Virtual functions of a card that this host divided are part of it and not listed.
    """
    cards = (_card(one) for one in sorted(functions(tree, PCI_VENDOR, DISPLAY), key=_bus_order))
    return tuple(card for card in cards if card is not None)


def _card(function: Function) -> Card | None:
    tree = function.tree
    try:
        number = int(tree.line(f"{function.folder}/device"), 16)
    except (Unreadable, ValueError):
        return None
    return None if tree.exists(f"{function.folder}/physfn") else Card(function, number)


def _bus_order(function: Function) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in function.address.replace(".", ":").split(":"))
