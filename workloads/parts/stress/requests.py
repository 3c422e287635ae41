"""How much stress a launch asks for: threads, memory, room on the disk, and what it takes of each.

On accelerators the host is free but for the threads that launch products; on processors the cores
and the memory are the device under test itself, so that stress takes less beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from appliance.stress import scratch
from workloads.contract.failures import Unsupported
from workloads.contract.target import Target
from workloads.parts.burning import sizing
from workloads.parts.numerics.threads import usable_processors
from workloads.parts.stress import copies, links
from workloads.parts.stress.stressors import Request

MEMORY_SHARE = {"processors": 1 / 8, "accelerators": 1 / 2}
"""Of the host's free memory or its control group's limit, shared by the launches at once."""
MOST_MEMORY = {"processors": 2**31, "accelerators": 2**38}
SPARED_CORES = 1
"""For the launch itself, beside those of its lanes."""
COPIES_PERCENT = {"processors": 25, "accelerators": 100}
"""Of a core's time."""
LINKS_PERCENT = {"processors": 25, "accelerators": 50}
"""Of the time; on accelerators half, as what moves words takes cores from the products."""
LINKS_BYTES = {"processors": 2**22, "accelerators": 2**26}
"""Of the blocks of all devices."""
CONTEXT_BYTES = 2**30
"""Of an accelerator's memory, what a process takes that only copies."""


def of(
    kinds: Sequence[str], target: Target, seed: int, launches: int, lanes: int
) -> tuple[Request, ...]:
    """What a launch asks for of each kind, of so many launches at once.

    Raises Unsupported where a disk lacks the room, or cannot be written.
    """
    device = target.device
    where = _where(device)

    def host() -> Request:
        room = sizing.free_memory(torch.device("cpu"))
        free = min(room.free, room.limit or room.free)
        size = min(MOST_MEMORY[where], int(MEMORY_SHARE[where] * free))
        cores = usable_processors() // launches - lanes - SPARED_CORES
        threads = 1 if where == "processors" else max(1, cores)
        return Request(kind="host", seed=seed, num_bytes=size // launches, threads=threads)

    def on_disk() -> Request:
        folder = target.scratch or Path(tempfile.gettempdir())
        try:
            size = scratch.file_bytes(folder, launches)
        except ValueError as error:
            raise Unsupported(f"stress disk: {error}") from None
        return Request(kind="disk", seed=seed, num_bytes=size, folder=str(folder))

    def copying() -> Request:
        percent = COPIES_PERCENT[where]
        size = copies.NUM_BYTES
        return Request(
            kind="copies",
            seed=seed,
            num_bytes=size,
            percent=percent,
            device=str(device),
            vendor=target.vendor,
        )

    def linking() -> Request:
        beside = target.beside
        return Request(
            kind="links",
            seed=seed,
            num_bytes=LINKS_BYTES[where],
            percent=LINKS_PERCENT[where],
            device=str(device),
            vendor=target.vendor,
            folder=str(beside.meeting) if beside else "",
            names=",".join(beside.devices) if beside else str(device),
            rank=beside.number if beside else 0,
            backend=target.collectives,
        )

    makers: Mapping[str, Callable[[], Request]] = {
        "host": host,
        "disk": on_disk,
        "copies": copying,
        "links": linking,
    }
    return tuple(makers[kind]() for kind in kinds)


def device_bytes(kinds: Sequence[str], device: torch.device) -> int:
    """Bytes of the device's memory that stress takes, and the products leave free.

    Each kind that works on the device is a process with a context of its own.
    """
    if _where(device) == "processors":
        return 0
    own = {"copies": copies.ON_DEVICE, "links": links.ON_DEVICE}
    return sum(CONTEXT_BYTES + size for kind, size in own.items() if kind in kinds)


def _where(device: torch.device) -> str:
    return "processors" if device.type == "cpu" else "accelerators"
