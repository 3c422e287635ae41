"""What others use of the processors: told of written machines, and of a hog on this one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from appliance.linux.cpu_contention import Neighbours, Used
from appliance.linux.sysfs import Tree

BENCH, SERVER, LAUNCH, HOG = 100, 101, 202, 303
"""The appliance, its fork server, a launch of that, and somebody else."""
NOTHING = Used(foreign=None, stolen=None)


class Node:
    """A written machine: its busy time, and the time of every process, in ticks of 10 ms."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = 50.0
        self.busy, self.idle, self.stolen = 1000, 5000, 10
        self.processes: dict[int, list[int]] = {}  # parent, own ticks, ticks of ended children
        self.neighbours = Neighbours(Tree(root), BENCH, lambda: self.at)
        self.begin(1, 0, 40)
        self.begin(BENCH, 1, 20)
        self.begin(SERVER, BENCH, 300)
        self.begin(HOG, 1, 9000)

    def begin(self, pid: int, parent: int, ticks: int = 0) -> None:
        self.processes[pid] = [parent, ticks, 0]

    def work(self, pid: int, ticks: int) -> None:
        """The process works on a processor for so long."""
        self.processes[pid][1] += ticks
        self.busy += ticks

    def end(self, pid: int, *, heir: int | None = None) -> None:
        """The process ends, and its parent (or whoever is its heir) waits for it."""
        parent, own, ended = self.processes.pop(pid)
        self.processes[parent if heir is None else heir][2] += own + ended

    def read(self, seconds: float = 1.0) -> Used:
        """Write the machine as it is after so long, and read it."""
        self.at += seconds
        proc = self.root / "proc"
        for folder in proc.glob("[0-9]*"):
            (folder / "stat").unlink()
            folder.rmdir()
        for pid, (parent, own, ended) in self.processes.items():
            (proc / str(pid)).mkdir(parents=True)
            times = f"{own - own // 3} {own // 3} {ended - ended // 3} {ended // 3}"
            fields = f"R {parent} 1 1 0 -1 4194304 9 9 9 9 {times} 20 0 1 0 {1000 + pid} 1 1"
            (proc / str(pid) / "stat").write_text(f"{pid} (a (name) of 2) {fields}\n")
        user, nice, system = self.busy - 200, 50, 150
        row = f"cpu  {user} {nice} {system} {self.idle} 700 0 0 {self.stolen} 80 0\n"
        (proc / "stat").write_text(f"{row}cpu0 1 2 3 4 5 6 7 8 9 10\n")
        return self.neighbours.read()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_what_others_use_is_what_is_left_of_the_nodes_time(node: Node) -> None:
    assert node.read() == NOTHING  # there is nothing to compare with yet
    node.work(HOG, 100)
    node.work(SERVER, 60)
    node.stolen += 30
    assert node.read(2.0) == Used(foreign=0.5, stolen=0.15)
    node.work(HOG, 25)
    assert node.read(0.5) == Used(foreign=0.5, stolen=0.0)


def test_a_launch_is_ours_from_its_begin_to_its_end(node: Node) -> None:
    node.read()
    node.begin(LAUNCH, SERVER)
    node.work(LAUNCH, 80)
    assert node.read() == Used(foreign=0.0, stolen=0.0)
    node.work(LAUNCH, 70)
    node.end(LAUNCH)
    node.work(HOG, 30)
    assert node.read() == Used(foreign=0.3, stolen=0.0)


def test_a_launch_between_two_readings_is_ours(node: Node) -> None:
    node.read()
    node.begin(LAUNCH, SERVER)
    node.begin(LAUNCH + 1, LAUNCH)
    node.work(LAUNCH + 1, 90)
    node.end(LAUNCH + 1)
    node.end(LAUNCH)
    assert node.read() == Used(foreign=0.0, stolen=0.0)


def test_what_a_lost_child_used_before_is_not_anothers(node: Node) -> None:
    """A launch that ends before its child leaves it to the node's first process."""
    node.begin(LAUNCH, SERVER)
    node.begin(LAUNCH + 1, LAUNCH, 5000)
    node.read()
    node.end(LAUNCH)
    node.processes[LAUNCH + 1][0] = 1
    node.work(LAUNCH + 1, 50)
    assert node.read() == Used(foreign=0.0, stolen=0.0)
    node.end(LAUNCH + 1)
    node.work(SERVER, 40)
    node.work(HOG, 20)
    assert node.read() == Used(foreign=0.2, stolen=0.0)


