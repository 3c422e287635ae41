"""Processes of coming launches that begin beside the end of the one before, and wait for it."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.launching import MIB, TESTS, Bench, Seen, assumed_row, bearers, case, plan
from support.overlapping import FILES, GIB, Overlapping, ahead, done, ended, hasty, made, sound

from appliance.errors import EvidenceError, RunInterrupted
from appliance.evidence.budget import BudgetSums
from appliance.evidence.case_results import case_result
from appliance.evidence.journal_index import JournalIndex
from appliance.generator.words import FILE
from appliance.linux.sysfs import Tree
from appliance.planning.criterion_scope import judged_first_steps
from appliance.planning.launch_constants import FIRST_BUILT_ALONE
from appliance.planning.sessions import NO_TIME
from appliance.records.criteria import Criterion
from appliance.records.journal import (
    AheadEnded,
    Checked,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Line,
    Reading,
    Repeated,
    RunResumed,
    StageTimes,
    Started,
)
from appliance.records.plan import Case, Launch, Plan, Schedule
from appliance.records.qualified import ObservedCase
from appliance.records.system import Device, Fact
from appliance.runner import supervisor
from appliance.runner.overlap import Room, may_follow, recorded_bytes
from appliance.storage.criteria_file import load_criteria
from appliance.storage.journal import Clock
from appliance.storage.qualified_file import load_observed
from appliance.verification.run_checks import check_conduct, check_first_steps

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"
DEVICES = ("cpu:0", "cpu:1")
HOUR_NS = 3600 * 10**9
MINUTES = 30
"""Of a run; more than the slowest machine needs for all that is planned."""
WORKLOADS = TESTS.parent / "workloads"


@pytest.fixture(scope="module", autouse=True)
def marked() -> Iterator[None]:
    """Children find the workload, and are found by the mark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not bearers(MARK)


class Healthy(NamedTuple):
    """A run of an untimed launch and three timed ones, and its folder."""

    folder: Path
    bench: Bench


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, marked: None) -> Healthy:
    folder = tmp_path_factory.mktemp("healthy")
    # so long are the checks beside which the next process builds and steps once
    bench = made(folder, plan(hasty(folder, launches=3, seconds=1.0)))
    bench.run()
    return Healthy(folder, bench)


def test_the_next_process_steps_once_beside_the_checks_and_again_when_it_is_alone(
    healthy: Healthy,
) -> None:
    folder, bench = healthy
    sound(bench)
    assert ended(bench) == [("completed", "")] * 4
    # The first timed launch reads what the untimed one reports to its end, and begins alone.
    assert ahead(bench) == [("2", "first_step"), ("3", "first_step")]
    acts = done(folder)
    pids = list(dict.fromkeys(act.pid for act in acts if act.what == "step"))
    for earlier, later in pairwise(pids[1:]):
        last = max(act.end for act in acts if act.pid == earlier)
        build = next(act for act in acts if act.pid == later and act.what == "build")
        first, second, *_ = (act for act in acts if act.pid == later and act.what == "step")
        steps = max(act.end for act in acts if act.pid == earlier and act.what == "step")
        assert steps < build.begin < first.begin < first.end < last < second.begin


def test_nothing_begins_ahead_on_a_device_that_takes_one_process_at_a_time(tmp_path: Path) -> None:
    class Exclusive(Overlapping):
        def probe(self) -> tuple[Device, ...]:
            mode = {"compute_mode": Fact(value="exclusive process", source="NVML")}
            return tuple(replace(one, facts={**one.facts, **mode}) for one in super().probe())

    bench = made(tmp_path, plan(hasty(tmp_path, launches=3)), Exclusive())
    bench.run()
    sound(bench)
    assert ended(bench) == [("completed", "")] * 4
    assert not ahead(bench)


