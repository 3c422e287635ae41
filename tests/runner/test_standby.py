"""Processes that set their devices up two launches ahead, and wait beside what is timed."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from support.builders import a_system
from support.idle_records import idle_neighbour
from support.launching import Bench, bearers, plan
from support.overlapping import GIB, Overlapping, ahead, done, ended, hasty, made, sound

from appliance.errors import EvidenceError, RunInterrupted
from appliance.records.journal import (
    AheadIdle,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Line,
    Reading,
    RunResumed,
    StageTimes,
    Started,
    UsersCounted,
)
from appliance.records.qualified import IdleNeighbour
from appliance.records.system import Device, System
from appliance.runner import users_log
from appliance.runner.overlap import Room
from appliance.scheduling.idle_neighbours import KINDS
from appliance.vendors.base import DeviceUsers
from appliance.verification.launch_checks import check_launches
from appliance.verification.run_checks import check_standbys

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"


class Counting(Overlapping):
    """Its device can be counted on, and shows nobody."""

    used_bytes = 2.0**20

    def users(self, device: Device) -> DeviceUsers | None:
        del device
        return DeviceUsers(count=None, memory_bytes=None, hint="nobody is named")


@pytest.fixture(scope="module", autouse=True)
def marked() -> Iterator[None]:
    """Children find the workload, and are found by the mark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patch.setenv(*MARK.split("="))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not bearers(MARK)


def shown(slower: float = 1.0) -> tuple[IdleNeighbour, ...]:
    """A record by which steps beside a process that waits take so many times as long."""
    return (idle_neighbour("Test", dict.fromkeys(KINDS, slower)),)


class Chain(NamedTuple):
    """A run of an untimed launch and six timed ones, and its folder."""

    folder: Path
    bench: Bench


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, marked: None) -> Chain:
    """One of whose launches three may begin ahead in a row."""
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users_log, "MOST_IN_A_ROW", 3)
        patch.setattr(users_log, "LOOK_NS", 0)
        bench = made(folder, plan(hasty(folder, launches=6)), Counting(), idle=shown())
        bench.run()
    return Chain(folder, bench)


def order(bench: Bench) -> list[str]:
    """What became of the launches of one case, by number, in the journal's order."""
    kinds = {LaunchAhead: "order", AheadIdle: "idle", LaunchStarted: "start", LaunchEnded: "end"}
    return [
        f"{kinds[type(event)]} {event.launch.rpartition('/')[2]}"
        for event in bench.events
        if isinstance(event, LaunchAhead | AheadIdle | LaunchStarted | LaunchEnded)
    ]


def test_a_device_is_set_up_two_launches_ahead_and_nothing_is_done_beside_what_is_timed(
    chain: Chain,
) -> None:
    folder, bench = chain
    sound(bench)
    assert ended(bench) == [("completed", "")] * 7
    assert order(bench) == [
        *("start 0", "end 0", "start 1"),
        *("order 2", "order 3", "end 1", "idle 3", "start 2"),
        *("order 3", "order 4", "end 2", "idle 4", "start 3"),
        # The fifth begins alone, so that nothing waits for it or beside it.
        *("order 4", "end 3", "start 4", "end 4", "start 5"),
        *("order 6", "end 5", "start 6", "end 6"),
    ]
    acts = done(folder)
    pids = list(dict.fromkeys(act.pid for act in acts if act.what == "step"))
    for earlier, later in pairwise(pids[2:5]):
        steps = max(act.end for act in acts if act.pid == earlier and act.what == "step")
        assert all(act.begin > steps for act in acts if act.pid == later)


