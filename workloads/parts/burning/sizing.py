"""How much memory a burn-in takes, and how many sets of products and which parts fit it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from appliance.linux import cgroup
from appliance.linux.sysfs import Tree, Unreadable
from workloads.contract.failures import ParameterError
from workloads.parts.burning.formats import Format
from workloads.parts.burning.state import ALIGNED, bytes_of, set_words
from workloads.parts.memory.memory_tests import TESTS, WORD_BYTES, passes_of

OF_PROCESSORS = 0.5
"""Of what is free, or of the control group's limit: processors' memory is everybody's."""
FEWEST_SETS = 2
"""So that what a set holds was overwritten by another round before its turn comes again."""
MEAN_BYTES = WORD_BYTES * fmean(sum(passes_of(test)) for test in TESTS)
"""Bytes that a test writes and reads for each word, on average over all tests."""

__all__ = ["MEAN_BYTES", "Room", "bytes_of", "free_memory", "num_sets", "pool_words"]


@dataclass(frozen=True, kw_only=True)
class Room:
    """Bytes of a device's memory that are free, and all; `limit` of the control group."""

    free: int
    total: int
    limit: int | None = None
    is_everybodys: bool = False

    def usable(self, fraction: float) -> int:
        """Bytes that a burn-in takes: this fraction, or half of what everybody uses."""
        if not self.is_everybodys:
            return int(fraction * self.free)
        return int(OF_PROCESSORS * min(self.free, self.limit or self.free))


def free_memory(device: torch.device) -> Room:
    """What the device has free now; what its allocator holds is free."""
    module = torch.get_device_module(device.type)
    if not hasattr(module, "mem_get_info"):
        page = os.sysconf("SC_PAGE_SIZE")
        free, total = os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
        return Room(free=free, total=total, limit=_limit(), is_everybodys=True)
    free, total = module.mem_get_info(device)
    reserve = module.memory_reserved(device) - module.memory_allocated(device)
    return Room(free=free + reserve, total=total)


def _limit() -> int | None:
    try:
        return cgroup.memory_limit(Tree())
    except Unreadable:
        return None


def pool_words(
    formats: Sequence[Format], size: int, chain_size: int, lanes: int, budget: int
) -> int:
    """Words of 8 bytes of each lane's pool that this many bytes leave.

    Raises ParameterError where there is no room for two sets of the largest format's products.
    """
    widest = max(one.result.itemsize for one in formats)
    operands = sum(4 * one.operands.itemsize for one in formats) * size**2
    fixed = operands + (lanes + 1) * widest * size**2 + 64 * chain_size**2
    words = (budget - min(2**27, budget // 8) - fixed) // (WORD_BYTES * lanes)
    least = FEWEST_SETS * max(set_words(one, size) for one in formats) + ALIGNED * FEWEST_SETS
    if words < least:
        wanted = (fixed + least * WORD_BYTES * lanes) * 8 // 7 + 2**10
        raise ParameterError(
            f"{budget:,} bytes of memory are too few for size {size}: "
            f"give {wanted:,}, or a smaller size"
        )
    return words // ALIGNED * ALIGNED


def num_sets(form: Format, size: int, words: int) -> int:
    """Rounds whose products fit so many words at once."""
    return words // (set_words(form, size) + ALIGNED)
