"""Processors that this process may use, torch's threads on all of them, and work on parts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import torch

from appliance.linux.cgroup import cpu_quota
from appliance.linux.sysfs import Tree, Unreadable

Given = TypeVar("Given")
Result = TypeVar("Result")
A_THREADS_WORTH = 2**23
"""Bytes of tensors for which another thread is worth waking.

An operator of torch on more than 32,768 numbers wakes all threads that it may use and waits for
the last. Of a small model's tensors that is most of its time: a root of at most 131,072 numbers
took 2.4 ms in the mean on 16 threads of an H100's host, where the next launch built beside it.
"""


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


def on_few_threads(num_bytes: int) -> AbstractContextManager[None]:
    """While it is entered, as many threads as tensors of so many bytes are worth."""
    return on_threads(max(1, min(torch.get_num_threads(), num_bytes // A_THREADS_WORTH)))


def each_on_a_thread(
    work: Callable[[Given], Result], given: Sequence[Given], most: int | None = None
) -> Iterator[Result]:
    """What some work gives of each, in their order, on as many threads as torch may use.

    Or on `most`. Torch's operators have one thread in each: of many small tensors that takes less
    than to wake all threads for every operator. An exception of the work passes through.
    """
    threads = min(len(given), torch.get_num_threads(), most or len(given))
    if threads <= 1:
        yield from map(work, given)
        return
    with (
        on_threads(1),
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        yield from pool.map(work, given)


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


def on_each(items: Sequence[Given], work: Callable[[Given], Result]) -> list[Result]:
    """What some work of torch gives of each item, as `each_on_a_thread`, once all are done."""
    return list(each_on_a_thread(work, items))
