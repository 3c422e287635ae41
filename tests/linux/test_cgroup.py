"""What control groups leave a process of the machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.linux.cgroup import memory_left, memory_limit
from appliance.linux.sysfs import Tree, Unreadable

GIB = 2**30
UNLIMITED_1 = "9223372036854771712"


def machine(root: Path, group: str, files: dict[str, str]) -> Tree:
    """A machine whose process is in this group; `files` by their path below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group + "\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Tree(root)


def test_files_that_nobody_reads_are_free_and_the_strictest_group_counts(tmp_path: Path) -> None:
    files = {
        "pod/memory.max": str(16 * GIB),
        "pod/memory.current": str(15 * GIB),
        "pod/memory.stat": f"anon {9 * GIB}\nactive_file {GIB}\ninactive_file {5 * GIB}",
        "pod/one/memory.max": str(8 * GIB),
        "pod/one/memory.current": str(6 * GIB),
        "pod/one/memory.stat": f"inactive_file {GIB}",
        "pod/one/inner/memory.max": "max",
    }
    tree = machine(tmp_path, "0::/pod/one/inner", files)
    assert memory_limit(tree) == 8 * GIB
    assert memory_left(tree) == 3 * GIB


def test_version_1_has_other_names_and_a_large_number_for_none(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": UNLIMITED_1,
        "memory/docker/memory.limit_in_bytes": str(4 * GIB),
        "memory/docker/memory.usage_in_bytes": str(5 * GIB),
        "memory/docker/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}",
    }
    tree = machine(tmp_path, "4:memory:/docker", files)
    assert (memory_limit(tree), memory_left(tree)) == (4 * GIB, 0)


def test_nothing_is_left_open_where_nothing_limits(tmp_path: Path) -> None:
    tree = machine(tmp_path, "0::/", {"cgroup.controllers": "memory"})
    assert (memory_limit(tree), memory_left(tree)) == (None, None)


def test_a_limit_whose_use_cannot_be_read_is_not_taken_for_free(tmp_path: Path) -> None:
    tree = machine(tmp_path, "0::/pod", {"pod/memory.max": str(GIB)})
    with pytest.raises(Unreadable):
        memory_left(tree)
