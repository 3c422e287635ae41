"""Fork servers: one for each framework and library mode, healthy or with the reason why not."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty.vendor import Vendor
from support.builders import ended
from support.launchers import LONG, a_launcher, a_spec, printed
from support.launching import TESTS, Bench, Seen, case, plan

from appliance.cli.progress import outcome_words, server_sentence
from appliance.ipc import probe_fork, processes
from appliance.ipc.channel import Listener
from appliance.ipc.messages import ServeRequest
from appliance.linux import libraries
from appliance.planning import workload_manifest
from appliance.records.journal import (
    LaunchStarted,
    LibrariesHashed,
    LibrariesMapped,
    ServerProbed,
)
from appliance.records.plan import Launch
from appliance.records.suite import Framework, LaunchMode, LibraryMode
from appliance.runner import head_start
from appliance.runner.children import ForkServer, Health, ServerProcess
from appliance.runner.environment import child_environment
from appliance.runner.head_start import HeadStart
from appliance.runner.servers import ServerKey
from appliance.vendors import determinism
from appliance.verbs import run_begin
from appliance.verbs.run_options import RunOptions


@pytest.fixture(autouse=True)
def find_faulty_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


# ------------------------------------------------------------------ the library mode


def test_libraries_of_a_server_are_hashed_before_anything_is_timed(work: Path) -> None:
    one = case("one")
    launcher = a_launcher(work, [one], "forked")
    torch_library = next(Path(torch.__path__[0]).glob("lib/libtorch_cpu*"))
    known = libraries.identity(torch_library)
    assert known is not None
    try:
        launcher.prepare([(one, "default")])
        launcher.hashes.wait(lambda: "")
        # What no launch has mapped is no event; what one did is known at once.
        assert launcher.hashes.finished() is None
        files = {str(torch_library): known}
        launcher.hashes.take(LibrariesMapped(launch="one/0", rank=0, files=files))
        hashed = launcher.hashes.finished()
        digest = hashlib.sha256(torch_library.read_bytes()).hexdigest()
        assert hashed == LibrariesHashed(digests={known: digest})
        launcher.hashes.take(hashed)
        assert launcher.hashes.finished() is None
    finally:
        launcher.close()


def test_case_whose_forks_were_shown_to_differ_has_no_server(work: Path) -> None:
    one = replace(case("one"), fresh_because="forked launches differ")
    launcher = a_launcher(work, [one], "forked")
    try:
        assert launcher.prepare([(one, "default"), (one, "deterministic")]) == []
    finally:
        launcher.close()


@pytest.mark.parametrize(("plan_mode", "framework"), [("forked", "torch"), ("fresh", None)])
def test_variables_of_a_library_mode_are_there_before_the_import(
    plan_mode: LaunchMode,
    framework: str | None,
    listener: Listener,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--of_the_user")
    one = case("one", workload="faulty.observant")
    launcher = a_launcher(work, [one], plan_mode)
    modes: tuple[LibraryMode, ...] = ("default", "deterministic")
    try:
        launcher.prepare((one, mode) for mode in modes)
        specs = [a_spec(launcher, one, listener, mode) for mode in modes]
        assert [launcher.forked_by(spec) for spec in specs] == [framework] * 2
        lines = [printed(launcher, spec).splitlines() for spec in specs]
        assert [line[-1] for line in lines] == [
            "default --of_the_user",
            "deterministic --of_the_user --xla_gpu_deterministic_ops=true",
        ]
        # Of what was imported a collection visits nothing: in forks and in fresh processes alike.
        assert all(int(line[-2]) > 0 for line in lines)
    finally:
        launcher.close()


def test_server_is_started_when_a_launch_needs_it_and_not_before(work: Path) -> None:
    one = case("one")
    launcher = a_launcher(work, [one, case("other", needs=("jax",))])
    try:
        (probed,) = launcher.prepare([(one, "deterministic"), (one, "deterministic")])
        assert (probed.device, probed.framework, probed.library_mode, probed.is_healthy) == (
            *("cpu:0", "torch", "deterministic"),
            True,
        )
        assert launcher.prepare([(one, "deterministic")]) == []
        key = ServerKey(device="cpu:0", framework="torch", library_mode="default")
        assert launcher.servers.get(key) == "no launch has asked for it yet"
    finally:
        launcher.close()


# ------------------------------------------------------------------ the first launch


def test_first_server_imports_what_its_launches_need_and_the_rest_before_the_next(
    work: Path,
) -> None:
    """What may not be forked after the second import is seen before anything is forked."""
    first, threaded = case("first"), case("threaded", workload="faulty.threaded")
    launcher = a_launcher(work, [first, threaded])
    key = ServerKey(device="cpu:0", framework="torch", library_mode="default")
    try:
        (probed,) = launcher.prepare([(first, "default")], is_first=True)
        assert probed.is_healthy
        assert launcher.prepare([(first, "default")]) == []
        again, next_one = launcher.prepare([(threaded, "default")])
        assert (again.is_healthy, again.framework) == (False, "torch")
        assert again.reason.endswith("started by importing faulty.threaded")
        assert again.without == ("faulty.threaded",)
        assert (next_one.is_healthy, next_one.without) == (True, ())
        assert isinstance(launcher.servers.get(key), ForkServer)
        can_fork = [launcher.can_fork(one, "default") for one in (first, threaded)]
        assert can_fork == [True, False]
        assert launcher.prepare([(first, "default"), (threaded, "default")]) == []
    finally:
        launcher.close()


@pytest.mark.parametrize(("num_threads", "is_taken"), [(1, True), (8, False)])
def test_head_start_is_taken_by_a_server_of_its_very_environment_alone(
    num_threads: int,
    is_taken: bool,  # noqa: FBT001 - a parameter of the test
    listener: Listener,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head_start, "usable_cores", lambda: num_threads)
    ahead = HeadStart("run-1")
    ahead.begin(Vendor(), work)
    (waiting,) = servers_of(os.getpid())
    one = case("one")
    launcher = a_launcher(work, [one])
    launcher.token, launcher.ahead = ahead.token, ahead
    try:
        (probed,) = launcher.prepare([(one, "default")], is_first=True)
        assert probed.is_healthy
        assert waiting in servers_of(os.getpid())
        assert len(servers_of(os.getpid())) == (1 if is_taken else 2)
        assert launcher.forked_by(a_spec(launcher, one, listener, "default")) == "torch"
        ahead.close()
        assert (waiting in servers_of(os.getpid())) == is_taken
    finally:
        launcher.close()
        ahead.close()
    assert servers_of(os.getpid()) == set()


def servers_of(parent: int) -> set[int]:
    """Servers that a process has started; one that has just become a program has no words yet."""
    table = processes.table()
    found = {pid for pid, one in table.items() if one.parent == parent and one.is_alive}
    return {pid for pid in found if b"\0serve\0" in words_of(pid)}


def words_of(pid: int, seconds: float = 60.0) -> bytes:
    """None of a process that has ended meanwhile."""
    deadline, words = time.monotonic() + seconds, b""
    with suppress(OSError):
        while not (words := Path(f"/proc/{pid}/cmdline").read_bytes()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
    return words


def test_head_start_leaves_nothing_of_a_run_that_is_refused(tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path / "out", vendor="cpu")
    with run_begin.head_start(options) as ahead:
        assert (options.out / ".work" / ahead.run_id).is_dir()
        assert len(servers_of(os.getpid())) == 1
    assert list(options.out.iterdir()) == []
    assert servers_of(os.getpid()) == set()


@pytest.mark.parametrize(
    "changes", [{"suite": "no-such"}, {"vendor": "no-such"}, {"resume": Path()}]
)
def test_head_start_leaves_wrong_options_to_the_run(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    options = RunOptions(**{"out": tmp_path / "out", "vendor": "cpu", **changes})
    with run_begin.head_start(options):
        assert servers_of(os.getpid()) == set()
        assert not options.out.exists()


# ------------------------------------------------------------------ servers that are not used


def probes(bench: Bench) -> dict[str, ServerProbed]:
    """What the journal has of each framework's server."""
    return {event.framework: event for event in bench.events if isinstance(event, ServerProbed)}


