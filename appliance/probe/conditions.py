"""How the node is at this moment: load, free memory, settings, links, and who else is using it.

None of it is identity: it may change from minute to minute, and a resumed run may find it
different. Other processes are recorded by name and share only, because the report goes to
people who have no business with this machine's users. Where a container hides them, the
processors' own busy time still shows that somebody is there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import psutil

from appliance.linux.cpu_contention import node_ticks
from appliance.linux.fact_reader import fact, line
from appliance.linux.processors import meminfo
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.probe import container_facts
from appliance.probe.components import NET, NOT_REPORTED, physical_interfaces
from appliance.records.system import Fact, Facts, Process

SMALLEST_SHARE = 0.05
"""Of one processor: a process that used less is not named."""
MOST_PROCESSES = 20
NO_PROC = "mount /proc"
NO_SYSTEM = "mount /sys read-only into the container"
PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
FABRIC = "/sys/class/infiniband"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_TICKS = os.sysconf("SC_CLK_TCK")


def condition_facts(tree: Tree, environment: Mapping[str, str]) -> Facts:
    """Facts of this moment, read at once."""
    return {
        "hostname": line(tree, "/proc/sys/kernel/hostname", NO_PROC),
        "uptime": fact(lambda: _first(tree, "/proc/uptime"), source="/proc/uptime", unit="seconds"),
        **_loads(tree),
        **_memory(tree),
        "transparent_huge_pages": fact(
            lambda: _chosen(tree, PAGES), source=PAGES, absent=NO_SYSTEM
        ),
        "clock_source": line(tree, CLOCK, NO_SYSTEM),
        "numa_balancing": line(
            tree, "/proc/sys/kernel/numa_balancing", "the kernel has no NUMA balancing"
        ),
        "ld_preload": Fact(value=bool(environment.get("LD_PRELOAD")), source="environment"),
        **container_facts.condition_facts(environment),
        **_links(tree),
        **_fabric_ports(tree),
    }


def _first(tree: Tree, path: str) -> float:
    return _decimal(tree.text(path).split()[0], path)


def _decimal(text: str, source: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text, re.ASCII):
        raise Unreadable(f'{source} is damaged: "{text[:20]}" is no number')
    return float(text)


def _loads(tree: Tree) -> Facts:
    path = "/proc/loadavg"

    def read(column: int) -> float:
        columns = tree.text(path).split()
        if len(columns) < 3:  # noqa: PLR2004 - one, five and fifteen minutes
            raise Unreadable(f"{path} is damaged: it holds no three loads")
        return _decimal(columns[column], path)

    names = ("load_1_minute", "load_5_minutes", "load_15_minutes")
    return {
        name: fact(partial(read, column), source=path, absent=NO_PROC)
        for column, name in enumerate(names)
    }


def _memory(tree: Tree) -> Facts:
    path = "/proc/meminfo"
    rows = {
        "memory_usable": ("MemTotal", "bytes"),
        "memory_available": ("MemAvailable", "bytes"),
        "swap": ("SwapTotal", "bytes"),
        "huge_pages": ("HugePages_Total", ""),
        "huge_page_size": ("Hugepagesize", "bytes"),
    }
    facts = {
        name: fact(partial(meminfo, tree, key), source=path, unit=unit, absent=NO_PROC)
        for name, (key, unit) in rows.items()
    }

    def swap_used() -> int:
        return meminfo(tree, "SwapTotal") - meminfo(tree, "SwapFree")

    return {**facts, "swap_used": fact(swap_used, source=path, unit="bytes", absent=NO_PROC)}


def _chosen(tree: Tree, path: str) -> str:
    """The choice that stands in brackets."""
    match = re.search(r"\[(\w+)\]", tree.text(path))
    if match is None:
        raise Unreadable(f"{path} is damaged: no choice is marked")
    return match[1]


def _links(tree: Tree) -> Facts:
    """State and speed of every interface with hardware that this network namespace has."""
    try:
        names = physical_interfaces(tree)
    except Unreadable as gap:
        return {"links": Fact(value=None, source=NET, hint=gap.hint or NO_SYSTEM)}
    facts: dict[str, Fact] = {}
    for name in names:
        folder = f"{NET}/{name}"
        facts[f"link_{name}"] = line(tree, f"{folder}/operstate", NOT_REPORTED)
        facts[f"link_{name}_speed"] = fact(
            partial(_speed, tree, f"{folder}/speed"),
            source=f"{folder}/speed",
            unit="bit/s",
            absent="the link is down, or its driver does not report it",
        )
    return facts


def _speed(tree: Tree, path: str) -> int:
    megabits = tree.number(path)
    if megabits <= 0:  # -1 is the kernel's word for unknown
        raise Unreadable
    return megabits * 10**6


def _fabric_ports(tree: Tree) -> Facts:
    """State, physical state and rate of every port of every RDMA adapter; nothing without one.

    The kernel writes "4: ACTIVE", "5: LinkUp" and "400 Gb/sec (4X NDR)":
    Documentation/ABI/stable/sysfs-class-infiniband.
    """
    facts: dict[str, Fact] = {}
    for adapter in or_none(lambda: tree.names(FABRIC)) or ():
        for port in or_none(partial(tree.names, f"{FABRIC}/{adapter}/ports")) or ():
            folder, name = f"{FABRIC}/{adapter}/ports/{port}", f"port_{adapter}_{port}"
            for key, file in ((name, "state"), (f"{name}_physical", "phys_state")):
                path = f"{folder}/{file}"
                facts[key] = fact(
                    partial(_named_state, tree, path), source=path, absent=NOT_REPORTED
                )
            path = f"{folder}/rate"
            facts[f"{name}_speed"] = fact(
                partial(_rate, tree, path), source=path, unit="bit/s", absent=NOT_REPORTED
            )
    return facts


def _named_state(tree: Tree, path: str) -> str:
    """The word of a state that is written as a number and a word."""
    match = re.fullmatch(r"[0-9]+: *([\w /-]{1,40})", tree.text(path), re.ASCII)
    if match is None:
        raise Unreadable(f"{path} is damaged: it holds no state")
    return match[1]


def _rate(tree: Tree, path: str) -> int:
    """Bits per second; of a port that is down, what the kernel still reports."""
    match = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", tree.text(path), re.ASCII)
    if match is None:
        raise Unreadable(f"{path} is damaged: it holds no rate")
    return round(float(match[1]) * 1e9)


# ------------------------------------------------------------------ who else is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process has used so far: seconds of processor, bytes of memory.

    `ended_seconds` are those of its children that have ended.
    """

    name: str
    seconds: float
    memory_bytes: int
    ended_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Processes by number and time of start; and processor time of the whole node, in seconds."""

    at: float
    processes: Mapping[tuple[int, float], Usage]
    own: frozenset[int]
    busy_seconds: float | None
    steal_seconds: float | None


def observe(tree: Tree, own: int | None = None) -> Moment:
    """Read all processes now. `own` (this process by default) and its children are ours."""
    processes = {(number, start): usage for number, start, usage in _usages()}
    busy, steal = _node_seconds(tree)
    return Moment(
        at=time.monotonic(),
        processes=processes,
        own=_family(own or os.getpid()),
        busy_seconds=busy,
        steal_seconds=steal,
    )


def _usages() -> Iterator[tuple[int, float, Usage]]:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                times = process.cpu_times()
                usage = Usage(
                    name=process.name(),
                    seconds=times.user + times.system,
                    memory_bytes=process.memory_info().rss,
                    ended_seconds=times.children_user + times.children_system,
                )
                yield process.pid, process.create_time(), usage
        except psutil.Error:  # it ended, or may not be read: then it is not ours to name
            continue


def _family(own: int) -> frozenset[int]:
    try:
        children = psutil.Process(own).children(recursive=True)
    except psutil.Error:
        children = []
    return frozenset((own, *(child.pid for child in children)))


def _node_seconds(tree: Tree) -> tuple[float | None, float | None]:
    """Processor time spent on work and stolen by a hypervisor, of all processors since boot."""
    try:
        busy, stolen = node_ticks(tree)
    except Unreadable:
        return None, None
    return busy / _TICKS, stolen / _TICKS


def foreign_processes(before: Moment, after: Moment) -> tuple[Process, ...]:
    """Processes that are not ours and used at least SMALLEST_SHARE of one processor between.

    `cpu_share` is in processors: 1.0 is one processor, all of the time. The busiest are first.
    """
    seconds = after.at - before.at
    processes = [
        Process(name=usage.name, cpu_share=share, memory_bytes=usage.memory_bytes)
        for key, usage in after.processes.items()
        if key[0] not in before.own | after.own
        and (share := _used(before.processes.get(key), usage) / seconds) >= SMALLEST_SHARE
    ]
    processes.sort(key=lambda one: (-one.cpu_share, one.name))
    return tuple(processes[:MOST_PROCESSES])


def _used(before: Usage | None, after: Usage) -> float:
    """Seconds used between; a process that began meanwhile has used all of its own."""
    return after.seconds - (before.seconds if before is not None else 0.0)


def _ended(before: Usage | None, after: Usage) -> float:
    """Seconds of a process's children that ended between."""
    return after.ended_seconds - (before.ended_seconds if before is not None else 0.0)