def test_child_that_was_lost_with_its_parent_takes_nothing_from_the_others(node: Node) -> None:
    node.begin(LAUNCH, SERVER)
    node.begin(LAUNCH + 1, LAUNCH, 5000)
    node.read()
    node.end(LAUNCH + 1, heir=1)
    node.end(LAUNCH)
    node.work(BENCH, 60)
    node.work(HOG, 20)
    assert node.read() == Used(foreign=0.2, stolen=0.0)


def test_number_that_is_used_again_is_another_process(node: Node) -> None:
    node.begin(LAUNCH, SERVER, 700)
    node.read()
    node.end(LAUNCH)
    assert node.read() == Used(foreign=0.0, stolen=0.0)
    node.begin(LAUNCH, 1)
    node.work(LAUNCH, 40)
    assert node.read() == Used(foreign=0.4, stolen=0.0)


def test_reading_too_soon_leaves_its_time_to_the_next(node: Node) -> None:
    node.read()
    node.work(HOG, 5)
    assert node.read(0.05) == NOTHING
    node.work(HOG, 45)
    assert node.read(0.95) == Used(foreign=0.5, stolen=0.0)


@pytest.mark.parametrize("text", ["", "cpu  1 2 3\n", "cpu  1 2 x 4 5 6 7 8 9 10\n", "intr 5\n"])
def test_damaged_figures_tell_nothing_and_the_next_ones_begin_anew(node: Node, text: str) -> None:
    node.read()
    node.at += 1.0
    (node.root / "proc/stat").write_text(text)
    assert node.neighbours.read() == NOTHING
    assert node.read() == NOTHING
    node.work(HOG, 50)
    assert node.read() == Used(foreign=0.5, stolen=0.0)


def test_node_that_counts_less_than_we_used_tells_nothing_of_others(node: Node) -> None:
    node.read()
    node.processes[SERVER][1] += 200  # and the node's own count stands still
    assert node.read() == Used(foreign=None, stolen=0.0)


def test_node_whose_time_runs_backwards_tells_nothing(node: Node) -> None:
    node.read()
    node.busy -= 100
    node.stolen -= 5
    assert node.read() == NOTHING


def test_process_that_is_not_there_has_no_neighbours(node: Node) -> None:
    del node.processes[BENCH]
    assert node.read() == NOTHING
    assert node.read() == NOTHING


# ------------------------------------------------------------------ this machine

ROUNDING = 0.15
"""Part of a stretch of time by which the kernel's two counts of it may differ."""
WORKED = 1.5
"""Seconds for which both work at least, on however busy a machine."""
BUSY = "while True: pass"
FAMILY = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}]).wait()"


@pytest.fixture
def started() -> Iterator[dict[str, psutil.Process]]:
    """A process with a busy child, and a hog beside them."""
    begun = {
        name: subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        for name, code in (("family", FAMILY), ("hog", BUSY))
    }
    try:
        yield {name: psutil.Process(process.pid) for name, process in begun.items()}
    finally:
        for process in begun.values():
            for one in [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]:
                one.kill()
            process.wait()


def noted(moments: list[float]) -> float:
    moments.append(time.monotonic())
    return moments[-1]


def seconds_of(*processes: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@pytest.mark.serial
@pytest.mark.slow
def test_hog_beside_the_run_is_seen_and_our_own_work_is_not(
    started: dict[str, psutil.Process],
) -> None:
    """Whatever else this machine does, others used the hog's time, and none of our child's."""
    while not started["family"].children():
        time.sleep(0.01)
    (child,) = started["family"].children()
    moments: list[float] = []
    neighbours = Neighbours(Tree(), started["family"].pid, lambda: noted(moments))
    neighbours.read()
    begin = moments[-1]
    hog_before, child_before = seconds_of(started["hog"]), seconds_of(child)
    hog = ours = 0.0
    while min(hog, ours) < WORKED:
        time.sleep(0.05)
        hog, ours = seconds_of(started["hog"]) - hog_before, seconds_of(child) - child_before
    used = neighbours.read()
    seconds = moments[-1] - begin
    if used.foreign is None or used.stolen is None:
        pytest.skip("this machine does not tell what its processors were used for")
    rounding = ROUNDING * seconds + used.stolen * seconds
    assert used.foreign * seconds > hog - rounding
    assert used.foreign * seconds < seconds * (os.cpu_count() or 1) - ours + rounding