def test_what_was_done_ahead_is_told_and_not_counted_twice(healthy: Healthy) -> None:
    bench = healthy.bench
    told = [bench.of(f"one@cpu:0/{number}", StageTimes)[0] for number in (2, 3)]
    times = told[0]
    assert set(times.ahead_ns) <= {"start", "import", "device", "build", "first_step", "other"}
    assert times.ahead_ns["build"] > 0
    assert times.ahead_ns["first_step"] > 0
    assert times.wall_ns.get("start", 0) == 0
    lines = bench.journal.lines
    sums = BudgetSums()
    for line in lines:
        sums.take(line)
    whole = (lines[-1].monotonic_ns - lines[0].monotonic_ns) * 1e-9
    assert sums.now().whole == pytest.approx(whole)
    beside = sum(sum(one.ahead_ns.values()) for one in told)
    assert sums.now().beside == pytest.approx(beside * 1e-9)


def test_checks_that_come_last_are_of_the_first_output(healthy: Healthy) -> None:
    bench = healthy.bench
    phases = [event.phase for event in bench.of("one@cpu:0/2", Checked)]
    assert phases == ["last", "first"]
    assert all(event.check.is_within for event in bench.events if isinstance(event, Checked))


def test_no_reading_of_a_launch_is_of_the_process_that_waits(healthy: Healthy) -> None:
    """What a device says then would be taken for the launch's own: its memory, its power."""
    kinds = [
        type(event)
        for event in healthy.bench.events
        if isinstance(event, LaunchAhead | LaunchEnded | Reading)
    ]
    place = kinds.index(LaunchAhead)
    assert kinds[place - 1 : place + 2] == [Reading, LaunchAhead, LaunchEnded]


def test_without_room_the_device_alone_is_set_up(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path)))
    bench.vendor.used_bytes = 5 * GIB  # type: ignore[attr-defined]
    bench.run()
    sound(bench)
    assert ahead(bench) == [("2", "device")]
    (times,) = bench.of("one@cpu:0/2", StageTimes)
    assert "build" not in times.ahead_ns
    assert times.wall_ns["build"] > 0


def test_a_build_that_lacked_memory_beside_another_is_made_again_alone(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path, healthy=2, lacks=1)))
    bench.run()
    sound(bench)
    assert ended(bench) == [("completed", "")] * 3
    (times,) = bench.of("one@cpu:0/2", StageTimes)
    assert times.ahead_ns["build"] > 0
    assert times.wall_ns["build"] > 0


@pytest.mark.parametrize("free", [0, None])
def test_a_process_that_waits_is_ended_when_the_host_runs_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    """Else the kernel may end the launch before it, which lacked nothing alone."""
    monkeypatch.setattr(supervisor, "free_host_bytes", lambda _: free)
    bench = made(tmp_path, plan(hasty(tmp_path, seconds=1.0)))
    bench.run()
    sound(bench)
    is_ended = free is not None
    assert ahead(bench) == [("2", "first_step"), *[("2", "out_of_memory")] * is_ended]
    assert ended(bench) == [("completed", "")] * 3
    assert bench.of("one@cpu:0/2", LaunchStarted)[0].is_ahead != is_ended


def test_a_process_that_is_killed_as_it_waits_is_replaced(tmp_path: Path) -> None:
    """Two launches shared the memory: which of them the kernel ended shows nothing."""
    bench = made(tmp_path, plan(hasty(tmp_path, seconds=1.0)))
    killer = threading.Thread(target=kill_at_third_build, args=(tmp_path, 2))
    killer.start()
    bench.run()
    killer.join()
    sound(bench)
    assert ahead(bench) == [("2", "first_step"), ("2", "out_of_memory")]
    assert ended(bench) == [("completed", "")] * 3


