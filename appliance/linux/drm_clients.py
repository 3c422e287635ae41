"""Programs that hold a graphics device open, by what the kernel says of their open files.

Drivers of the direct rendering manager write for each open file of theirs whose device it is, who
its client is, and what memory it has on it (Linux, Documentation/gpu/drm-usage-stats.rst:
drm-pdev, drm-client-id, drm-total-REGION). The files are /proc/PID/fdinfo/N. They show the
processes of this PID namespace alone, and another user's to root alone: where some may be hidden
the answer is a reason, never a number that is too small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from appliance.linux.sysfs import Tree, Unreadable, or_none

HOST_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace: PROC_PID_INIT_INO, 0xEFFFFFFC (Linux, include/linux/proc_ns.h)."""
OF_CONTAINER = (
    "only processes of this container can be seen: start it with --pid=host to see the others"
)
OF_USER = "open files of other users' processes may not be read: run as root"
FACTORS: Mapping[str, int] = {"": 1, "KiB": 2**10, "MiB": 2**20}
"""Units of drm-total-REGION; none are bytes."""
_MEMORY = re.compile(r"drm-(?:total|memory)-vram[0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Processes that have a device open, and the device memory of all their files together."""

    processes: frozenset[int]
    memory_bytes: int


def clients(tree: Tree, address: str) -> Clients:
    """Who has the device at a PCI address open. Raises Unreadable where some may be hidden."""
    if _namespace(tree) != HOST_NAMESPACE:
        raise Unreadable(OF_CONTAINER)
    processes: set[int] = set()
    memory: dict[str, int] = {}
    for pid in tree.names("/proc", r"[0-9]+"):
        for file in _open_files(tree, pid):
            if file.get("drm-pdev") == address:
                processes.add(int(pid))
                # A client that several processes share, or that is open twice, is one.
                memory[file.get("drm-client-id", f"of {pid}")] = _memory(file)
    return Clients(processes=frozenset(processes), memory_bytes=sum(memory.values()))


def _namespace(tree: Tree) -> str:
    try:
        return str(tree.path("/proc/self/ns/pid").readlink())
    except OSError:
        raise Unreadable(OF_CONTAINER) from None


def _open_files(tree: Tree, pid: str) -> Iterator[Mapping[str, str]]:
    """What a process's open files of graphics drivers say; none of one that has ended."""
    folder = f"/proc/{pid}/fdinfo"
    try:
        names = tree.names(folder, r"[0-9]+")
    except Unreadable as gap:
        if gap.hint:  # not allowed; without a hint it is gone
            raise Unreadable(OF_USER) from None
        return
    for name in names:
        text = or_none(lambda name=name: tree.text(f"{folder}/{name}"))  # type: ignore[misc]
        if text is not None and "drm-pdev" in text:
            pairs = (line.partition(":") for line in text.splitlines())
            yield {key.strip(): value.strip() for key, _, value in pairs}


def _memory(file: Mapping[str, str]) -> int:
    """Bytes of the device's own memory."""
    total = 0
    for key, value in file.items():
        if _MEMORY.fullmatch(key):
            amount, _, unit = value.partition(" ")
            total += int(amount) * FACTORS[unit] if amount.isdecimal() and unit in FACTORS else 0
    return total
