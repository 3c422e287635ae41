"""The parts of the node that can be bought and swapped: memory modules, disks, network cards.

They are identity, so they are listed by what they are, in an order that the next boot repeats:
kernel names (sda, eth0) and link states are not here. Network cards are located on the bus,
because a container sees only the interfaces of its own network namespace. Each list comes with
a fact that counts it, or says why there is none: an empty list alone would read as "no disks".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from appliance.linux import smbios
from appliance.linux.fact_reader import fact, firmware, line
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.system import Fact, Facts

TABLE = "/sys/firmware/dmi/tables/DMI"
NO_TABLE = (
    "run as root with /sys/firmware/dmi/tables visible "
    "(in a container: --security-opt systempaths=unconfined)"
)
PCI = "/sys/bus/pci/devices"
BLOCK = "/sys/block"
NET = "/sys/class/net"
NO_SYSTEM = "mount /sys read-only into the container"
NO_NETWORK = "its interface is in another network namespace: start with --network host"
NOT_REPORTED = "the driver does not report it"
NOT_WRITTEN = "the firmware does not report it"
NOT_ON_BUS = "it is not on the PCI bus"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NETWORK_CLASS = "0x02"
_SECTOR = 512
"""Bytes: the unit of /sys/block/*/size, whatever the disk's own sectors are."""
_PERMANENT = "0"
"""addr_assign_type of an address that is the hardware's own."""

Counted = tuple[Fact, tuple[Facts, ...]]
"""How many parts there are, or why that is not known; and each part."""


def _counted(parts: Sequence[Facts], source: str) -> Counted:
    ordered = sorted(parts, key=lambda part: [str(one.value) for one in part.values()])
    return Fact(value=len(ordered), source=source), tuple(ordered)


def _none(source: str, hint: str) -> Counted:
    return Fact(value=None, source=source, hint=hint), ()


# ------------------------------------------------------------------ memory modules


def memory_modules(tree: Tree) -> Counted:
    """The modules in the slots that are filled, in the firmware's order."""
    try:
        slots = smbios.memory_modules(tree.data(TABLE))
    except Unreadable as gap:
        return _none(TABLE, gap.hint or NO_TABLE)
    except smbios.DamagedTableError as error:
        return _none(TABLE, f"{TABLE} is damaged: {error}")
    if not slots:
        return _none(TABLE, "the firmware lists no memory")
    filled = tuple(_memory_module(slot) for slot in slots if slot.size_bytes != 0)
    return Fact(value=len(filled), source=TABLE), filled


def _memory_module(slot: smbios.MemoryModule) -> Facts:
    texts = {
        "slot": slot.locator,
        "bank": slot.bank,
        "kind": slot.kind or "",
        "manufacturer": slot.manufacturer,
        "part": slot.part,
        "serial": slot.serial,
    }
    numbers = {
        "size": (slot.size_bytes, "bytes"),
        "rated_speed": (slot.rated_speed, "transfers/s"),
        "configured_speed": (slot.configured_speed, "transfers/s"),
        "total_width": (slot.total_width, "bits"),
        "data_width": (slot.data_width, "bits"),
        "ranks": (slot.ranks, ""),
    }
    return {
        **{
            name: fact(partial(firmware, text), source=TABLE, absent=NOT_WRITTEN)
            for name, text in texts.items()
        },
        **{
            name: Fact(value=value, unit=unit, source=TABLE, hint="" if value else NOT_WRITTEN)
            for name, (value, unit) in numbers.items()
        },
    }


# ------------------------------------------------------------------ disks


def disks(tree: Tree) -> Counted:
    """Fixed disks, in the order of their addresses."""
    try:
        names = [name for name in tree.names(BLOCK) if _is_disk(tree, f"{BLOCK}/{name}")]
    except Unreadable as gap:
        return _none(BLOCK, gap.hint or NO_SYSTEM)
    return _counted([_disk(tree, f"{BLOCK}/{name}") for name in names], BLOCK)


def _is_disk(tree: Tree, folder: str) -> bool:
    """Hardware that stays, and not one of several paths to it."""
    marks = [path for path in (f"{folder}/removable", f"{folder}/hidden") if tree.exists(path)]
    return tree.exists(f"{folder}/device") and all(tree.text(path) == "0" for path in marks)


def _disk(tree: Tree, folder: str) -> Facts:
    device, every = f"{folder}/device", f"{BLOCK}/*"

    def size() -> int:
        return tree.number(f"{folder}/size") * _SECTOR

    def rotational() -> bool:
        return bool(tree.number(f"{folder}/queue/rotational"))

    read = partial(fact, absent=NOT_REPORTED)
    revisions = (f"{device}/firmware_rev", f"{device}/rev")
    revision = next((path for path in revisions if tree.exists(path)), revisions[0])
    return {
        "address": _address(tree, folder, every),
        "model": line(tree, f"{device}/model", NOT_REPORTED, source=f"{every}/device/model"),
        "serial": read(lambda: _disk_serial(tree, folder), source=f"{every}/device/serial"),
        "firmware": line(tree, revision, NOT_REPORTED, source=f"{every}/device/firmware_rev"),
        "size": read(size, source=f"{every}/size", unit="bytes"),
        "rotational": read(rotational, source=f"{every}/queue/rotational"),
    }


def _disk_serial(tree: Tree, folder: str) -> str:
    """As the driver tells it, or from a SCSI disk's page 0x80, which has a header of 4 bytes."""
    page = f"{folder}/device/vpd_pg80"
    if tree.exists(page):
        return firmware(tree.data(page)[4:].decode("ascii", "replace").strip("\0 "))
    own = f"{folder}/device/serial"
    return firmware(tree.line(own if tree.exists(own) else f"{folder}/serial"))


def _address(tree: Tree, folder: str, source: str) -> Fact:
    """The nearest address on the PCI bus above a device."""

    def read() -> str:
        addresses = _PCI_ADDRESS.findall(tree.target(folder))
        if not addresses:
            raise Unreadable
        return str(addresses[-1])

    return fact(read, source=source, absent=NOT_ON_BUS)


# ------------------------------------------------------------------ network


def interfaces(tree: Tree) -> Counted:
    """Network cards on the bus, and those elsewhere that have an interface here.

    Virtual functions are left out: they are the card's that makes them.
    """
    try:
        folders = list(_network_folders(tree))
    except Unreadable as gap:
        return _none(PCI, gap.hint or NO_SYSTEM)
    return _counted([_interface(tree, folder) for folder in folders], PCI)


def _network_folders(tree: Tree) -> Iterator[str]:
    seen: set[str] = set()
    for name in tree.names(PCI):
        folder = f"{PCI}/{name}"
        if tree.text(f"{folder}/class").startswith(_NETWORK_CLASS):
            seen.add(name)
            if not tree.exists(f"{folder}/physfn"):
                yield folder
    for name in or_none(lambda: physical_interfaces(tree)) or ():
        if not seen.intersection(_PCI_ADDRESS.findall(tree.target(f"{NET}/{name}"))):
            yield f"{NET}/{name}/device"


def physical_interfaces(tree: Tree) -> tuple[str, ...]:
    """Names of the interfaces of this network namespace that have hardware. Raises Unreadable."""
    return tuple(name for name in tree.names(NET) if tree.exists(f"{NET}/{name}/device"))


def _interface(tree: Tree, folder: str) -> Facts:
    every = f"{PCI}/*" if folder.startswith(PCI) else f"{NET}/*/device"

    def numa_node() -> int:
        node = tree.number(f"{folder}/numa_node")
        if node < 0:
            raise Unreadable(NOT_WRITTEN)
        return node

    def driver() -> str:
        return tree.target(f"{folder}/driver").rpartition("/")[2]

    return {
        "address": _address(tree, folder, every),
        "vendor_id": line(tree, f"{folder}/vendor", NOT_ON_BUS, source=f"{every}/vendor"),
        "device_id": line(tree, f"{folder}/device", NOT_ON_BUS, source=f"{every}/device"),
        "driver": fact(driver, source=f"{every}/driver", absent="no driver is bound to it"),
        "mac": fact(lambda: _hardware_address(tree, folder), source=NET, absent=NO_NETWORK),
        "numa_node": fact(numa_node, source=f"{every}/numa_node", absent=NOT_REPORTED),
        **_fabric(tree, folder),
    }


