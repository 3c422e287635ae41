"""What a run is at is said by its unfinished journal, as it grows, and by nothing made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.builders import PROTOCOL, a_case, a_plan, checked, ended, healthy_events, launch_events
from support.long_burn_in import covered

from appliance.errors import BenchError, EvidenceError, UsageError
from appliance.records.journal import Block, Event, LaunchStarted, Reading, RunEnded, RunResumed
from appliance.records.json import sha256, to_json
from appliance.records.plan import Plan
from appliance.storage.journal import Clock, Journal
from appliance.stress.aggregates import Aggregate, Span
from appliance.watching import words
from appliance.watching.follower import Follower
from appliance.watching.status import Status, Tracker
from workloads.parts.stress.stressors import checks_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RESUME = "bench accept --resume out/run"


class Run:
    """A folder with a plan and an open journal, on a clock that moves a second a line."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan, self.seconds = folder, plan, 0
        folder.mkdir(parents=True)
        data = to_json(plan)
        (folder / "plan.json").write_bytes(data)
        clock = Clock(utc=self.now, monotonic_ns=lambda: self.seconds * 10**9)
        self.journal = Journal.create(folder / "journal.jsonl", sha256(data), clock)

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def write(self, *events: Event) -> None:
        for event in events:
            self.seconds += 1
            self.journal.append(event)

    def status(self) -> Status:
        with Follower.at(self.folder) as follower:
            is_written = follower.is_written()
            tracker = Tracker(plan=follower.plan)
            for line in follower.new_lines():
                tracker.take(line)
            return tracker.status(str(self.folder), self.now(), is_written=is_written)


@pytest.fixture
def burn_in(tmp_path: Path) -> Iterator[Run]:
    protocol = replace(PROTOCOL, last_checks="all")
    run = Run(tmp_path / "run", a_plan(a_case("burn_in", checked_launch=None), protocol=protocol))
    yield run
    with suppress(OSError):  # closed by the test
        run.journal.close()


def segment(run: Run, number: int, *, mismatches: int = 0) -> list[Event]:
    case = run.plan.cases[0]
    launch = next(one for one in run.plan.launches if one.number == number)
    check = replace(
        checked(launch.id, "last").check,
        name="mismatches, repeated or lasting",
        error=mismatches,
        bound=0,
        kind="exact",
        detects_what=covered(10),
    )
    events = launch_events(run.plan, case, launch)
    return [
        replace(event, check=check) if getattr(event, "phase", "") == "last" else event
        for event in events
    ]


def test_an_ordinary_run_says_cases_and_launches_that_are_done_and_left(tmp_path: Path) -> None:
    plan = a_plan(a_case("gemm"), a_case("conv"))
    run = Run(tmp_path / "run", plan)
    events = healthy_events(plan)
    place = next(n for n, one in enumerate(events) if getattr(one, "launch", "") == "conv@cpu:0/1")
    run.write(*events[: place + 1])
    status = run.status()
    assert status.products is None
    assert status.state == "running"
    assert 0 < status.done < status.launches
    assert [one.launch for one in status.running] == ["conv@cpu:0/1"]
    assert status.remaining_seconds is not None
    run.write(*events[place + 1 :])
    run.journal.close()
    status = run.status()
    assert (status.state, status.done, status.cases_done) == ("ended", status.launches, 2)
    assert status.remaining_seconds is None


def test_a_burn_in_says_what_its_segments_proved_and_found(burn_in: Run) -> None:
    burn_in.write(*segment(burn_in, 1), *segment(burn_in, 2, mismatches=3))
    status = burn_in.status()
    per_segment = int(covered(10).split("digested blocks: ")[1].split(" ")[0].replace(",", ""))
    assert (status.products, status.mismatches) == (2 * per_segment, 3)
    assert status.checks_outside == 1
    assert status.done == 2
    assert f"products proven: {2 * per_segment:,}" in "\n".join(words.lines(status, RESUME))


def test_readings_have_their_age(burn_in: Run) -> None:
    launch = burn_in.plan.launches[1].id
    values = {"power_watts": 512.4, "temperature_celsius": 61.0, "graphics_clock_hertz": 1.7e9}
    burn_in.write(
        LaunchStarted(launch=launch, mode="fresh"),
        Reading(launch=launch, device="cpu:0", values=values),
    )
    burn_in.seconds += 42
    (device,) = burn_in.status().devices
    assert (device.age_seconds, device.values["power_watts"]) == (42.0, 512.4)
    assert "cpu:0: 512 W, 61 °C, 1.70 GHz (42 s ago)" in words.lines(burn_in.status(), RESUME)


def test_a_run_that_was_killed_says_how_to_go_on(burn_in: Run) -> None:
    launch = burn_in.plan.launches[1].id
    burn_in.write(LaunchStarted(launch=launch, mode="fresh"))
    assert burn_in.status().state == "running"
    burn_in.journal.close()
    status = burn_in.status()
    assert status.state == "stopped"
    shown = words.lines(status, RESUME)
    assert shown[0].endswith(": stopped")
    assert shown[-2:] == ["go on with:", f"  {RESUME}"]


