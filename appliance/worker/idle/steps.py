"""Steps of four kinds on one device, and how long each takes in a block of them.

They are held by what a neighbour could take: the device's operations in two formats, its memory,
and the host, which hands over many small ones. `scheduling.idle_neighbours.KINDS` names them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

FEWEST, MOST = 3, 1000
"""Steps of a block."""
OPERATIONS = 500
"""Small operations of one step."""
HELD_SHARE = 16
"""A process that waits holds one part of so many of the device's memory, up to `MOST_HELD`."""
MOST_HELD = 2**30

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Rows of the products' matrices, and values of the sum."""

    side: int
    values: int


LARGE, SMALL = Sizes(side=8192, values=2**28), Sizes(side=512, values=2**22)
LARGE_BYTES = 8 * 2**30
"""Memory of a device from which on it takes the large sizes: 2.3 GiB."""


def sizes(device: torch.device, memory_bytes: int) -> Sizes:
    """What fills an accelerator of so much memory; processors have the small sizes."""
    return LARGE if device.type != "cpu" and memory_bytes >= LARGE_BYTES else SMALL


def steps(device: torch.device, memory_bytes: int) -> Mapping[str, Step]:
    """The steps by their kind; none makes memory of its own but for the products' outputs."""
    size = sizes(device, memory_bytes)
    left = torch.ones(size.side, size.side, device=device, dtype=torch.bfloat16)
    single = torch.ones(size.side // 2, size.side // 2, device=device)
    values, small = torch.ones(size.values, device=device), torch.ones(64, device=device)
    total = torch.empty_like(values)

    def many() -> None:
        for _ in range(OPERATIONS):
            small.add_(1.0)

    return {
        "bfloat16 product": lambda: left @ left,
        "float32 product": lambda: single @ single,
        "memory": lambda: torch.add(values, values, out=total),
        "small operations": many,
    }


def block(step: Step, device: torch.device, seconds: float) -> list[float]:
    """How long each step took of those that were made for so long, each until it was done."""
    wait = torch.get_device_module(device.type).synchronize
    times: list[float] = []
    wait()
    end = time.perf_counter() + seconds
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() < end):
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
    return times


def held(device: torch.device, memory_bytes: int) -> list[torch.Tensor]:
    """What a build leaves on a device: memory that is written, and a product that was made."""
    size = min(MOST_HELD, memory_bytes // HELD_SHARE)
    matrix = torch.ones(1024, 1024, device=device)
    product = matrix @ matrix
    float(product[0, 0])  # until it is done
    return [torch.ones(max(1, size // 4), device=device), product]