def modes(bench: Bench, name: str) -> list[LaunchMode]:
    return [
        event.mode
        for event in bench.events
        if isinstance(event, LaunchStarted) and event.launch.startswith(f"{name}@")
    ]


def test_thread_of_an_import_is_named_and_all_others_are_forked(tmp_path: Path) -> None:
    """The thread would be missing in a fork; a server that does not import it never has it."""
    cases = (
        case("threaded", workload="faulty.threaded"),
        case("beside"),
        case("other", workload="faulty.observant", needs=("jax",)),
    )
    bench, seen = Bench(tmp_path / "run", plan(*cases)), Seen()
    bench.run(seen)
    reason = 'a fork would be without thread "keeper" started by importing faulty.threaded'
    result = [event for event in bench.events if isinstance(event, ServerProbed)]
    assert sorted((one.framework, one.is_healthy, one.reason) for one in result) == [
        ("jax", True, ""),
        ("torch", False, reason),
        ("torch", True, ""),
    ]
    assert modes(bench, "threaded") == ["fresh", "fresh"]
    assert modes(bench, "beside") == modes(bench, "other") == ["forked", "forked"]
    ends = {bench.ended(launch.id).outcome for launch in bench.plan.launches}
    assert ends == {"completed"}
    assert [server_sentence(one) for one in seen.probed if not one.is_healthy] == [
        "cpu:0: launches of faulty.threaded by torch are fresh processes, which import anew each "
        "time: " + reason
    ]


