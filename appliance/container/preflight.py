"""What is missing on a host before a container with its devices can start, one sentence for each.

Nothing is started, opened or loaded: device nodes, the PCI bus and the engine's folders are
looked at, beneath a root, so that recorded and made-up hosts are judged by the same code. A
device that is on the bus and has no node is never passed over in silence: a run that fell back
to the processors would accept a node whose driver is broken.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.container.container_options import Devices, Engine
from appliance.errors import UsageError
from appliance.linux import pci
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.readiness.out_folder import refusal
from appliance.storage.toml_file import did_you_mean
from appliance.vendors.containers import (
    CONTAINERS,
    PCI_CLASSES,
    PROCESSORS_IMAGE,
    DevicePassthrough,
)
from appliance.vendors.visibility import VENDOR_NAMES

PROCESSORS = "cpu"
DRM = "/sys/class/drm"
PROGRAMS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/bin", "/sbin")
KIND = re.compile(r"""^\s*["']?kind["']?\s*:\s*["']?([^"',\s]+)""", re.MULTILINE)
"""The kind that a CDI specification is of, in YAML and in JSON."""
LONGEST_SPECIFICATION = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleDevices:
    """What a host shows of one vendor: functions on the PCI bus, and device nodes."""

    functions: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.nodes)


def image_of(vendor: str) -> str:
    """Name of the image for a vendor."""
    return CONTAINERS[vendor].image if vendor in CONTAINERS else PROCESSORS_IMAGE


def choose(tree: Tree, named: str | None) -> str:
    """The vendor that was named, else the first with a device, else the processors.

    Raises UsageError for a vendor that there is not, and for a device without a driver.
    """
    if named is not None:
        known = {*CONTAINERS, PROCESSORS}
        if named not in known:
            hint = did_you_mean(named, {*known, *VENDOR_NAMES})
            raise UsageError(f'there is no vendor called "{named}"{hint}')
        return named
    for vendor, passing in CONTAINERS.items():
        visible = visible_devices(tree, passing)
        if visible.count:
            return vendor
        if visible.functions:
            raise UsageError(
                f"{visible.functions[0]} on the PCI bus is a device of {passing.title} without a "
                f"node in /dev: {passing.driver}, or leave it out by --vendor {PROCESSORS}"
            )
    return PROCESSORS


def visible_devices(tree: Tree, passing: DevicePassthrough) -> VisibleDevices:
    """The vendor's functions on the bus, and the nodes of his devices."""
    seen = (one.address for one in pci.functions(tree, passing.pci_vendor, *PCI_CLASSES))
    functions = tuple(address for address in seen if address != passing.own_graphics)
    folder, pattern = passing.device_nodes
    names = or_none(lambda: tree.names(folder, pattern)) or ()
    if passing.is_shared:
        names = tuple(name for name in names if _owner(tree, name) in functions)
    return VisibleDevices(functions=functions, nodes=tuple(f"{folder}/{name}" for name in names))


def _owner(tree: Tree, node: str) -> str | None:
    """PCI address of the function that a node of /dev/dri belongs to."""
    target = or_none(lambda: tree.target(f"{DRM}/{node}/device"))
    return None if target is None else target.rpartition("/")[2]


# ------------------------------------------------------------------ devices


def devices(tree: Tree, vendor: str, engine: Engine) -> tuple[Devices, tuple[str, ...]]:
    """How the vendor's devices are passed, and a sentence for each thing that is missing."""
    if vendor not in CONTAINERS:
        return Devices(), ()
    passing = CONTAINERS[vendor]
    visible = visible_devices(tree, passing)
    missing = tuple(_missing_nodes(tree, passing, visible))
    if has_cdi(tree, passing, engine):
        return Devices(count=visible.count, cdi=passing.cdi, groups=_groups(tree, passing)), missing
    if passing.requests:
        lacks = missing_toolkit(tree, passing, engine)
        return Devices(count=visible.count, requests=True), (*missing, *lacks)
    nodes = Devices(count=visible.count, nodes=passing.devices, groups=_groups(tree, passing))
    return nodes, missing


def has_cdi(tree: Tree, passing: DevicePassthrough, engine: Engine) -> bool:
    """Whether the engine knows a CDI device that means all of the vendor's."""
    wanted = passing.cdi.partition("=")[0]
    return any(wanted in _kinds(tree, folder) for folder in engine.device_folders)


