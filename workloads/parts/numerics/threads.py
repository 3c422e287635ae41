"""Processors that this process may use, torch's threads on all of them, and work on parts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from appliance.linux.cgroup import cpu_quota
from appliance.linux.sysfs import Tree, Unreadable

Result = TypeVar("Result")


def usable_processors() -> int:
    """Those of the affinity, within the quota of the control group."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota = cpu_quota(Tree())
    except Unreadable:
        quota = None
    return max(1, min(allowed, allowed if quota is None else math.ceil(quota)))


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """While it is entered, an operator on the host runs on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_parts(count: int, size: int, work: Callable[[slice], Result]) -> list[Result]:
    """What some work gives of each part of `size` of `count` elements, the first part first.

    On as many threads as torch may use; torch's own operators have these too, so the work is
    NumPy's. An exception of the work passes through.
    """
    parts = [slice(first, min(first + size, count)) for first in range(0, count, size)]
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2:  # noqa: PLR2004 - nothing to share
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))