def neighbour_facts(tree: Tree, before: Moment, after: Moment) -> Facts:
    """What others used of the node, also where their processes cannot be seen."""
    seconds = after.at - before.at
    own = sum(
        _used(before.processes.get(key), usage) + _ended(before.processes.get(key), usage)
        for key, usage in after.processes.items()
        if key[0] in before.own | after.own
    )
    read = partial(fact, source="/proc/stat", unit="processors", absent=NO_PROC)
    return {
        "processes_seen": _sight(tree),
        "used_by_others": read(
            lambda: max(0.0, _spent(before.busy_seconds, after.busy_seconds) - own) / seconds
        ),
        "stolen_by_hypervisor": read(
            lambda: _spent(before.steal_seconds, after.steal_seconds) / seconds
        ),
    }


def _spent(before: float | None, after: float | None) -> float:
    if before is None or after is None:
        raise Unreadable
    return after - before


def _sight(tree: Tree) -> Fact:
    """Whether this is the node's first process namespace: only there is number 2 the kernel's."""
    path = "/proc/2/comm"
    is_all = tree.exists(path) and tree.text(path) == "kthreadd"
    if is_all:
        return Fact(value="all of the node's", source=path)
    hint = "only this container's processes are seen: start with --pid host to see all"
    return Fact(value=None, source=path, hint=hint)