def _hardware_address(tree: Tree, folder: str) -> str:
    """The addresses of a card's ports; one that software has set is not the hardware's."""
    home = tree.target(folder)
    names = [
        name
        for name in physical_interfaces(tree)
        if tree.target(f"{NET}/{name}").startswith(f"{home}/")
    ]
    if not names:
        raise Unreadable
    return ", ".join(_port_address(tree, f"{NET}/{name}") for name in names)


def _port_address(tree: Tree, folder: str) -> str:
    if tree.text(f"{folder}/addr_assign_type") == _PERMANENT:
        return tree.line(f"{folder}/address")
    bonded = f"{folder}/bonding_slave/perm_hwaddr"
    if tree.exists(bonded):
        return tree.line(bonded)
    raise Unreadable("software has set the address; the hardware's own is not reported")


def _fabric(tree: Tree, folder: str) -> Facts:
    """Firmware and identifier of an adapter that has an RDMA device; nothing for others."""
    try:
        names = tree.names(f"{folder}/infiniband")
    except Unreadable:
        return {}
    files = {"firmware": "fw_ver", "board": "board_id", "node_guid": "node_guid"}
    return {
        key: line(
            tree,
            f"{folder}/infiniband/{name}/{file}",
            NOT_REPORTED,
            source=f"{PCI}/*/infiniband/*/{file}",
        )
        for name in names[:1]
        for key, file in files.items()
    }
