"""What the control groups of this process leave it of the machine's processors and memory.

A container sees all processors in /proc and /sys and may use only some of them; a verdict on
a node must say which. Both hierarchies are read: version 2 (one tree) and version 1 (one per
controller). A limit holds for all groups below it, so the strictest on the way to the root is
the one that counts. None means that nothing limits; Unreadable that it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.linux.sysfs import Tree, Unreadable, number

ROOT = "/sys/fs/cgroup"
ABSENT = "mount /sys/fs/cgroup read-only into the container"
_UNLIMITED = 1 << 60
"""Version 1 writes the largest page-aligned number where version 2 writes "max"."""


def cpu_quota(tree: Tree) -> float | None:
    """Processors' worth of time that this process may use, in cores."""
    limits: list[float] = []
    for folder in _folders(tree, "cpu"):
        if tree.exists(f"{folder}/cpu.max"):
            quota, _, period = tree.text(f"{folder}/cpu.max").partition(" ")
            where = f"{folder}/cpu.max"
        elif tree.exists(f"{folder}/cpu.cfs_quota_us"):
            quota = tree.text(f"{folder}/cpu.cfs_quota_us")
            period = tree.text(f"{folder}/cpu.cfs_period_us")
            where = f"{folder}/cpu.cfs_quota_us"
        else:
            continue
        if quota in ("max", "-1"):
            continue
        limits.append(_ratio(number(quota, where), number(period, where), where))
    return min(limits, default=None)


def memory_limit(tree: Tree) -> int | None:
    """Bytes that this process's groups may use together."""
    return min((limit for _, _, limit in _memory_limits(tree)), default=None)


def memory_left(tree: Tree) -> int | None:
    """Bytes that this process's groups may still take, by the strictest of them.

    Of what they use, pages of files that nobody has read lately are counted as free: the kernel
    takes these back before it ends a process.
    """
    left = [
        limit - _number(tree, f"{folder}/{kind.usage}") + _reclaimable(tree, folder, kind)
        for folder, kind, limit in _memory_limits(tree)
    ]
    return max(0, min(left)) if left else None


@dataclass(frozen=True, kw_only=True)
class _MemoryFiles:
    """How a version of control groups names the files of a group's memory."""

    limit: str
    usage: str
    inactive: str


_MEMORY = (
    _MemoryFiles(limit="memory.max", usage="memory.current", inactive="inactive_file"),
    _MemoryFiles(
        limit="memory.limit_in_bytes",
        usage="memory.usage_in_bytes",
        inactive="total_inactive_file",
    ),
)


def _memory_limits(tree: Tree) -> Iterator[tuple[str, _MemoryFiles, int]]:
    """The groups that limit memory, the names of their files, and the limit in bytes."""
    for folder in _folders(tree, "memory"):
        for kind in _MEMORY:
            name = f"{folder}/{kind.limit}"
            if tree.exists(name) and (text := tree.text(name)) != "max":
                limit = number(text, name)
                if limit < _UNLIMITED:
                    yield folder, kind, limit


def _number(tree: Tree, name: str) -> int:
    return number(tree.text(name), name)


def _reclaimable(tree: Tree, folder: str, kind: _MemoryFiles) -> int:
    """Bytes of files in memory that were not read lately."""
    name = f"{folder}/memory.stat"
    counts = dict(line.split(" ", 1) for line in tree.text(name).splitlines() if " " in line)
    return number(counts.get(kind.inactive, "0"), name)


def _ratio(quota: int, period: int, where: str) -> float:
    if quota <= 0 or period <= 0:
        raise Unreadable(f"{where} is damaged: {quota} of {period} is no share")
    return quota / period


def _folders(tree: Tree, controller: str) -> Iterator[str]:
    """Folders of this process's group and its parents, for one controller."""
    mount, path = _place(tree, controller)
    if not tree.exists(mount):
        raise Unreadable(ABSENT)
    parts = [part for part in path.split("/") if part]
    # A path that climbs is relative to a namespace that is not ours; only the mount is seen.
    count = 0 if ".." in parts else len(parts)
    for length in range(count, -1, -1):
        yield "/".join([mount, *parts[:length]])


def _place(tree: Tree, controller: str) -> tuple[str, str]:
    """Where the controller's hierarchy is mounted, and this process's group in it."""
    unified = None
    for entry in tree.text("/proc/self/cgroup").splitlines():
        _, _, rest = entry.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            joined = f"{ROOT}/{controllers}"
            return (joined if tree.exists(joined) else f"{ROOT}/{controller}"), path
        if not controllers:
            unified = path
    if unified is None:
        raise Unreadable(ABSENT)
    hybrid = f"{ROOT}/unified"
    return (hybrid if tree.exists(hybrid) else ROOT), unified