def kill_at_third_build(tmp_path: Path, number: int) -> None:
    """Kill the process that made the build of this number, from 0, once there are three."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        built = (
            [act for act in done(tmp_path) if act.what == "build"]
            if (tmp_path / "log").exists()
            else []
        )
        if len(built) == 3:
            os.kill(built[number].pid, signal.SIGKILL)
            return
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("fault", "reason"), [("raise", "RuntimeError"), ("abort", "SIGABRT"), ("hang", "time_limit")]
)
def test_a_build_that_fails_ahead_is_the_result_of_its_launch(
    tmp_path: Path, fault: str, reason: str
) -> None:
    one = hasty(tmp_path, healthy=2, fault=fault)
    # what hangs is waited for so long, and on a loaded machine the others take some seconds
    limited = replace(one, time_limit_seconds=15.0) if fault == "hang" else one
    bench = made(tmp_path, plan(limited))
    bench.run()
    sound(bench)
    assert ahead(bench) == [("2", "first_step")]
    assert ended(bench)[-1] == ("timed_out" if fault == "hang" else "crashed", reason)
    assert bench.of("one@cpu:0/2", LaunchStarted)[0].is_ahead


def test_a_process_that_reports_before_its_launch_begins_is_ended(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path, healthy=2, fault="say_that_it_is_ready")))
    bench.run()
    sound(bench)
    assert ended(bench)[-1] == ("crashed", "protocol")
    assert bench.ended("one@cpu:0/2").detail == "a message before its launch began: ready"


def test_a_launch_that_lacks_memory_beside_a_build_is_interrupted_once(tmp_path: Path) -> None:
    """Two launches shared it; alone the next one has all, and its own lack would be a crash."""
    bench = made(tmp_path, plan(hasty(tmp_path, launches=3, cramped=1), interim_analyses=(3,)))
    bench.run()
    sound(bench)
    assert ahead(bench) == [("2", "first_step"), ("2", "earlier_failed"), ("3", "device")]
    assert ended(bench) == [
        ("completed", ""),
        ("interrupted", "shared_memory"),
        ("completed", ""),
        ("completed", ""),
    ]
    without = [
        replace(line, event=replace(line.event, through="device"))
        if isinstance(line.event, LaunchAhead)
        else line
        for line in bench.journal.lines
    ]
    with pytest.raises(EvidenceError, match="before the interrupted ones are accounted for"):
        check_conduct(bench.plan, without, FILES, is_ended=False)
    again = [
        replace(line, event=replace(line.event, through="first_step"))
        if isinstance(line.event, LaunchAhead)
        else line
        for line in bench.journal.lines
    ]
    with pytest.raises(EvidenceError, match="which had lacked memory so"):
        check_conduct(bench.plan, again, FILES, is_ended=False)


def test_a_lack_of_memory_with_no_build_beside_is_a_crash(tmp_path: Path) -> None:
    bench = made(tmp_path, plan(hasty(tmp_path, launches=1, cramped=1)))
    bench.run()
    sound(bench)
    assert ended(bench) == [("completed", ""), ("crashed", "out_of_memory")]


def test_a_launch_that_is_killed_takes_the_process_that_waits_with_it(tmp_path: Path) -> None:
    """The device may have lost what the waiting process had on it."""
    bench = made(tmp_path, plan(hasty(tmp_path, seconds=1.0)))
    killer = threading.Thread(target=kill_at_third_build, args=(tmp_path, 1))
    killer.start()
    bench.run()
    killer.join()
    sound(bench)
    assert ahead(bench) == [("2", "first_step"), ("2", "earlier_failed")]
    assert ended(bench) == [("completed", ""), ("crashed", "SIGKILL"), ("completed", "")]
    assert not bench.of("one@cpu:0/2", LaunchStarted)[0].is_ahead


def test_a_case_that_is_decided_ends_the_process_that_waits(tmp_path: Path) -> None:
    whole = plan(hasty(tmp_path, launches=3), interim_analyses=(2, 3))
    bench = made(tmp_path, whole, interim_analysis=lambda _: (True, "decided"))
    bench.run()
    sound(bench)
    assert ahead(bench) == [("2", "first_step"), ("3", "first_step"), ("3", "not_wanted")]
    assert ended(bench)[-1] == ("not_run", "decided")


def test_a_run_that_is_interrupted_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    whole = plan(hasty(tmp_path, launches=3, seconds=1.0))
    bench = made(tmp_path, whole)
    stopper = threading.Thread(target=interrupt_with_a_third, args=(tmp_path,))
    stopper.start()
    with pytest.raises(RunInterrupted):
        bench.run()
    stopper.join()
    assert not bearers(MARK)
    assert ahead(bench)[-1][0] == "2"
    bench.journal.append(RunResumed(interruption=1, interrupted=(), dropped="", pid=2))
    bench.run()
    sound(bench)
    assert ended(bench)[-1] == ("completed", "")


def interrupt_with_a_third(tmp_path: Path) -> None:
    """Ask the run to end, as a person does, once the third build was made."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        path = tmp_path / "log"
        if path.exists() and path.read_text().count("build") == 3:
            os.kill(os.getpid(), signal.SIGINT)
            return
        time.sleep(0.01)


