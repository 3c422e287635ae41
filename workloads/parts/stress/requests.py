"""How much stress a launch asks for: threads, memory, room on the disk, and what it takes of each.

On accelerators the host is free but for the threads that launch products; on processors the cores
and the memory are the device under test itself, so that stress takes less beside it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence

import torch

from workloads.contract.failures import Unsupported
from workloads.parts.burning import sizing
from workloads.parts.numerics.threads import usable_processors
from workloads.parts.stress import copies, disk
from workloads.parts.stress.stressors import Request

MEMORY_SHARE = {"processors": 1 / 8, "accelerators": 1 / 2}
"""Of the host's free memory or its control group's limit, shared by the launches at once."""
MOST_MEMORY = {"processors": 2**31, "accelerators": 2**38}
SPARED_CORES = 1
"""For the launch itself, beside those of its lanes."""
COPIES_PERCENT = {"processors": 25, "accelerators": 100}
"""Of a core's time."""
DISK_SHARE, MOST_DISK = 1 / 20, 2**28
"""Of the free room, shared by the launches at once; bytes of a launch's file at most."""
CONTEXT_BYTES = 2**30
"""Of an accelerator's memory, what a process takes that only copies."""


def of(
    kinds: Sequence[str], device: torch.device, seed: int, launches: int, lanes: int
) -> tuple[Request, ...]:
    """What a launch asks for of each kind, of so many launches at once.

    Raises Unsupported where a disk lacks the room.
    """
    where = _where(device)

    def host() -> Request:
        room = sizing.free_memory(torch.device("cpu"))
        free = min(room.free, room.limit or room.free)
        size = min(MOST_MEMORY[where], int(MEMORY_SHARE[where] * free))
        cores = usable_processors() // launches - lanes - SPARED_CORES
        threads = 1 if where == "processors" else max(1, cores)
        return Request(kind="host", seed=seed, num_bytes=size // launches, threads=threads)

    def on_disk() -> Request:
        folder = tempfile.gettempdir()
        return Request(kind="disk", seed=seed, num_bytes=_room(folder, launches), folder=folder)

    def copying() -> Request:
        percent = COPIES_PERCENT[where]
        size = copies.NUM_BYTES
        return Request(
            kind="copies", seed=seed, num_bytes=size, percent=percent, device=str(device)
        )

    makers: Mapping[str, Callable[[], Request]] = {
        "host": host,
        "disk": on_disk,
        "copies": copying,
    }
    return tuple(makers[kind]() for kind in kinds)


def device_bytes(kinds: Sequence[str], device: torch.device) -> int:
    """Bytes of the device's memory that stress takes, and the products leave free."""
    is_apart = _where(device) == "accelerators"
    return CONTEXT_BYTES + copies.ON_DEVICE if "copies" in kinds and is_apart else 0


def _where(device: torch.device) -> str:
    return "processors" if device.type == "cpu" else "accelerators"


def _room(folder: str, launches: int) -> int:
    """Bytes of a launch's file."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    size = min(MOST_DISK, int(DISK_SHARE * free / launches)) // disk.REGION * disk.REGION
    if not size:
        wanted = disk.REGION * launches / DISK_SHARE
        raise Unsupported(
            f"stress disk: {folder} has {free:,} bytes free: make {wanted:,.0f} free there, or "
            "leave disk out of the stress"
        )
    return size