def _kinds(tree: Tree, folder: str) -> Iterator[str]:
    for name in or_none(lambda: tree.names(folder, r".*\.(ya?ml|json)")) or ():
        try:
            data = tree.data(f"{folder}/{name}", LONGEST_SPECIFICATION)
        except Unreadable:
            continue
        yield from KIND.findall(data.decode("utf-8", "replace"))


def _missing_nodes(
    tree: Tree, passing: DevicePassthrough, visible: VisibleDevices
) -> Iterator[str]:
    folder, pattern = passing.device_nodes
    absent = [node for node in passing.nodes if not tree.exists(node)]
    absent += [] if visible.count else [f"{folder}/{pattern.partition(chr(92))[0]}*"]
    if absent:
        yield f"this host has no {' and no '.join(absent)} of {passing.title}: {passing.driver}"


def missing_toolkit(tree: Tree, passing: DevicePassthrough, engine: Engine) -> Iterator[str]:
    """What the engine lacks to serve a request for the vendor's devices."""
    has_hook = any(tree.exists(f"{folder}/{passing.hook}") for folder in PROGRAMS)
    if not has_hook or engine.product != "Docker":
        kind = passing.cdi.partition("=")[0]
        yield (
            f"the engine cannot pass devices of {passing.title}, because it finds neither a CDI "
            f"specification of {kind} nor {passing.hook}: {passing.toolkit}"
        )


def _groups(tree: Tree, passing: DevicePassthrough) -> tuple[int, ...]:
    """Numbers of the groups that own the nodes, in ascending order."""
    paths = (path for pattern in passing.group_nodes for path in _matching(tree, pattern))
    return tuple(sorted({path.stat().st_gid for path in paths}))


def _matching(tree: Tree, pattern: str) -> Iterator[Path]:
    folder, _, name = pattern.rpartition("/")
    for entry in or_none(lambda: tree.names(folder)) or ():
        if fnmatch.fnmatchcase(entry, name):
            yield tree.path(f"{folder}/{entry}")


# ------------------------------------------------------------------ folders and files


def run_user(out: Path, engine: Engine) -> str:
    """User and group that the container runs as: whoever owns what it writes.

    An engine without root maps number 0 to whoever started it. Root may start a run for the
    owner of the folder.
    """
    if engine.is_rootless:
        return "0:0"
    if os.geteuid() == 0 and out.is_dir():
        owner = out.stat()
        return f"{owner.st_uid}:{owner.st_gid}"
    return f"{os.geteuid()}:{os.getegid()}"


def missing_out(out: Path) -> Iterator[str]:
    """Why the folder cannot take the evidence; nothing if it can, or can be made."""
    if not out.exists():
        refused = refusal(out)
        if refused is not None:
            yield f"{refused.reason}: {refused.fix}"
        return
    if not out.is_dir():
        yield f"{out} is not a folder: name another with --out"
        return
    status = out.stat()
    user = status.st_uid if os.geteuid() == 0 else os.geteuid()
    if status.st_uid != user:
        yield (
            f"{out} belongs to user {status.st_uid} and the run to user {user}: "
            f"`sudo chown {user} {out}`, or name another with --out"
        )
    elif status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        yield f"{out} is closed to its owner: `chmod u+rwx {out}`"
    else:
        refused = refusal(out)
        if refused is not None:
            yield f"{refused.reason}: {refused.fix}"


def missing_files(paths: Sequence[Path], user: str) -> tuple[str, ...]:
    """A sentence for each file or folder that is not there, or closed to the run's user."""
    return tuple(sentence for path in paths for sentence in _missing_file(path, user))


def _missing_file(path: Path, user: str) -> Iterator[str]:
    uid, _, gid = user.partition(":")
    try:
        status = path.stat()
    except OSError as error:
        yield f"{path} cannot be read ({error.strerror})"
        return
    wanted = 0o5 if path.is_dir() else 0o4
    shift = 6 if status.st_uid == int(uid) else 3 if status.st_gid == int(gid) else 0
    # An engine without root runs as the caller, and as number 0 inside.
    is_mine = int(uid) == 0 and os.access(path, os.R_OK) and os.geteuid() == status.st_uid
    if (status.st_mode >> shift) & wanted != wanted and not is_mine:
        yield f"{path} is closed to user {uid}, whom the run belongs to: `chmod a+rX {path}`"