def within_minutes(tmp_path: Path) -> Plan:
    """Three timed launches of a row whose step is assumed, in a run within some minutes."""
    assumed = assumed_row("one", seconds=1.0, least=3, launches=3)
    whole = plan(replace(hasty(tmp_path, launches=3), assured=3))
    return replace(whole, schedule=Schedule(minutes=MINUTES, rows=(assumed,)))


@pytest.mark.parametrize("is_late", [True, False])
def test_minutes_that_end_while_a_process_waits_leave_its_launch_no_time(
    tmp_path: Path, *, is_late: bool
) -> None:
    """Time is asked where `verify` asks it: when the launch before has ended, and not sooner."""
    ordered: list[str] = []

    def monotonic_ns() -> int:
        return time.monotonic_ns() + (HOUR_NS if is_late and ordered else 0)

    def note(line: Line) -> None:
        ordered.extend([line.event.launch] if isinstance(line.event, LaunchAhead) else [])

    bench = made(tmp_path, within_minutes(tmp_path), clock=Clock(monotonic_ns=monotonic_ns))
    bench.journal.follow(note)
    bench.run()
    sound(bench)
    if is_late:
        assert ahead(bench) == [("2", "first_step"), ("2", "not_wanted")]
        assert ended(bench)[-2:] == [("not_run", NO_TIME)] * 2
    else:
        assert ahead(bench) == [("2", "first_step"), ("3", "first_step")]
        assert ended(bench) == [("completed", "")] * 4


def test_nothing_begins_ahead_on_a_device_that_others_use(tmp_path: Path) -> None:
    from appliance.vendors.base import DeviceUsers  # noqa: PLC0415

    class Shared(Overlapping):
        def users(self, device: Device) -> DeviceUsers | None:
            del device
            return DeviceUsers(count=2, memory_bytes=None, hint="")

    bench = Bench(tmp_path / "run", plan(hasty(tmp_path)), vendor=Shared())
    bench.run()
    assert not ahead(bench)


def recorded(one: Case) -> ObservedCase:
    """A record of such a case on such a device, which held a GiB."""
    (device, *_) = Overlapping().probe()
    return replace(
        load_observed()[0],
        workload=one.workload,
        version=one.version,
        parameters=one.parameters,
        model=device.model,
        device_memory_bytes=GIB,
    )


