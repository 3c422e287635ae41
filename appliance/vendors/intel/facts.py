"""Every fact of an Intel card, with where it was read and, if it was not, why.

The kernel's files come first: they cost nothing and need no tool. xpu-smi adds what only the
management firmware knows: the serial number, firmware versions, error correction, thresholds and
the links between cards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from appliance.linux import pci
from appliance.linux.fact_reader import fact
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Fact, Facts
from appliance.records.vocabulary import CONNECTION
from appliance.vendors.intel.cards import Card
from appliance.vendors.intel.kernel import Kernel
from appliance.vendors.intel.tool import MEBI, Answers, listed_ports, ports, rate, text, whole

COMPOSITE = "COMPOSITE"
"""Level Zero's word for a card of several tiles that is shown as one device; see xpu.py."""
NOT_REPORTED = "no interface of this vendor reports it"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")
LIBRARY = r"libze_intel_gpu\.so\.(\d+\.\d+\.\d+)"
FIRMWARE = ("gfx_data", "amc", "gfx_pscbin")
MADE_UP_UUID = "8086"
"""End of a UUID that the driver made of the slot and the device id; a unit's own has none."""
STATES = {"enabled": "on", "disabled": "off"}


def facts(card: Card, others: Sequence[tuple[int, Card]], tree: Tree, answers: Answers) -> Facts:
    """Facts by the names of vocabulary.FACTS. `others` are the further cards with their number."""
    kernel = Kernel(tree, card)
    name = card.function.address
    return {
        **_identification(card, answers, name),
        **_software(kernel, tree, answers, name),
        **_memory(card, kernel, answers, name),
        **_limits(kernel, answers, name),
        **_place(card),
        **_division(card, tree),
        **_links(card, answers, name),
        **{f"{CONNECTION}{number}": _way(card, other, answers) for number, other in others},
    }


def memory_bytes(card: Card, answers: Answers) -> int:
    """Bytes of the card's memory: by the kernel, else by the tool."""
    own = or_none(card.memory)
    if own:
        return own
    return whole(answers.properties(card.function.address), "memory_physical_size_byte")


def uuid(answers: Answers, name: str) -> str:
    """The identifier of this very unit."""
    identifier = text(answers.properties(name), "uuid")
    if identifier.replace("-", "").endswith(MADE_UP_UUID):
        raise Unreadable(
            "the driver makes this identifier of the slot and the model, so it names no unit"
        )
    return identifier


def serial(answers: Answers, name: str) -> str:
    return text(answers.properties(name), "serial_number")


def _identification(card: Card, answers: Answers, name: str) -> Facts:
    properties = "xpu-smi discovery -d"
    discovered = partial(fact, source=properties)
    return {
        "uuid": discovered(lambda: uuid(answers, name)),
        "product": discovered(lambda: text(answers.properties(name), "device_name")),
        "board_part_number": Fact(value=None, source=properties, hint=NOT_REPORTED),
        "architecture": fact(lambda: _known(card.design.name), source="PCI device id"),
        "compute_units": discovered(lambda: _units(answers, name)),
        "pci_address": fact(lambda: name, source="/sys/bus/pci/devices"),
        "pci_device": fact(card.function.ids, source=card.function.folder),
        "pci_subsystem": fact(card.function.subsystem, source=card.function.folder),
    }


def _known(word: str) -> str:
    if not word:
        raise Unreadable("this PCI device id is newer than this program: update it")
    return word


def _units(answers: Answers, name: str) -> int:
    """Xe cores: the tool's slices, and sub-slices of each."""
    properties = answers.properties(name)
    return whole(properties, "number_of_slices") * whole(
        properties, "number_of_sub_slices_per_slice"
    )


def _software(kernel: Kernel, tree: Tree, answers: Answers, name: str) -> Facts:
    def loaded() -> str:
        parts = [_firmware(answers, name, part) for part in FIRMWARE]
        known = [part for part in parts if part]
        if not known:
            raise Unreadable("xpu-smi reports no version: run it as root")
        return ", ".join(known)

    discovered = partial(fact, source="xpu-smi discovery -d")
    return {
        "vbios": discovered(lambda: text(answers.properties(name), "gfx_firmware_version")),
        "firmware": discovered(loaded),
        "driver": fact(kernel.version, source="/sys/module", absent="no Intel driver is loaded"),
        "driver_api": fact(lambda: _level_zero(tree), source="libze_intel_gpu.so"),
    }


def _firmware(answers: Answers, name: str, part: str) -> str:
    version = or_none(lambda: text(answers.properties(name), f"{part}_firmware_version"))
    return f"{part.upper()} {version}" if version else ""


def _level_zero(tree: Tree) -> str:
    """Version of the driver of Level Zero, which its file name ends in (1.6.33578)."""
    for folder in LIBRARIES:
        for name in or_none(partial(tree.names, folder, LIBRARY)) or ():
            matched = re.fullmatch(LIBRARY, name)
            if matched is not None:
                return matched[1]
    raise Unreadable("the driver of Level Zero (libze_intel_gpu.so) is not installed here")