def test_a_resumed_run_has_nothing_under_way_but_what_it_starts_again(burn_in: Run) -> None:
    launch = burn_in.plan.launches[1].id
    burn_in.write(
        LaunchStarted(launch=launch, mode="fresh"),
        RunResumed(interruption=1, interrupted=(launch,), dropped="", pid=2),
        ended(launch, "interrupted", "the appliance was stopped"),
    )
    status = burn_in.status()
    assert (status.running, status.interruptions) == ((), 1)
    assert status.outcomes == {"interrupted": 1}


def test_half_a_line_waits_for_its_rest(burn_in: Run) -> None:
    burn_in.write(*segment(burn_in, 1))
    data = (burn_in.folder / "journal.jsonl").read_bytes()
    copy = burn_in.folder.parent / "copy"
    copy.mkdir()
    (copy / "plan.json").write_bytes(to_json(burn_in.plan))
    path = copy / "journal.jsonl"
    path.write_bytes(data[:1000])
    with Follower.at(copy) as follower:
        first = list(follower.new_lines())
        assert list(follower.new_lines()) == []
        with path.open("ab") as file:
            file.write(data[1000:])
        rest = list(follower.new_lines())
    assert [line.seq for line in first + rest] == list(range(len(burn_in.journal.lines)))


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("name", ["plan.json", "journal.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, _link, Path.mkdir])
def test_what_is_no_plain_file_is_refused(
    burn_in: Run, name: str, make: Callable[[Path], None]
) -> None:
    path = burn_in.folder / name
    path.unlink()
    make(path)
    with pytest.raises(EvidenceError, match=name):
        Follower.at(burn_in.folder)


def test_a_line_that_was_altered_is_refused(burn_in: Run) -> None:
    burn_in.write(*segment(burn_in, 1))
    path = burn_in.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"error":0', b'"error":1', 1))
    with pytest.raises(EvidenceError, match="does not follow"):
        burn_in.status()


def test_a_journal_that_became_shorter_is_refused(burn_in: Run) -> None:
    burn_in.write(*segment(burn_in, 1))
    with Follower.at(burn_in.folder) as follower:
        list(follower.new_lines())
        os.truncate(burn_in.folder / "journal.jsonl", 10)
        with pytest.raises(EvidenceError, match="shorter"):
            list(follower.new_lines())


def test_hostile_text_and_long_names_stay_on_lines_of_80_columns(burn_in: Run) -> None:
    status = replace(
        burn_in.status(), suite="soak\x1b[2J\n" + "x" * 300, run_id="\u202eabc", running=()
    )
    shown = words.lines(status, RESUME)
    assert all(len(line) <= 80 and line.isprintable() for line in shown)
    assert "[U+001B]" in shown[0]


def test_stress_beside_the_products_is_shown_by_kind(burn_in: Run) -> None:
    assert burn_in.status().stress == ()
    launch = next(one.id for one in burn_in.plan.launches if one.is_timed)
    span = Span(60_000, 30_000, 10**9, 6 * 10**9, 8, 2)
    aggregate = Aggregate(kind="disk", asked="1 thread", spans=(span,))
    burn_in.write(
        *(
            replace(checked(launch, "last"), check=one)
            for one in checks_of(aggregate, is_again=False)
        )
    )
    status = burn_in.status()
    assert status.mismatches == 2
    assert "stress disk: 1.0 GB proven at 100 MB/s, 50 % of the time, mismatches: 2" in words.lines(
        status, RESUME
    )


def test_the_newest_run_of_a_folder_is_watched(burn_in: Run) -> None:
    older = burn_in.folder.parent / "0-older"
    older.mkdir()
    (older / "plan.json").write_bytes(b"{}")
    with Follower.at(burn_in.folder.parent) as follower:
        assert follower.folder == burn_in.folder


def test_a_folder_without_a_run_names_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        Follower.at(tmp_path)
    with pytest.raises(UsageError, match="cannot be watched"):
        Follower.at(tmp_path / "nowhere")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "appliance", "watch", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_verb_says_it_once_or_as_documents(burn_in: Run) -> None:
    burn_in.write(*segment(burn_in, 1))
    said = bench(str(burn_in.folder), "--once")
    assert said.returncode == 0
    assert "launches: 1 of" in said.stderr
    document = json.loads(bench(str(burn_in.folder), "--once", "--json").stdout)
    assert (document["schema"], document["state"]) == ("bench/status/1", "running")
    burn_in.write(RunEnded(launches=1))
    burn_in.journal.close()
    (line,) = bench(str(burn_in.folder), "--json").stdout.splitlines()
    assert json.loads(line)["state"] == "ended"


def test_the_verb_ends_with_3_where_the_run_stopped(burn_in: Run) -> None:
    burn_in.journal.close()
    said = bench(str(burn_in.folder))
    assert said.returncode == 3
    assert "stopped" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_block_adds_to_the_time_under_test(burn_in: Run) -> None:
    events = segment(burn_in, 1)
    seconds = sum(one.block_wall_ns for one in events if isinstance(one, Block)) * 1e-9
    burn_in.write(*events)
    assert burn_in.status().seconds_under_test == pytest.approx(seconds)


def test_faults_of_watching_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(BenchError) as raised:
        Follower.at(tmp_path)
    assert "\n" not in str(raised.value)