def test_a_first_launch_builds_ahead_by_what_is_recorded_of_its_case(tmp_path: Path) -> None:
    first = replace(hasty(tmp_path, launches=1), memory_limit_bytes=GIB)
    second = replace(first, id="two@cpu:0", parameters={**first.parameters, "healthy": 2})
    bench = made(tmp_path, plan(first, second), observed=(recorded(second),))
    bench.run()
    sound(bench)
    assert ended(bench) == [("completed", "")] * 4
    orders = {one.launch: one for one in bench.events if isinstance(one, LaunchAhead)}
    assert orders["two@cpu:0/0"].through == "first_step"
    assert orders["two@cpu:0/0"].recorded_bytes == GIB
    assert orders["one@cpu:0/1"].recorded_bytes is None
    (times,) = bench.of("two@cpu:0/0", StageTimes)
    assert times.ahead_ns["build"] > 0
    unknown = [
        replace(line, event=replace(line.event, recorded_bytes=None))
        if isinstance(line.event, LaunchAhead)
        else line
        for line in bench.journal.lines
    ]
    with pytest.raises(EvidenceError, match="nothing says what its case holds"):
        check_conduct(bench.plan, unknown, FILES, is_ended=False)
    cases = tuple(replace(one, workload="gemm_search") for one in bench.plan.cases)
    with pytest.raises(EvidenceError, match="gemm_search first alone"):
        check_conduct(replace(bench.plan, cases=cases), bench.journal.lines, FILES, is_ended=False)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory, marked: None) -> Bench:
    """A run of two cases with repeats, and of one between them that lacks its software.

    All are made on two devices at once.
    """
    folder = tmp_path_factory.mktemp("repeated")
    one = hasty(folder, seconds=0.1)
    cases = [
        replace(one, id=f"{name}@{device}", device=device, software=software)
        for name, software in (("one", ""), ("lacking", "there is none"), ("two", ""))
        for device in DEVICES
    ]
    places = dict.fromkeys(
        (launch.case.partition("@")[0], launch.id.rpartition("/")[2])
        for launch in plan(*cases, repeats=3).launches
    )
    groups = [tuple(f"{name}@{device}/{n}" for device in DEVICES) for name, n in places]
    bench = made(folder, plan(*cases, repeats=3, groups=groups))
    bench.run()
    return bench


def test_launches_that_need_no_process_are_passed_over(repeated: Bench) -> None:
    sound(repeated)
    orders = {one.launch: one.beside for one in repeated.events if isinstance(one, LaunchAhead)}
    for device in DEVICES:
        for number in (0, 2):
            earlier = {f"one@{other}/{number}" for other in DEVICES}
            assert earlier.issuperset(orders[f"two@{device}/{number}"])
    assert {event.outcome for event in repeated.events if isinstance(event, LaunchEnded)} == {
        "completed",
        "software",
    }
    assert not [one for one in repeated.events if isinstance(one, AheadEnded)]
    assert repeated.ended("lacking@cpu:0/1").outcome == "software"
    able = tuple(replace(one, software="") for one in repeated.plan.cases)
    settled = [
        line
        for line in repeated.journal.lines
        if not isinstance(line.event, LaunchEnded) or line.event.outcome != "software"
    ]
    with pytest.raises(EvidenceError, match=r"two@cpu:./0 is started ahead, and is not made next"):
        check_conduct(replace(repeated.plan, cases=able), settled, FILES, is_ended=False)


def test_a_repeat_steps_and_digests_beside_the_whole_of_the_one_before(repeated: Bench) -> None:
    """Nothing of either is timed, so the order comes as the earlier one begins."""
    events = repeated.events
    names = [one.launch for one in events if isinstance(one, LaunchStarted)]
    repeats = [name for name in names if "/r" in name]
    assert len(repeats) == 12
    orders = {one.launch: place for place, one in enumerate(events) if isinstance(one, LaunchAhead)}
    told = {one.launch: place for place, one in enumerate(events) if isinstance(one, Repeated)}
    by_group = list(zip(names, names[len(DEVICES) :], strict=False))
    followed = [pair for pair in by_group if pair[0] in repeats and pair[1] in orders]
    assert any(later in repeats for _, later in followed)
    assert all(orders[later] < told[earlier] for earlier, later in followed)
    early = [repeated.of(name, StageTimes)[0].ahead_ns for name in repeats if name in orders]
    assert any(stages.get("digest") for stages in early)