def _memory(card: Card, kernel: Kernel, answers: Answers, name: str) -> Facts:
    def state(when: str) -> str:
        reported = text(answers.settings(name), f"memory_ecc_{when}_state")
        return STATES.get(reported, reported)

    source = card.function.folder if or_none(card.memory) else "xpu-smi discovery -d"
    return {
        "memory": fact(lambda: memory_bytes(card, answers), source=source, unit="bytes"),
        "memory_type": fact(lambda: _known(card.design.memory), source="PCI device id"),
        "ecc_mode": fact(lambda: state("current"), source="xpu-smi config -d"),
        "ecc_mode_pending": fact(lambda: state("pending"), source="xpu-smi config -d"),
        "highest_memory_clock": fact(
            kernel.highest_memory_clock, source=card.function.folder, unit="hertz"
        ),
    }


def _limits(kernel: Kernel, answers: Answers, name: str) -> Facts:
    def bound(place: int) -> int:
        """The tool writes the range of the limit as "1 to 600"."""
        words = answers.power_range(name).split(" to ")
        if len(words) != len(("lowest", "highest")) or not all(map(str.isdecimal, words)):
            raise Unreadable("xpu-smi does not report the range of the power limit")
        return int(words[place])

    watts = partial(fact, unit="watts", source="hwmon power1_max")
    configured = partial(fact, unit="watts", source="xpu-smi config -d")
    hertz = partial(fact, unit="hertz", source=kernel.card.function.folder)
    return {
        "power_limit": watts(kernel.power_limit),
        "power_limit_default": fact(
            kernel.rated_power, unit="watts", source="hwmon power1_rated_max"
        ),
        "power_limit_lowest": configured(lambda: bound(0)),
        "power_limit_highest": configured(lambda: bound(1)),
        "highest_graphics_clock": hertz(kernel.highest_clock),
        "graphics_clock_limit": hertz(kernel.clock_limit),
        "slowdown_temperature": fact(
            lambda: whole(answers.health(name, "core_temperature"), "throttle_threshold"),
            unit="celsius",
            source="xpu-smi health -d",
        ),
    }


def _place(card: Card) -> Facts:
    """The link is that of the card's own port to the slot; see Card.port."""
    link = partial(fact, source="upstream port of the card")

    def lower(what: str) -> int:
        """What card and slot can do together."""
        both = card.port(), card.slot()
        return min(int(getattr(end, what)()) for end in both)

    return {
        "pcie_generation_highest": link(lambda: card.port().highest_generation()),
        "pcie_width_highest": link(lambda: card.port().highest_width()),
        "pcie_generation_slot": link(lambda: lower("highest_generation")),
        "pcie_width_slot": link(lambda: lower("highest_width")),
        "numa_node": fact(card.function.numa_node, source=card.function.folder),
        "cpu_affinity": fact(card.function.processors, source=card.function.folder),
    }


def _division(card: Card, tree: Tree) -> Facts:
    """Tiles that are shown as one device, and virtual functions that the card is divided into."""
    virtual = or_none(lambda: tree.number(f"{card.function.folder}/sriov_numvfs")) or 0
    tiles = len(or_none(card.tiles) or ()) or _parts(card, tree)
    mode = COMPOSITE if tiles > 1 else "none"
    parts = f"{tiles} tiles" if tiles > 1 else "none"
    if virtual:
        mode, parts = "SR-IOV", f"{virtual} virtual functions"
    return {
        "partition_mode": Fact(value=mode, source=card.function.folder),
        "partitions": Fact(value=parts, source=card.function.folder),
    }


def _parts(card: Card, tree: Tree) -> int:
    """How many tiles i915 shows: one gt folder for each."""
    folders = or_none(card.drm) or ()
    return sum(len(or_none(partial(tree.names, f"{one}/gt", r"gt\d+")) or ()) for one in folders)


def _links(card: Card, answers: Answers, name: str) -> Facts:
    """Ports of Xe Link. In use are those that reach another card; alone, those that are up."""
    if not card.design.has_links:
        return {"num_links": Fact(value=0, source="PCI device id")}

    def working() -> int:
        used = or_none(lambda: answers.ports_in_use(name))
        return used or listed_ports(answers.settings(name), "port_up")

    discovered = partial(fact, source="xpu-smi discovery -d")
    return {
        "link_kind": Fact(value="Xe Link", source="PCI device id"),
        "num_links": discovered(lambda: whole(answers.properties(name), "number_of_fabric_ports")),
        "num_links_up": fact(working, source="xpu-smi topology -m"),
        # The tool divides bytes per second by 2^20 before it prints them.
        "link_bytes_per_second": discovered(
            lambda: round(rate(answers.properties(name), "max_fabric_port_speed") * MEBI),
            unit="bytes per second",
        ),
    }


def _way(card: Card, other: Card, answers: Answers) -> Fact:
    """How two cards are connected: over Xe Link if the tool sees it, else over the host."""
    names = card.function.address, other.function.address
    rows = or_none(lambda: answers.connections(*names)) or []
    direct = sum(map(ports, rows))
    if direct:
        return Fact(value=f"Xe Link x{direct}", source="xpu-smi topology -m")
    kinds = {str(row.get("link_type")) for row in rows}
    if "XL*" in kinds:
        return Fact(value="Xe Link over another tile", source="xpu-smi topology -m")
    return fact(lambda: pci.way(card.function, other.function), source="/sys/devices")