def test_sentence_of_a_server_for_jobs_says_how_many_ranks_they_have() -> None:
    event = ServerProbed(
        device="cuda:0+cuda:1",
        ranks=2,
        framework="torch",
        library_mode="deterministic",
        is_healthy=False,
        seconds=1.0,
        reason="no answer",
    )
    assert server_sentence(event) == (
        "cuda:0+cuda:1: launches of 2 ranks by torch, deterministic are fresh processes, which "
        "import anew each time: no answer"
    )


@pytest.mark.parametrize(
    ("workload", "reason", "last_words"),
    [
        ("unforkable", "the probe fork ended with 5", ""),
        ("hanging_in_forks", "the probe fork did not end within 2 s", "that_nobody_frees"),
        (
            "refusing_in_forks",
            "the probe fork ended with 1",
            "RuntimeError: cannot start the device again in a forked process",
        ),
        ("mortal", "the fork server ended with SIGABRT", "the library aborts"),
    ],
)
def test_reason_and_last_words_of_an_unhealthy_server_are_recorded(
    workload: str,
    reason: str,
    last_words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if workload == "hanging_in_forks":
        monkeypatch.setattr(probe_fork, "PROBE_SECONDS", 2.0)
    bench = Bench(tmp_path / "run", plan(case("any", workload=f"faulty.{workload}", launches=0)))
    bench.run()
    probed = probes(bench)["torch"]
    assert (probed.is_healthy, probed.reason) == (False, reason)
    assert last_words in probed.last_words
    assert modes(bench, "any") == ["fresh"]
    assert bench.ended("any@cpu:0/0").outcome == "completed"


def test_one_new_server_takes_the_place_of_one_that_died_between_two_launches(
    tmp_path: Path,
) -> None:
    """A server that somebody ends is no result of the device; the second time all are fresh."""
    servers: list[int] = []

    def end_the_server(launch: Launch) -> None:
        if launch.number == 1 and not launch.case.startswith("three@"):
            os.kill(servers[-1], signal.SIGKILL)

    class Noting(Seen):
        def server_probed(self, event: ServerProbed) -> None:
            super().server_probed(event)
            servers.extend(
                pid
                for pid, entry in processes.table().items()
                if entry.parent == os.getpid() and b"\0serve\0" in words_of(pid, seconds=0.0)
            )

    bench = Bench(tmp_path / "run", plan(case("one"), case("two"), case("three")))
    bench.run(Noting(end_the_server))
    for name in ("one", "two"):
        lost = bench.ended(f"{name}@cpu:0/1")
        assert (lost.outcome, lost.reason) == ("interrupted", "server_lost")
        assert lost.detail == "the fork server ended with SIGKILL"
    assert modes(bench, "two") == ["forked", "forked"]
    assert modes(bench, "three") == ["forked", "fresh"]
    assert bench.ended("three@cpu:0/1").outcome == "completed"
    assert [one.is_healthy for one in bench.events if isinstance(one, ServerProbed)] == [True, True]
    assert len(set(servers)) == 2


def test_a_server_that_is_not_lost_stays_whatever_is_said_of_another(work: Path) -> None:
    """As of a process that the one before it had forked, and that was not asked since."""
    one = case("one")
    launcher = a_launcher(work, [one], "forked")
    try:
        launcher.prepare([(one, "default")])
        launcher.lose_server(one, "default", "the server before it ended")
        assert launcher.can_fork(one, "default")
    finally:
        launcher.close()


@pytest.mark.parametrize(
    ("framework", "library_mode"),
    [("torch", {}), ("jax", {}), ("onnx", {}), ("jax", determinism.XLA)],
)
def test_server_with_every_shipped_workload_of_a_framework_is_healthy(
    framework: Framework, library_mode: Mapping[str, str], work: Path
) -> None:
    """What a library starts when it is imported changes with its version, and shows here.

    A flag that XLA does not know ends the process.
    """
    facts = workload_manifest.load()
    cases = [case(name, workload=name) for name in facts]
    frameworks = workload_manifest.frameworks(cases)
    names = tuple(one.workload for one in cases if frameworks[one.id] == framework)
    assert names
    environment = child_environment(
        inherited=os.environ,
        work=work,
        num_threads=2,
        vendor={},
        tokens={},
        library_mode=library_mode,
    )
    request = ServeRequest(
        workloads=names,
        vendor="cpu",
        framework=framework,
        ranks=2 if framework == "torch" else 1,  # so torchrun is imported as well
        probe_seconds=LONG,
    )
    server = ForkServer(request, ServerProcess(environment, work / "stderr"))
    try:
        assert server.health(lambda: "") == Health()
    finally:
        server.close()


def test_launch_that_ends_with_its_server_says_how_others_are_made() -> None:
    """They take seconds longer from then on, which would be a riddle without a word of it."""
    lost = replace(ended("gemm@cpu:0/1", "interrupted", "server_lost"), detail="it ended")
    assert outcome_words(lost) == (
        "interrupted (server_lost: it ended); what it was to fork comes of a new server, or of "
        "fresh processes where its framework had lost one before"
    )
    assert outcome_words(ended("gemm@cpu:0/1")) == "completed"