def test_what_stood_by_tells_its_set_up_and_its_first_step_as_made_ahead(chain: Chain) -> None:
    bench = chain.bench
    for number in (3, 4):
        (times,) = bench.of(f"one@cpu:0/{number}", StageTimes)
        assert {"device", "build", "first_step"} <= set(times.ahead_ns)
        assert "build" not in times.wall_ns
        assert bench.of(f"one@cpu:0/{number}", Started)[0].is_beside
    (late,) = bench.of("one@cpu:0/3", StageTimes)
    forged = [
        replace(line, event=replace(late, ahead_ns={**late.ahead_ns, "device": 10**12}))
        if line.event is late
        else line
        for line in bench.journal.lines
    ]
    with pytest.raises(EvidenceError, match="took longer to set its device up than it had"):
        check_launches(bench.plan, forged)


def test_what_waits_is_named_where_processes_and_memory_are_counted(chain: Chain) -> None:
    """Else it would be taken for somebody else, or its memory for that of the launch."""
    bench = chain.bench
    for number in (1, 2, 3, 4):
        name = f"one@cpu:0/{number}"
        has_waiting = number in (2, 3)
        counted = [one for one in bench.of(name, UsersCounted) if one.moment == "inside"]
        assert counted
        assert {one.num_waiting for one in counted} == {int(has_waiting)}
        memory = {one.values["memory_used_bytes"] for one in bench.of(name, Reading)}
        assert memory == ({None} if has_waiting else {Counting.used_bytes})


def a_node() -> System:
    """The machine of these runs."""
    system = a_system()
    identity = replace(system.identity, devices=Overlapping().probe())
    return replace(system, identity=identity)


def test_only_a_record_of_the_bundle_allows_it(chain: Chain) -> None:
    bench = chain.bench
    check_standbys(bench.plan, a_node(), shown(), bench.journal.lines)
    for records in ((), shown(slower=1.1)):
        with pytest.raises(EvidenceError, match="no qualified record shows that this slows"):
            check_standbys(bench.plan, a_node(), records, bench.journal.lines)


def process_of(launch: str) -> int:
    """The process of a launch, by the name of its output: numbers of processes begin anew."""
    number = launch.rpartition("/")[2]
    (pid,) = (pid for pid in bearers(MARK) if output_of(pid).split(".")[-2:-1] == [number])
    return pid


def output_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/fd/1").readlink().name
    return ""


def at_idle(bench: Bench, act: signal.Signals, pid: int = 0) -> None:
    """Send a signal once the first process stands by: to it, or to another process."""
    sent: list[int] = []

    def note(line: Line) -> None:
        if isinstance(line.event, AheadIdle) and not sent:
            sent.append(pid or process_of(line.event.launch))
            os.kill(sent[0], act)

    bench.journal.follow(note)


def test_a_process_that_is_killed_as_it_stands_by_is_replaced(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path, launches=3)), idle=shown())
    at_idle(bench, signal.SIGKILL)
    bench.run()
    sound(bench)
    assert ahead(bench) == [("2", "first_step"), ("3", "device"), ("3", "out_of_memory")]
    assert ended(bench) == [("completed", "")] * 4


def test_a_run_that_is_interrupted_ends_what_stands_by_and_goes_on(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path, launches=3)), idle=shown())
    at_idle(bench, signal.SIGINT, os.getpid())
    with pytest.raises(RunInterrupted):
        bench.run()
    assert not bearers(MARK)
    assert ahead(bench)[2:] == [("2", "interrupted"), ("3", "interrupted")]
    bench.journal.append(RunResumed(interruption=1, interrupted=(), dropped="", pid=2))
    bench.run()
    sound(bench)


@pytest.mark.parametrize(
    ("fault", "reason", "result"),
    [
        ("lack", "out_of_memory", ("completed", "")),
        ("raise", None, ("crashed", "RuntimeError")),
        ("hang", None, ("timed_out", "time_limit")),
    ],
)
def test_a_set_up_that_fails_is_the_result_of_its_launch_unless_it_shared_memory(
    tmp_path: Path, fault: str, reason: str | None, result: tuple[str, str]
) -> None:
    one = hasty(tmp_path, launches=3, set_up=fault, set_up_at=3)
    # What hangs is waited for so long, and on a loaded machine the others take some seconds.
    limited = replace(one, time_limit_seconds=15.0) if fault == "hang" else one
    bench = made(tmp_path, plan(limited), idle=shown())
    bench.run()
    sound(bench)
    orders = [("2", "first_step"), ("3", "device")]
    assert ahead(bench) == [*orders, ("3", reason or "first_step")]
    assert ended(bench) == [*[("completed", "")] * 3, result]
    assert bench.of("one@cpu:0/3", LaunchStarted)[0].is_ahead == (reason is None)