def test_a_first_step_that_counts_is_made_alone(tmp_path: Path, healthy: Healthy) -> None:
    whole = healthy.bench.plan
    lines = healthy.bench.journal.lines
    assert [one.is_beside for one in healthy.bench.events if isinstance(one, Started)] == [
        False,
        False,
        True,
        True,
    ]
    index = JournalIndex(whole)
    for line in lines:
        index.take(line)
    index.settle()
    (shown,) = (case_result(one) for one in index.cases.values())
    assert [one.first_step_seconds is None for one in shown.launches if "/0" not in one.launch] == [
        False,
        True,
        True,
    ]
    first = Criterion(id="first", title="", kind="perf", metric="first_step_seconds", at_most=9.0)
    criteria = replace(load_criteria("functional")[0], criterion=(first,))
    with pytest.raises(EvidenceError, match="the time of its first step is judged"):
        check_first_steps(whole, criteria, lines)
    served = tuple(replace(one, scenario="offline") for one in whole.cases)
    with pytest.raises(EvidenceError, match="is stepped ahead, and its first step is timed"):
        check_conduct(replace(whole, cases=served), lines, FILES, is_ended=False)
    again = plan(hasty(tmp_path))
    judged = made(tmp_path, again, judged_first_steps=judged_first_steps(criteria, again.cases))
    judged.run()
    assert ahead(judged) == [("2", "build")]


def test_what_builds_alone_first_is_not_built_by_its_record(tmp_path: Path) -> None:
    one = hasty(tmp_path)
    devices = {device.id: device for device in Overlapping().probe()}
    assert recorded_bytes([one], devices, [recorded(one)]) == {one.id: GIB}
    assert not recorded_bytes([replace(one, version=2)], devices, [recorded(one)])
    searched = replace(one, workload="gemm_search")
    assert not recorded_bytes([searched], devices, [recorded(searched)])


def test_workloads_that_time_calls_in_their_builds_build_alone_first() -> None:
    """By their source: who asks the target's clock, and who writes the file that it reads."""
    asking = {path.stem for path in WORKLOADS.glob("*.py") if "target.seconds" in path.read_text()}
    assert asking
    assert asking | {"disk_read"} == FIRST_BUILT_ALONE


# ------------------------------------------------------------------ what may follow what


def launch(number: int, name: str = "a@cpu:0", **fields: Any) -> Launch:
    return Launch(id=f"{name}/{number}", case=name, number=number, is_timed=number > 0, **fields)


@pytest.mark.parametrize(
    ("later", "earlier", "has_bits", "may"),
    [
        (launch(2), launch(1), False, True),
        (launch(1), launch(0), False, False),
        (launch(1, "b@cpu:0"), launch(0), False, True),
        (launch(-2), launch(-1), False, False),
        (launch(-2), launch(-1), True, True),
        (launch(-1, "b@cpu:0"), launch(-1), False, True),
        (launch(2, wave=1), launch(1), False, False),
        (launch(2, session=2), launch(1), False, False),
    ],
)
def test_a_launch_waits_for_what_the_earlier_one_is_to_report(
    later: Launch, earlier: Launch, *, has_bits: bool, may: bool
) -> None:
    assert may_follow(later, earlier, has_first_bits=has_bits) == may


def test_a_build_needs_room_by_what_its_case_has_held(tmp_path: Path) -> None:
    one, device = hasty(tmp_path), Overlapping().probe()[0]

    def through(room: Room, used: float | None) -> str:
        return room.through(launch(2), one, device, {"memory_used_bytes": used})

    held, unknown = Room(), Room()
    held.held(one.id, {"memory_used_bytes": 3.0 * GIB})
    for room in (held, unknown):
        room.host[one.id] = MIB
    # Checks of the earlier launch may take as much again as it holds: 2 x 2 + 3 of 7.2 GiB.
    assert through(held, 2.0 * GIB) == "first_step"
    assert through(held, 2.2 * GIB) == "device"
    assert through(held, None) == "device"
    assert through(unknown, 1.0 * GIB) == "device"
    # A repeat has only begun, and comes to hold what its case did; what nobody knows, and all else
    # of other devices, is left to its own.
    repeat = launch(-1, one.id)
    for begun, there, expected in (
        (repeat, one, "device"),
        (repeat, replace(one, device="cpu:1"), "first_step"),
        (launch(1, one.id), one, "first_step"),
        (repeat, replace(one, id="unknown@cpu:0"), "device"),
    ):
        values = {"memory_used_bytes": 1.0 * GIB}
        assert held.through(launch(2), one, device, values, [(begun, there)]) == expected
    held.host[one.id] = 2**60
    assert through(held, 1.0 * GIB) == "device"


