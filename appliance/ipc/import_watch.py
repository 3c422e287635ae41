"""What importing workloads has started in this process: threads, and children, by who started it.

A fork has only the thread that forked, and the locks of all. So what an import leaves running is
named, with the workload whose import it was. A library may end its threads in a handler that runs
before each fork, as OpenBLAS does; what is asked is therefore what is left when a fork has been
made.

An import makes millions of objects and drops next to none, so nothing is collected while it lasts
(`uncollected`): looking through them again and again took a sixth of its time.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMED = 3
"""Threads that a sentence names before it counts the others."""
_TASKS = Path("/proc/self/task")


@contextmanager
def uncollected() -> Iterator[None]:
    """While it lasts, imports are not interrupted to collect what they made, nor is it afterwards.

    What was imported stays until the process ends. So it is set aside from later collections, of a
    fresh process as a server does it for its forks; where nothing is imported, nothing is.
    """
    was_on, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if was_on:
            gc.enable()


class ImportWatch:
    """Notes after each import what runs that did not run before."""

    def __init__(self) -> None:
        self._sources = dict.fromkeys(_running(), "before any import")
        self._importers: dict[int, str] = {}

    def imported(self, name: str) -> None:
        """Name the import that has just ended."""
        for number in _running():
            if number not in self._sources:
                self._sources[number] = f"by importing {name}"
                self._importers[number] = name

    def outlived_fork(self, fork: int) -> str:
        """What runs beside this thread now that `fork` has been forked; empty if nothing does."""
        left = [
            f"{words} started {self._sources.get(number, 'after the imports')}"
            for number, words in _running().items()
            if number != fork
        ]
        if not left:
            return ""
        others = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        return f"a fork would be without {', '.join(left[:NAMED])}{others}"

    def importers(self, fork: int) -> tuple[str, ...]:
        """The imports that started all that `outlived_fork` names; none if they are not known."""
        left = _running().keys() - {fork}
        names = {self._importers.get(number, "") for number in left}
        return () if "" in names else tuple(sorted(names))


def _running() -> dict[int, str]:
    """Threads other than the main one, and child processes: number in the kernel, and its name."""
    in_python = {thread.native_id: thread.name for thread in threading.enumerate()}
    threads = {int(task.name): task for task in _TASKS.iterdir() if int(task.name) != os.getpid()}
    children = {number: Path(f"/proc/{number}") for number in _children()}
    return {
        number: f'{kind} "{name}"'
        for kind, entries in (("thread", threads), ("process", children))
        for number, entry in entries.items()
        if (name := in_python.get(number) or _comm(entry))
    }


def _comm(entry: Path) -> str:
    """The name that the kernel has; empty for what has ended meanwhile."""
    try:
        return (entry / "comm").read_text().strip()
    except OSError:
        return ""


def _children() -> list[int]:
    """Processes that this one has started and not waited for."""
    try:
        return [
            int(number)
            for task in _TASKS.iterdir()
            for number in (task / "children").read_text().split()
        ]
    except OSError:  # a kernel that does not list them, or a thread that ended
        return []