def test_a_launch_that_lacks_memory_beside_one_that_stood_by_is_interrupted_once(
    tmp_path: Path,
) -> None:
    """On a device that has no room for a build beside another, and nothing waits there again."""
    whole = plan(hasty(tmp_path, launches=5, cramped=2), interim_analyses=(5,))
    bench = made(tmp_path, whole, idle=shown())
    bench.vendor.used_bytes = 2.9 * GIB  # type: ignore[attr-defined]
    bench.run()
    sound(bench)
    assert ahead(bench) == [
        *[("2", "device"), ("3", "device"), ("3", "device"), ("4", "device")],
        *[("3", "earlier_failed"), ("4", "earlier_failed")],
        *[("4", "device"), ("5", "device")],
    ]
    assert [reason for _, reason in ended(bench)] == ["", "", "shared_memory", "", "", ""]
    assert "3 waited beside it" in bench.ended("one@cpu:0/2").detail


@pytest.mark.parametrize("idle", [(), shown()], ids=["alone", "standing by"])
def test_launches_on_several_devices_are_followed_together(
    tmp_path: Path, idle: tuple[IdleNeighbour, ...]
) -> None:
    """One of them has ended long before the other times nothing any more."""
    cases = [
        replace(
            hasty(tmp_path, launches=3, seconds=0.02, step_seconds=seconds),
            id=f"one@{name}",
            device=name,
        )
        for name, seconds in (("cpu:0", 0.0), ("cpu:1", 0.2))
    ]
    groups = [tuple(f"{case.id}/{number}" for case in cases) for number in range(4)]
    bench = made(tmp_path, plan(*cases, groups=groups), Counting(), idle=idle)
    bench.run()
    sound(bench)
    assert ended(bench) == [("completed", "")] * 8
    orders = [one for one in bench.events if isinstance(one, LaunchAhead)]
    assert any(len(one.beside) == 1 for one in orders)
    assert ahead(bench) == [
        *[("2", "first_step")] * 2,
        *[("3", "device")] * (2 if idle else 0),
        *[("3", "first_step")] * 2,
    ]


def test_a_case_that_is_decided_ends_the_process_that_stands_by_for_it(tmp_path: Path) -> None:
    first = hasty(tmp_path, launches=3)
    whole = plan(first, replace(first, id="two@cpu:0"), interim_analyses=(1, 3))
    bench = made(
        tmp_path,
        whole,
        idle=shown(),
        interim_analysis=lambda name: (name.startswith("two"), "decided"),
    )
    bench.run()
    sound(bench)
    orders = [(one.launch, one.idle_beside) for one in bench.events if isinstance(one, LaunchAhead)]
    assert ("two@cpu:0/2", ("one@cpu:0/2",)) in orders
    assert ("2", "not_wanted") in ahead(bench)
    assert ended(bench)[-1] == ("not_run", "decided")


def test_nothing_stands_by_where_the_launch_before_it_has_no_room() -> None:
    """It is there while that one is checked, which may hold twice what its steps did."""
    device = Overlapping().probe()[0]
    one = hasty(Path("/nowhere"))

    def may(used: float, peak: float | None, *cramped: str) -> bool:
        known = {} if peak is None else {one.id: peak * GIB}
        room = Room(devices=known, host={one.id: 2**20}, cramped={*cramped})
        return room.may_stand_by(device, {"memory_used_bytes": used * GIB}, [one])

    assert [may(2.0, 3.0), may(2.0, 3.7), may(3.1, 3.0)] == [True, False, False]
    assert [may(2.0, None), may(2.0, 3.0, one.id)] == [False, False]
