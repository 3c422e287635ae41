"""Launches in real child processes: what they say, how they end, and that nothing is left."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.launching import MIB, TESTS, Bench, Seen, bearers, case, plan

from appliance.errors import OutputError, RunInterrupted
from appliance.evidence.journal_index import index_of
from appliance.evidence.run_state import History
from appliance.ipc import processes
from appliance.records.journal import (
    Artifact,
    Block,
    Calibrated,
    Checked,
    Counted,
    Digested,
    Environment,
    Event,
    Float32Products,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    LibrariesHashed,
    LibrariesMapped,
    Line,
    Reading,
    RunResumed,
    ServerProbed,
    StageTimes,
    Started,
    Warmed,
)
from appliance.records.plan import Launch
from appliance.runner import execution, supervisor

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"


@pytest.fixture(scope="module", autouse=True)
def marked() -> Iterator[None]:
    """Children find the misbehaving workloads, and are found by the mark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        yield


def nothing_is_left(seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while bearers(MARK) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not bearers(MARK)


# ------------------------------------------------------------------ forked launches, faults

FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "healthy": ({"seconds": 0.1}, {}, "completed", ""),  # longer than its messages are late
    "abort": ({}, {}, "crashed", "SIGABRT"),
    "segfault": ({}, {}, "crashed", "SIGSEGV"),
    "raise": ({}, {}, "crashed", "RuntimeError"),
    "hang": ({}, {"time_limit_seconds": 12.0}, "timed_out", "time_limit"),
    "eat": ({}, {"memory_limit_bytes": 300 * MIB}, "crashed", "out_of_memory"),
    "refuse_to_allocate": ({}, {}, "crashed", "out_of_memory"),
    "chatter": ({}, {}, "completed", ""),
    "chatter_and_die": ({}, {}, "crashed", "SystemExit"),
    "leave_a_child": ({}, {}, "completed", ""),
    "babble": ({}, {}, "crashed", "protocol"),
    "exit_at_once": ({}, {}, "crashed", "exit"),
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One run of forked launches, each of which goes wrong in its way at its third step."""
    folder = tmp_path_factory.mktemp("faults")
    cases = [
        case(
            name,
            parameters={"fault": "none" if name == "healthy" else name, "at": 2, "num_steps": 0}
            | parameters,
            **fields,
        )
        for name, (parameters, fields, _, _) in FAULTS.items()
    ]
    others = (
        case("nonsense", parameters={"fault": "nonsense"}),
        case("unknown", workload="faulty.nothing"),
        case("needy", workload="faulty.needy"),
        case("impossible", unsupported="it has no tensor cores"),
        case("steps", parameters={"num_steps": 5}, steps=5),
        case("steady", workload="faulty.drifting", is_timed=False, launches=0),
        case(
            "drifting",
            workload="faulty.drifting",
            is_timed=False,
            launches=0,
            parameters={"by": 1.0},
        ),
    )
    bench = Bench(folder / "run", plan(*cases, *others))
    bench.run(Seen(_shout_at_the_socket))
    return bench


def _shout_at_the_socket(launch: Launch) -> None:
    """A intruder who found the socket: rubbish, and a hello without the token."""
    if launch.case.startswith("healthy"):
        (name,) = _own_sockets()
        for line in (
            b"rubbish\n",
            b'{"kind":"hello","launch":"%s","rank":0,"token":"x"}\n',
        ):
            with socket.socket(socket.AF_UNIX) as intruder:
                intruder.connect("\0" + name[1:])
                intruder.sendall(line.replace(b"%s", launch.id.encode()))


def _own_sockets() -> set[str]:
    """Names on which this process listens, and no other run beside it."""
    own = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # a thread that hashes closes its files meanwhile
            own.add(str(path.readlink()))
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    named = [(inode, name) for *_, inode, name in rows if name.startswith("@bench-")]
    return {name for inode, name in named if f"socket:[{inode}]" in own}


def test_disk_that_is_full_under_a_launch_stops_the_run(tmp_path: Path) -> None:
    full = case("full", parameters={"fault": "disk_full", "at": 2, "num_steps": 0})
    bench = Bench(tmp_path / "run", plan(full))
    with pytest.raises(OutputError, match="--resume"):
        bench.run()
    ended = bench.ended("full@cpu:0/1")
    assert (ended.outcome, ended.reason) == ("interrupted", "disk_full")


@pytest.mark.parametrize("name", FAULTS)
def test_launch_ends_as_it_went(faults: Bench, name: str) -> None:
    reference, timed = faults.ended(f"{name}@cpu:0/0"), faults.ended(f"{name}@cpu:0/1")
    assert (reference.outcome, reference.reason) == ("completed", "")
    assert (timed.outcome, timed.reason) == FAULTS[name][2:]
    assert timed.wall_ns > 0


@pytest.mark.parametrize("name", FAULTS)
def test_launch_that_goes_wrong_keeps_what_it_said_before(faults: Bench, name: str) -> None:
    kinds = {type(event) for event in faults.of(f"{name}@cpu:0/1")}
    assert {LaunchStarted, Environment, Started, Checked, Warmed} <= kinds
    assert (Block in kinds) == (FAULTS[name][2] == "completed")


def test_launch_says_what_its_time_went_to(faults: Bench) -> None:
    (reference,) = faults.of("healthy@cpu:0/0", StageTimes)
    (timed,) = faults.of("healthy@cpu:0/1", StageTimes)
    both = {"start", "import", "device", "build", "first_step", "digest", "check", "calibrate"}
    assert set(reference.wall_ns) == both | {"end", "other"}
    assert set(timed.wall_ns) == both | {"warm_up", "wait", "timed", "end", "other"}
    for launch, times in (("healthy@cpu:0/0", reference), ("healthy@cpu:0/1", timed)):
        whole = faults.ended(launch).wall_ns
        assert min(times.wall_ns.values()) >= 0
        # without the end of the process, which takes several times as long on a loaded machine
        assert 0.5 * until_told(faults, launch) < sum(times.wall_ns.values()) <= whole
    blocks = sum(block.block_wall_ns for block in faults.of("healthy@cpu:0/1", Block))
    (warmed,) = faults.of("healthy@cpu:0/1", Warmed)
    assert timed.wall_ns["timed"] >= blocks
    assert timed.wall_ns["warm_up"] >= sum(warmed.wall_ns)


def until_told(bench: Bench, launch: str) -> int:
    """Nanoseconds from the start of a launch until it told what its time went to."""
    moments = {
        type(line.event): line.monotonic_ns
        for line in bench.journal.lines
        if getattr(line.event, "launch", "") == launch
    }
    return moments[StageTimes] - moments[LaunchStarted]


def test_launch_that_was_killed_says_nothing_of_its_time(faults: Bench) -> None:
    assert not faults.of("segfault@cpu:0/1", StageTimes)
    assert faults.of("raise@cpu:0/1", StageTimes)
    parts = index_of(faults.plan, faults.journal.lines).budget.now().seconds
    ended = sum(
        faults.ended(f"{name}@cpu:0/1").wall_ns
        for name in FAULTS
        if not faults.of(f"{name}@cpu:0/1", StageTimes)
    )
    assert parts["not_measured"] * 1e9 >= ended > 0
    lines = faults.journal.lines
    whole = lines[-1].monotonic_ns - lines[0].monotonic_ns
    assert sum(parts.values()) * 1e9 == pytest.approx(whole)


def test_healthy_launch_says_everything_in_order(faults: Bench) -> None:
    reported = faults.of("healthy@cpu:0/1")
    events = [event for event in reported if not isinstance(event, Reading | Counted)]
    expected = [LaunchStarted, Environment, Float32Products, Artifact, Started, Digested]
    expected += [Checked, Checked, Calibrated, Warmed]
    expected += [Block, Block, Checked, Checked, Float32Products, StageTimes, LaunchEnded]
    assert [type(event) for event in events] == expected
    phases = [(event.phase, event.step) for event in events if isinstance(event, Checked)]
    assert phases == [("first", 0)] * 2 + [("last", 7)] * 2  # 1 first, 1 warm-up, 2 blocks of 3
    assert all(event.check.is_within for event in events if isinstance(event, Checked))
    blocks = faults.of("healthy@cpu:0/1", Block)
    assert [(block.index, block.first_step, len(block.wall_ns)) for block in blocks] == [
        (0, 2, 3),
        (1, 5, 3),
    ]
    assert all(sum(block.wall_ns) <= block.block_wall_ns for block in blocks)


def test_untimed_launch_is_not_timed_and_holds_no_two_outputs_to_their_bits(faults: Bench) -> None:
    events = faults.of("healthy@cpu:0/0")
    assert not [event for event in events if isinstance(event, Block | Warmed)]
    phases = {event.phase for event in events if isinstance(event, Checked)}
    assert phases == {"first"}


def test_launches_of_a_case_tell_one_digest_and_the_untimed_one_its_libraries(
    faults: Bench,
) -> None:
    reported = [faults.of(f"healthy@cpu:0/{number}", Digested) for number in (0, 1)]
    assert [len(events) for events in reported] == [1, 1]
    assert reported[0][0].digest == reported[1][0].digest
    (listed,) = faults.of("healthy@cpu:0/0", LibrariesMapped)
    (core,) = [path for path in listed.files if path.endswith("/libtorch_cpu.so")]
    events = [line.event for line in faults.journal.lines]
    digests = [event.digests for event in events if isinstance(event, LibrariesHashed)]
    with Path(core).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert [one[listed.files[core]] for one in digests if listed.files[core] in one] == [digest]
    assert not faults.of("healthy@cpu:0/1", LibrariesMapped)


def test_artifact_is_made_once_and_known_by_its_digest(faults: Bench) -> None:
    (made,) = faults.of("healthy@cpu:0/0", Artifact)
    (used,) = faults.of("healthy@cpu:0/1", Artifact)
    assert made.is_made
    assert not used.is_made
    assert made.sha256 == used.sha256


def test_exact_number_of_steps_is_one_block_that_begins_with_the_first(faults: Bench) -> None:
    (block,) = faults.of("steps@cpu:0/1", Block)
    (started,) = faults.of("steps@cpu:0/1", Started)
    assert (block.first_step, len(block.wall_ns)) == (0, 5)
    assert block.wall_ns[0] == started.first_step_ns
    phases = [(event.phase, event.step) for event in faults.of("steps@cpu:0/1", Checked)]
    assert phases == [("first", 0)] * 2 + [("last", 4)] * 2
    assert not faults.of("steps@cpu:0/1", Warmed)


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("nonsense", "not_run", "bad_parameters"),
        ("unknown", "software", "not_installed"),
        ("needy", "unsupported", "missing_feature"),
    ],
)
def test_what_cannot_run_is_not_a_crash_and_its_timed_launch_is_not_made(
    faults: Bench, name: str, outcome: str, reason: str
) -> None:
    reference, timed = faults.ended(f"{name}@cpu:0/0"), faults.ended(f"{name}@cpu:0/1")
    assert (reference.outcome, reference.reason) == (outcome, reason)
    assert (timed.outcome, timed.reason) == ("not_run", "reference_failed")
    assert not faults.of(f"{name}@cpu:0/1", LaunchStarted)


def test_unsupported_case_is_written_off_without_a_process(faults: Bench) -> None:
    for number in (0, 1):
        (event,) = faults.of(f"impossible@cpu:0/{number}")
        assert (event.outcome, event.reason) == ("unsupported", "it has no tensor cores")


def test_launches_were_forked_from_healthy_servers(faults: Bench) -> None:
    probed = [event for event in faults.events if isinstance(event, ServerProbed)]
    assert {(event.is_healthy, event.reason) for event in probed} == {(True, "")}
    modes = {event.mode for event in faults.events if isinstance(event, LaunchStarted)}
    assert modes == {"forked"}


def test_logs_are_kept_of_launches_that_did_not_complete_and_are_bounded(faults: Bench) -> None:
    logs = {path.name: path for path in (faults.folder / "logs").iterdir()}
    assert "healthy-cpu-0.1.stdout" not in logs
    assert "leave_a_child-cpu-0.1.stderr" not in logs
    assert "RuntimeError: the device said no" in logs["raise-cpu-0.1.stderr"].read_text()
    assert "Segmentation fault" in logs["segfault-cpu-0.1.stderr"].read_text()
    long = logs["chatter_and_die-cpu-0.1.stdout"].read_bytes()
    assert b"[... 2097152 bytes were cut here ...]" in long
    assert len(long) < 1.01 * MIB


def test_telemetry_is_read_while_a_launch_runs(faults: Bench) -> None:
    readings = faults.of("hang@cpu:0/1", Reading)
    seconds = faults.ended("hang@cpu:0/1").wall_ns * 1e-9
    assert (
        3 <= len(readings) <= seconds / supervisor.TELEMETRY_SECONDS + 2
    )  # the first, and at its end
    assert readings[0].values == {"temperature_celsius": 40.0, "power_watts": None}


def test_memory_of_a_launch_is_its_own_and_not_its_servers(faults: Bench) -> None:
    healthy = faults.ended("healthy@cpu:0/1").peak_memory_bytes
    eating = faults.ended("eat@cpu:0/1").peak_memory_bytes
    assert healthy is not None
    assert eating is not None
    assert 0 <= healthy < 200 * MIB < eating


def test_no_process_is_left_after_a_run(faults: Bench) -> None:
    pid = int((faults.folder.parent / "work" / "artifacts" / "grandchild").read_text())
    assert not processes.carries(pid, *MARK.split("="))
    assert bearers(MARK) == []


def test_environment_of_a_launch_names_its_device_and_threads(faults: Bench) -> None:
    (environment,) = faults.of("healthy@cpu:0/1", Environment)
    assert environment.facts["threads"].value == 1


# ------------------------------------------------------------------ fresh launches


def test_fresh_launches_work_and_a_failed_reference_stops_its_case(tmp_path: Path) -> None:
    cases = (case("good"), case("bad", parameters={"fault": "abort"}))
    bench = Bench(tmp_path / "run", plan(*cases, mode="fresh"))
    bench.run()
    assert bench.ended("good@cpu:0/1").outcome == "completed"
    assert bench.ended("bad@cpu:0/0").reason == "SIGABRT"
    assert bench.ended("bad@cpu:0/1").reason == "reference_failed"
    assert {event.mode for event in bench.events if isinstance(event, LaunchStarted)} == {"fresh"}
    assert not [event for event in bench.events if isinstance(event, ServerProbed)]
    assert bearers(MARK) == []


def test_unhealthy_server_gives_way_to_fresh_launches(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", plan(case("any", workload="faulty.unforkable", launches=0)))
    bench.run()
    (probed,) = [event for event in bench.events if isinstance(event, ServerProbed)]
    assert (probed.is_healthy, probed.reason) == (False, "the probe fork ended with 5")
    assert [event.mode for event in bench.of("any@cpu:0/0", LaunchStarted)] == ["fresh"]
    assert bench.ended("any@cpu:0/0").outcome == "completed"


# ------------------------------------------------------------------ groups


@pytest.mark.serial
def test_group_starts_together_and_a_hanging_neighbour_does_not_time_out_others(
    tmp_path: Path,
) -> None:
    told = {"fault": "tell_who_is_beside"}
    quick = case("quick", parameters=told)
    slow = case("slow", device="cpu:1", parameters={"seconds": 0.3, **told})
    waiting = case("waiting", time_limit_seconds=5.0)
    hanging = case("hanging", device="cpu:1", time_limit_seconds=10.0, parameters={"at": 1})
    hanging_parameters = {"fault": "hang", "at": 1}
    cases = (quick, slow, waiting, _with(hanging, hanging_parameters))
    groups = [
        ("quick@cpu:0/0", "slow@cpu:1/0"),
        ("waiting@cpu:0/0", "hanging@cpu:1/0"),
        ("quick@cpu:0/1", "slow@cpu:1/1"),
        ("waiting@cpu:0/1", "hanging@cpu:1/1"),
    ]
    bench = Bench(tmp_path / "run", plan(*cases, groups=groups))
    bench.run()
    order = [(type(event), event.launch) for event in bench.events if hasattr(event, "launch")]
    assert order.index((Warmed, "slow@cpu:1/1")) < order.index((Block, "quick@cpu:0/1"))
    assert bench.ended("hanging@cpu:1/1").outcome == "timed_out"
    waited = bench.ended("waiting@cpu:0/1")
    assert waited.outcome == "completed"
    assert waited.wall_ns > 5e9  # it waited longer than its own limit
    first, second = (
        next(tmp_path.rglob(f"beside-{number}")).read_text().split() for number in (0, 1)
    )
    assert first == second
    assert first[0] == "cpu:0,cpu:1"
    assert not Path(first[1]).exists()


def _with(item: Any, parameters: dict[str, Any]) -> Any:
    return case(
        item.id.partition("@")[0],
        device=item.device,
        time_limit_seconds=item.time_limit_seconds,
        parameters=parameters,
    )


# ------------------------------------------------------------------ interim analyses


def test_decided_case_is_not_launched_again_and_interim_analyses_are_made_once(
    tmp_path: Path,
) -> None:
    requested: list[tuple[str, int]] = []

    def interim_analysis(name: str) -> tuple[bool, str]:
        requested.append((name, sum(isinstance(event, Block) for event in bench.events)))
        return True, "decided: enough"

    bench = Bench(
        tmp_path / "run", plan(case("one", launches=3), interim_analyses=(1, 3)), interim_analysis
    )
    seen = Seen()
    bench.run(seen)
    assert requested == [("one@cpu:0", 2)]
    assert [e.launches for e in bench.events if isinstance(e, InterimAnalysis)] == [1]
    for number in (2, 3):
        ended = bench.ended(f"one@cpu:0/{number}")
        assert (ended.outcome, ended.reason) == ("not_run", "decided")
    assert len(seen.ended) == 4
    again = Seen()
    bench.run(again)
    assert (again.num_done, again.ended, len(requested)) == (4, [], 1)


def test_interim_analyses_wait_until_every_case_has_its_launch(tmp_path: Path) -> None:
    """The speed of one case may be held against that of another, which is launched after it."""
    requested: list[tuple[str, int]] = []

    def interim_analysis(name: str) -> tuple[bool, str]:
        requested.append((name, sum(isinstance(event, LaunchEnded) for event in bench.events)))
        return False, "open"

    cases = [case(name, launches=2) for name in ("one", "two")]
    bench = Bench(tmp_path / "run", plan(*cases, interim_analyses=(1, 2)), interim_analysis)
    bench.run()
    assert requested == [("one@cpu:0", 4), ("two@cpu:0", 4), ("one@cpu:0", 6), ("two@cpu:0", 6)]


# ------------------------------------------------------------------ interruption and resumption


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as a terminal leaves it; a shell starts a job in the background with it ignored.

    A SIGTERM that nobody waits for any more does not end the tests.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminated = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGTERM, terminated)


@pytest.mark.usefixtures("interruptible")
def test_signal_ends_the_launch_and_the_run_goes_on_later(tmp_path: Path) -> None:
    def strike(launch: Launch) -> None:
        if launch.id == "one@cpu:0/1":
            os.kill(os.getpid(), signal.SIGINT)

    one = case("one", launches=3, checked_launch=1, parameters={"seconds": 0.05})
    bench = Bench(tmp_path / "run", plan(one, interim_analyses=(3,)))
    with pytest.raises(RunInterrupted, match=r"bench accept --resume .*run"):
        bench.run(Seen(strike))
    assert bench.ended("one@cpu:0/1").outcome == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert bearers(MARK) == []

    bench.run()
    assert len(bench.of("one@cpu:0/1", LaunchStarted)) == 1  # it is not drawn again
    last = [e.launch for e in bench.events if isinstance(e, Checked) and e.phase == "last"]
    assert set(last) == {"one@cpu:0/2"}  # which took the check over
    assert [e.launches for e in bench.events if isinstance(e, InterimAnalysis)] == [3]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("mode", "number", "seconds"),
    [("forked", "SIGINT", 0.0), ("forked", "SIGTERM", 0.0), ("fresh", "SIGTERM", 0.3)],
)
def test_signal_to_every_process_of_a_job_is_no_crash_of_its_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, number: str, seconds: float
) -> None:
    """As Slurm ends a job: the launch gets it too, and the runner perhaps `seconds` later."""
    # on a loaded machine the thread below has no processor for a while
    monkeypatch.setattr(supervisor, "SAME_SIGNAL_SECONDS", 60.0)
    fault = {"fault": "leave_a_child_and_hang", "at": 2}
    one = case("one", parameters=fault, launches=1, checked_launch=1)
    bench = Bench(tmp_path / "run", plan(one, mode=mode, interim_analyses=(1,)))

    def strike() -> None:
        while not (tmp_path / "work" / "artifacts" / "grandchild").exists():
            time.sleep(0.05)
        for pid in bearers(MARK):
            with suppress(ProcessLookupError):  # one ends with another that has got it
                os.kill(pid, signal.Signals[number])
        time.sleep(seconds)
        os.kill(os.getpid(), signal.Signals[number])

    striker = threading.Thread(target=strike, daemon=True)
    striker.start()
    with pytest.raises(RunInterrupted, match=number):
        bench.run()
    striker.join()
    ended = bench.ended("one@cpu:0/1")
    assert ended.outcome == "interrupted"
    assert ended.reason in {number, "server_lost"}
    assert bearers(MARK) == []


SCRIPT = """
import sys
from pathlib import Path
from support.launching import Bench, case, plan

fault = {"fault": "leave_a_child_and_hang", "at": 2}
one = case("one", parameters=fault, launches=2, checked_launch=1)
Bench(Path(sys.argv[1]), plan(one, mode=sys.argv[2], interim_analyses=(2,))).run()
"""


@pytest.mark.parametrize("mode", ["forked", "fresh"])
def test_killed_parent_leaves_no_child_and_its_launch_is_not_made_again(
    tmp_path: Path, mode: Any
) -> None:
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), mode],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{root}"},
    )
    grandchild = tmp_path / "work" / "artifacts" / "grandchild"
    while not grandchild.exists():
        assert parent.poll() is None
        time.sleep(0.05)
    assert len(bearers(MARK)) >= 3  # the parent, its child, and the child's own
    parent.kill()
    parent.wait()
    assert nothing_is_left()

    if mode == "fresh":
        return
    faulty = {"fault": "leave_a_child_and_hang", "at": 2}
    one = case("one", parameters=faulty, launches=2, checked_launch=1)
    bench = Bench(tmp_path / "run", plan(one, mode=mode, interim_analyses=(2,)))
    resumed = RunResumed(interruption=1, interrupted=("one@cpu:0/1",), dropped="", pid=1)
    bench.journal.append(resumed)
    healthy = case("one", launches=2, checked_launch=1)  # so that what is left can complete
    bench.plan = plan(healthy, mode=mode, interim_analyses=(2,))
    bench.run()
    assert len(bench.of("one@cpu:0/1", LaunchStarted)) == 1
    assert bench.of("one@cpu:0/1", Warmed)
    assert bench.ended("one@cpu:0/2").outcome == "completed"
    assert (tmp_path / "run" / "logs" / "one-cpu-0.1.stderr").exists()


def test_full_disk_is_said_in_a_sentence_and_no_child_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "run", plan(case("one"), mode="fresh"))
    append = bench.journal.append

    def full(event: Event, *, sync: bool = False) -> Line:
        if isinstance(event, Environment):
            raise OSError(errno.ENOSPC, "No space left on device", "journal.jsonl")
        return append(event, sync=sync)

    monkeypatch.setattr(bench.journal, "append", full)
    with pytest.raises(OutputError, match=r"make room .* `bench accept --resume .*run`"):
        bench.run()
    assert bearers(MARK) == []


# ------------------------------------------------------------------ without a process


def test_untimed_launch_is_made_again_after_an_interruption_and_a_timed_one_never() -> None:
    planned = plan(case("one", launches=1))
    untimed, timed = planned.launches
    past = History(planned, ())
    for launch in (untimed, timed):
        past.take(LaunchStarted(launch=launch.id, mode="fresh"))
    assert not past.is_settled(untimed)
    assert past.is_settled(timed)
    assert past.incomplete() == (untimed.id, timed.id)
    for outcome, is_settled in (("interrupted", False), ("crashed", True)):
        past.take(
            LaunchEnded(
                launch=untimed.id,
                outcome=outcome,  # type: ignore[arg-type]
                reason="",
                detail="",
                exit_code=None,
                wall_ns=0,
                peak_memory_bytes=None,
            )
        )
        assert past.is_settled(untimed) is is_settled


def test_names_of_files_have_no_sign_that_a_path_or_a_shell_reads() -> None:
    assert execution.file_name("resnet50@cpu:0/3") == "resnet50-cpu-0.3"
