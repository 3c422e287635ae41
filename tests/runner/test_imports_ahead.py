"""Processes of coming fresh repeats import while untimed launches run, and make no other launch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.launchers import a_launcher, a_spec, printed
from support.launching import TESTS, Bench, Seen, bearers, case, plan

from appliance.ipc.channel import Listener
from appliance.planning.plan import fresh_controls
from appliance.records.journal import LaunchStarted
from appliance.records.plan import Case, Launch
from appliance.runner.environment import usable_cores
from appliance.runner.launcher import Launcher

SECONDS = 120.0


@pytest.fixture(autouse=True)
def find_observant_workload(monkeypatch: pytest.MonkeyPatch) -> None:
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


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def begun(work: Path) -> tuple[Launcher, Case, str, int]:
    """A launcher with one process that imports ahead, its case and launch, and its number."""
    one = case("one", workload="faulty.observant")
    launcher = a_launcher(work, [one], "fresh")
    launch = Launch(id=f"{one.id}/0", case=one.id, number=0, is_timed=False)
    launcher.import_ahead(launch, one, work / "stdout", work / "stderr")
    return launcher, one, launch.id, launcher.waiting[launch.id].pid


def command(pid: int) -> bytes:
    """Words of a process; none of one that has ended meanwhile."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_launch_is_made_by_the_process_that_imported_for_it(listener: Listener, work: Path) -> None:
    launcher, one, _, pid = begun(work)
    try:
        # Everything is imported, with the variables of its mode, before there is any launch.
        until(lambda: "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text())
        assert not (work / "stdout").read_text()
        spec = a_spec(launcher, one, listener, "deterministic")
        assert printed(launcher, spec).splitlines()[-1].startswith("deterministic ")
        assert not launcher.waiting
        assert not Path(f"/proc/{pid}").exists()
    finally:
        launcher.close()


def test_process_that_ended_as_it_imported_costs_its_launch_nothing(
    listener: Listener, work: Path
) -> None:
    launcher, one, name, pid = begun(work)
    try:
        os.kill(pid, signal.SIGKILL)
        until(lambda: launcher.waiting[name].status() is not None)
        spec = a_spec(launcher, one, listener, "deterministic")
        assert printed(launcher, spec).splitlines()[-1].startswith("deterministic ")
    finally:
        launcher.close()


def test_processes_without_a_launch_end_with_the_launcher(work: Path) -> None:
    launcher, _, _, pid = begun(work)
    assert Path(f"/proc/{pid}").exists()
    launcher.close()
    assert not Path(f"/proc/{pid}").exists()


def test_fresh_repeats_import_beside_untimed_launches(tmp_path: Path) -> None:
    """At the start of every launch: the processes of other launches that are there already."""
    cases = [
        case(
            f"{number}",
            workload="faulty.flipping",
            is_timed=False,
            launches=0,
            parameters={"counter": str(tmp_path / f"counter-{number}")},
        )
        for number in range(5)
    ]
    whole = plan(*cases, repeats=3)
    beside: dict[str, int] = {}
    bench = Bench(tmp_path / "run", whole)

    def look(launch: Launch) -> None:
        commands = [command(pid) for pid in bearers(str(tmp_path))]
        beside[launch.id] = sum(b"\0launch\0" in words for words in commands)

    bench.run(Seen(look))
    order = [event.launch for event in bench.events if isinstance(event, LaunchStarted)]
    fresh = sorted(fresh_controls(whole.launches))
    assert fresh == ["0@cpu:0/r1", "4@cpu:0/r1"]
    started = [event for event in bench.events if isinstance(event, LaunchStarted)]
    assert sorted(event.launch for event in started if event.mode == "fresh") == fresh
    assert not any(beside[name] for name in order if name.endswith(("/r2", "/r3")))

    assert any(beside.values()) == (usable_cores() > 1)
    assert all(bench.ended(name).outcome == "completed" for name in order)