def test_nothing_begins_on_a_device_that_is_nearly_full(tmp_path: Path) -> None:
    """What is checked there may need what is left, and a process that only waits holds some."""
    one, device = hasty(tmp_path), Overlapping().probe()[0]
    memory = device.memory_bytes or 0
    room = Room(devices={one.id: 0.8 * memory})

    def may(part: float, *beside: Launch) -> bool:
        values = {"memory_used_bytes": part * memory}
        return room.may_begin(one, device, values, [(earlier, one) for earlier in beside])

    assert [may(0.7), may(0.8)] == [True, False]
    # A repeat has only begun, and will hold what its case did.
    assert [may(0.1, launch(1, one.id)), may(0.1, launch(-1, one.id))] == [True, False]
    assert room.may_begin(one, device, {})


def test_a_build_needs_room_within_the_memory_of_the_container(tmp_path: Path) -> None:
    """It sees what the host has free, and its processes are ended at a limit of its own."""
    group = tmp_path / "sys/fs/cgroup/pod"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod\n")
    (group / "memory.max").write_text(f"{8 * MIB}\n")
    (group / "memory.stat").write_text("inactive_file 0\n")
    one, device = hasty(tmp_path), Overlapping().probe()[0]
    room = Room(devices={one.id: MIB}, host={one.id: 2 * MIB}, tree=Tree(tmp_path))

    def through(used_bytes: int) -> str:
        (group / "memory.current").write_text(f"{used_bytes}\n")
        return room.through(launch(2), one, device, {"memory_used_bytes": 0.0})

    assert [through(4 * MIB), through(5 * MIB)] == ["first_step", "device"]
    (group / "memory.current").unlink()
    assert room.through(launch(2), one, device, {"memory_used_bytes": 0.0}) == "device"


READ = {"file_bytes": 2**20, "block_bytes": 4096, "blocks": 32}


def test_a_file_on_a_disk_is_there_for_the_process_that_waits_and_gone_with_its_case(
    tmp_path: Path,
) -> None:
    """Also where the case is decided while a process waits that has the file open."""
    read = case("read", workload="disk_read", parameters=READ, launches=4, checked_launch=1)
    whole = plan(read, replace(hasty(tmp_path), launches=4), interim_analyses=(3, 4))
    bench = made(
        tmp_path, whole, interim_analysis=lambda name: (name.startswith("read"), "decided")
    )
    there: dict[str, int] = {}

    def note(launch: Launch) -> None:
        there[launch.id] = len(list((tmp_path / "work").rglob(FILE)))

    bench.run(Seen(note))
    sound(bench)
    assert {event.outcome for event in bench.of("read@cpu:0/3", LaunchEnded)} == {"completed"}
    assert bench.ended("read@cpu:0/4").reason == "decided"
    ordered = [one.launch for one in bench.events if isinstance(one, LaunchAhead)]
    assert {"read@cpu:0/2", "read@cpu:0/3", "read@cpu:0/4"} <= {*ordered}
    assert ("4", "not_wanted") in ahead(bench)
    assert there == {
        "read@cpu:0/0": 0,
        **{name: 1 for name in there if name not in ("read@cpu:0/0", "one@cpu:0/4")},
        "one@cpu:0/4": 0,
    }
