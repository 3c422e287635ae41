"""How much of the processors' time others take while the appliance works.

A hog beside the run makes a sound machine look slow, so the two must be distinguished. The kernel
counts the busy time of the whole node, also where a container hides whose it is; what our own
processes used is taken away. Ours are one process and all that descend from it. A process that
ends hands its time to the parent that waits for it, so launches that begin and end between two
readings are counted too.

Read at 2 Hz while a launch is timed, so cheap: processes that were seen before and are not ours
are not looked at again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.linux.sysfs import Tree, Unreadable, or_none

SHORTEST_SECONDS = 0.1
"""Between two readings: the kernel counts in hundredths of a second."""
_MORE_TICKS, _MORE_SHARE = 10, 0.1
"""By how much our time may exceed the node's, which the kernel counts by another rule."""
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE, _IO_WAIT, _STEAL, _GUEST = 3, 4, 7, 8
"""Columns of /proc/stat; guest time is counted in user time already."""
_PARENT, _TIMES, _START = 1, slice(11, 15), 19
"""Fields of /proc/PID/stat after the name; times are user and system, then its children's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Processors that others used since the reading before; None where it is not known."""

    foreign: float | None
    stolen: float | None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One process: its parent, its start in ticks (a number may be reused), and ticks used.

    The ticks are its own and those of the children that it has waited for.
    """

    parent: int
    start: int
    used: int


_Ours = Mapping[int, _Entry]


@dataclass(frozen=True, slots=True)
class _Moment:
    """Ticks since boot that the node worked and that a hypervisor withheld; our processes."""

    at: float
    busy: int
    stolen: int
    ours: _Ours


def node_ticks(tree: Tree) -> tuple[int, int]:
    """Of all processors: ticks spent on work, and ticks that a hypervisor withheld."""
    name, *columns = tree.text("/proc/stat", limit=256).split("\n")[0].split()
    if name != "cpu" or len(columns) < _GUEST or not all(map(str.isdecimal, columns)):
        raise Unreadable("/proc/stat is damaged: it holds no processor times")
    ticks = [int(column) for column in columns[:_GUEST]]
    return sum(ticks) - ticks[_IDLE] - ticks[_IO_WAIT] - ticks[_STEAL], ticks[_STEAL]


class Neighbours:
    """What others use, from one reading to the next; `own` is the first of our processes."""

    def __init__(
        self, tree: Tree, own: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree = tree
        self._own = os.getpid() if own is None else own
        self._clock = clock
        self._others: frozenset[int] = frozenset()
        self._before: _Moment | None = None

    def read(self) -> Used:
        """Processors used by others and withheld by a hypervisor since the last reading.

        None at the first reading, at one that follows too soon to tell (the next one then tells
        of that time too), and where the kernel's figures are missing or contradict each other.
        """
        before = self._before
        if before is not None and self._clock() - before.at < SHORTEST_SECONDS:
            return Used(foreign=None, stolen=None)
        now = self._before = or_none(self._moment)
        if now is None or before is None:
            return Used(foreign=None, stolen=None)
        ticks = (now.at - before.at) * _TICKS
        busy, stolen = now.busy - before.busy, now.stolen - before.stolen
        own = _used(before.ours, now.ours)
        is_sound = busy >= 0 and own <= busy + _MORE_TICKS + _MORE_SHARE * own
        return Used(
            foreign=max(0, busy - own) / ticks if is_sound else None,
            stolen=stolen / ticks if stolen >= 0 else None,
        )

    def _moment(self) -> _Moment:
        at = self._clock()
        busy, stolen = node_ticks(self._tree)
        return _Moment(at, busy, stolen, self._ours())

    def _ours(self) -> _Ours:
        """Our processes as they are now; the children are read before their parents.

        One that ends meanwhile is so counted twice, never left out: what is ours must not be
        taken for another's.
        """
        known = self._before.ours if self._before is not None else {}
        present = self._numbers()
        new = sorted(present - known.keys() - self._others, reverse=True)
        old = sorted(present & known.keys(), key=lambda pid: -known[pid].start)
        read = {pid: self._entry(pid) for pid in (*new, *old)}
        alive = {pid: entry for pid, entry in read.items() if entry is not None}
        ours = {
            pid: entry
            for pid, entry in alive.items()
            if pid == self._own or (pid in known and known[pid].start == entry.start)
        }
        if self._own not in ours:
            raise Unreadable
        size = 0
        while size < len(ours):
            size = len(ours)
            ours |= {pid: entry for pid, entry in alive.items() if entry.parent in ours}
        self._others = frozenset(present - ours.keys())
        return ours

    def _numbers(self) -> set[int]:
        try:
            names = os.listdir(self._tree.path("/proc"))  # noqa: PTH208 - names alone are wanted
        except OSError:
            raise Unreadable from None
        return {int(name) for name in names if name.isdecimal()}

    def _entry(self, pid: int) -> _Entry | None:
        """A process; None where it has ended meanwhile."""
        try:
            text = self._tree.text(f"/proc/{pid}/stat")
            # The name in parentheses may hold anything; the fields after the last one are plain.
            fields = text[text.rindex(")") + 2 :].split()
            used = sum(map(int, fields[_TIMES]))
            return _Entry(int(fields[_PARENT]), int(fields[_START]), used)
        except (Unreadable, ValueError, IndexError):
            return None


def _used(before: _Ours, after: _Ours) -> int:
    """Ticks that our processes used between, those included that ended.

    The time of one that ended is now in the figure of the ancestor that is left, so what was
    counted of it before is taken away there. Where nobody of ours has waited for it that time
    is nowhere, and what it last used is missing, but nothing of what it used before.
    """
    handed = dict.fromkeys(after, 0)
    for pid, entry in before.items():
        if pid not in after:
            heir = entry.parent
            while heir in before and heir not in after:
                heir = before[heir].parent
            if heir in before:
                handed[heir] += entry.used
    return sum(
        max(0, entry.used - handed[pid] - (before[pid].used if pid in before else 0))
        for pid, entry in after.items()
    )
