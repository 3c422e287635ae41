"""Processes that are forks of this one, have what it has loaded, and end with it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from appliance.ipc import processes


def forked_pool(num_processes: int, begin: Callable[[], None]) -> ProcessPoolExecutor:
    """A pool whose processes are all forked now, each of which begins with `begin`."""
    pool = ProcessPoolExecutor(
        max_workers=num_processes,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(os.getpid(), begin),
    )
    with processes.forking():
        pool.submit(os.getpid).result()
    return pool


def _begin(parent: int, begin: Callable[[], None]) -> None:
    processes.die_with(parent)
    begin()
