"""What the harness does through torch: clocks, generators, copies to the host."""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from appliance.linux import cgroup
from appliance.linux.sysfs import Tree, Unreadable
from appliance.probe import libraries
from appliance.records.system import Fact, Facts
from appliance.worker import outputs, timing, witness

CHOICE_WARMUP, CHOICE_CALLS = 2, 5
"""Calls of some work that is timed to choose between ways of doing the same."""
BUSY_COUNT, BUSY_PRODUCTS = 2**16, 8
"""Numbers, and how often each is multiplied between two synchronises while clocks are compared:
well below 10 ms on one core."""

Staged = Callable[[Sequence[torch.Tensor]], AbstractContextManager[list[torch.Tensor]]]
"""Puts flat tensors on the host until the block ends."""
HOST = torch.device("cpu")
DEVICE_SHARE = 0.5
"""Part of the memory that a device has free after the first step, which had all that steps take,
that a copy of its output may take."""
HOST_SHARE = 0.125
"""Part of the memory that this process may still take of its host, which other launches share."""


class DeviceStopwatch:
    """The host's clocks and, where the device has one, its events; torch hides the vendor."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._wait = torch.get_device_module(device.type).synchronize
        self._has_events = device.type != "cpu"

    def now(self) -> int:
        return time.perf_counter_ns()

    def raw(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def synchronise(self) -> None:
        self._wait()

    def mark(self) -> torch.Event | None:
        if not self._has_events:
            return None
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        return event

    def between(self, begin: torch.Event, end: torch.Event) -> int:
        return round(begin.elapsed_time(end) * 1e6)


def equal_work(device: torch.device, count: int, times: int = 1) -> Callable[[], None]:
    """Work of equal length on so many numbers of 8 bytes, which changes nothing of them.

    Products of integers, one by one: every build that draws its inputs has these kernels loaded.
    Products of matrices would load one of another library, which takes an H100 some 70 ms.
    """
    numbers = torch.empty(count, dtype=torch.int64, device=device)
    numbers.bitwise_and_(0).bitwise_or_(1)

    def multiply() -> None:
        for _ in range(times):
            numbers.mul_(numbers)

    return multiply


def busy_work(device: torch.device) -> Callable[[], None]:
    """A short piece of work for the device, which draws no random number."""
    return equal_work(device, BUSY_COUNT, BUSY_PRODUCTS)


def is_lack_of_memory(error: BaseException) -> bool:
    """By its class, or by the words of torch's allocator of the host, which raises no other."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def give_back(device: torch.device) -> None:
    """Hand memory that no tensor uses back to the device."""
    if device.type != "cpu":
        torch.get_device_module(device.type).empty_cache()


def device_witness(device: torch.device, stopwatch: timing.Stopwatch) -> witness.Witness | None:
    """A witness of the device's other users; None on one without clock, or that is full."""

    def piece(count: int) -> Callable[[], object] | None:
        try:
            return equal_work(device, count)
        except torch.OutOfMemoryError:
            return None

    return witness.make_witness(piece, stopwatch)


def seed_generators(seed: int) -> None:
    """Seed every global generator that a library may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - libraries draw from the global generator
    torch.manual_seed(seed)


def device_bits(leaf: Any) -> NDArray[Any]:
    """Bytes of a tensor or array, on the host."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return outputs.bits(leaf)


def device_bytes(leaf: Any) -> Any | None:
    """Bytes of a tensor or array, flat and where they lie, to be read in pieces.

    None of what does not lie there in order: to put it in order there takes its memory again.
    """
    if isinstance(leaf, torch.Tensor) and leaf.is_contiguous():
        return leaf.detach().reshape(-1).view(torch.uint8)
    if isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous:
        return outputs.bits(leaf)
    return None


def in_pieces(staged: Staged) -> outputs.InPieces:
    """How tensors are read in pieces, through memory that is lent out again and again."""

    @contextmanager
    def lend(piece: Any) -> Iterator[NDArray[Any]]:
        if not isinstance(piece, torch.Tensor):
            yield piece
            return
        with staged([piece]) as (near,):
            yield near.numpy()

    return outputs.InPieces(flat=device_bytes, lend=lend)


def device_values(leaf: Any) -> NDArray[Any]:
    """Numbers of a tensor or array in float64, on the host."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu()
        leaf = (leaf.to(torch.complex128) if leaf.is_complex() else leaf.double()).numpy()
    return outputs.values(leaf)


def process_facts(device: torch.device) -> Facts:
    """What this process has of libraries, threads and device."""
    name = getattr(torch.get_device_module(device.type), "get_device_name", None)
    facts = {
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device_name": None if name is None else name(),
    }
    return {
        "torch": libraries.version("torch"),
        **{name: Fact(value=value, source="worker") for name, value in facts.items()},
    }


def median_seconds(stopwatch: timing.Stopwatch, work: Callable[[], object]) -> float:
    """What one call takes: the median of some calls, after some that warm up."""
    step = timing.Step(make=work)
    for _ in range(CHOICE_WARMUP):
        timing.one(step, stopwatch)
    spans = [timing.one(step, stopwatch)[1] for _ in range(CHOICE_CALLS)]
    return statistics.median(
        1e-9 * (span.wall_ns if span.event_ns is None else span.event_ns) for span in spans
    )


# ------------------------------------------------------------------ a copy of the first output


def kept(output: Any, memory_limit_bytes: int) -> Any | None:
    """A copy of an output that later steps write over; None where there is no room, or none knows.

    Each tensor is copied to memory of its own device or of the host, where it lies. The copy is
    there while steps are timed, so it takes no more than a share of what is free.
    `memory_limit_bytes` is what this process may hold of its host. Raises TypeError for an output
    that holds something else than arrays and plain values.
    """
    if not _has_room(_sizes(output), memory_limit_bytes):
        return None
    try:
        return outputs.mapped(output, _copied)
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        return None


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else np.array(leaf)


def _sizes(output: Any) -> Mapping[torch.device, int]:
    """Bytes of the output by the device that holds them."""
    sizes: Counter[torch.device] = Counter()
    for leaf in outputs.arrays(output):
        sizes[leaf.device if isinstance(leaf, torch.Tensor) else HOST] += int(leaf.nbytes)
    return sizes


def _has_room(sizes: Mapping[torch.device, int], memory_limit_bytes: int) -> bool:
    return all(
        size <= (_room_on_host(memory_limit_bytes) if one == HOST else _room_on(one))
        for one, size in sizes.items()
    )


def _room_on(device: torch.device) -> float:
    try:
        free, _ = torch.accelerator.get_memory_info(device)
    except RuntimeError:  # a device that does not say
        return 0.0
    return DEVICE_SHARE * int(free)


def _room_on_host(memory_limit_bytes: int) -> float:
    try:
        left = cgroup.memory_left(Tree())
    except Unreadable:
        return 0.0
    own = memory_limit_bytes - int(psutil.Process().memory_info().rss)
    free = int(psutil.virtual_memory().available)
    return HOST_SHARE * max(0, min(own, free, free if left is None else left))
