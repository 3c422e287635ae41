"""`accept --sessions` as a person uses it: stopped, refused, killed, gone on with, verified."""

import json
import re
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.program import TINY, called, events, only_run, start

from appliance.probe.node import identity_digest
from appliance.records.journal import Line
from appliance.records.json import from_json, sha256, to_json
from appliance.records.plan import Plan
from appliance.records.system import System
from appliance.storage.journal import as_written


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sessions, the first of which has ended."""
    out = tmp_path_factory.mktemp("out")
    done = called("accept", "--suite", TINY, "--sessions", "2", "--out", str(out), "--quiet")
    assert done.returncode == 3, done.stderr
    run = only_run(out)
    assert f"bench accept --resume {run}" in done.stderr
    assert not (run / "verdict.json").exists()
    return run


@pytest.fixture
def copy(paused: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(paused, tmp_path / "out" / paused.name))


def test_a_run_between_sessions_is_no_evidence_yet(paused: Path) -> None:
    assert called("verify", str(paused), "--allow-dev").returncode == 4


def test_a_clock_that_was_set_back_is_refused_in_a_sentence(copy: Path) -> None:
    later(copy, timedelta(hours=2))
    before = (copy / "journal.jsonl").read_bytes()
    done = called("accept", "--resume", str(copy))
    assert done.returncode == 2
    assert "the clock was set back by 7" in done.stderr
    assert "between sessions 1 and 2" in done.stderr
    assert (copy / "journal.jsonl").read_bytes() == before


def test_a_session_on_another_device_is_refused_in_a_sentence(copy: Path) -> None:
    """The run as whoever made its first session elsewhere would hand it over: sound in itself."""
    system = from_json(System, (copy / "system.json").read_bytes(), name="system.json")
    device = replace(system.identity.devices[0], serial="1320922000042")
    others = system.identity.devices[1:]
    system = replace(system, identity=replace(system.identity, devices=(device, *others)))
    plan = from_json(Plan, (copy / "plan.json").read_bytes(), name="plan.json")
    digests = {**plan.digests, "identity": identity_digest(system.identity)}
    (copy / "system.json").write_bytes(to_json(system))
    (copy / "plan.json").write_bytes(to_json(replace(plan, digests=digests)))
    later(copy, timedelta(0))
    before = (copy / "journal.jsonl").read_bytes()
    done = called("accept", "--resume", str(copy))
    assert done.returncode == 2
    assert "not the machine that it began on: cpu:0: serial was 1320922000042" in done.stderr
    assert done.stderr.endswith("; go on there, or start a new run\n")
    assert (copy / "journal.jsonl").read_bytes() == before


def test_a_session_with_another_record_of_its_node_is_refused_in_a_sentence(copy: Path) -> None:
    record = copy / "system.json"
    record.write_bytes(record.read_bytes().replace(b'"serial":null', b'"serial":"1320922000042"'))
    done = called("accept", "--resume", str(copy))
    assert done.returncode == 4
    assert "put that one back, or start a new run" in done.stderr


def test_a_disk_without_room_for_the_rest_is_refused_before_it_goes_on(
    paused: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        run = Path(shutil.copytree(paused, disk / paused.name))
        before = (run / "journal.jsonl").read_bytes()
        done = called("accept", "--resume", str(run))
        assert done.returncode == 2
        assert re.search(r"MB free and the run may need \d+ MB more \(journal ", done.stderr)
        assert done.stderr.endswith("make room there, then go on again\n")
        assert (run / "journal.jsonl").read_bytes() == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def later(run: Path, by: timedelta) -> None:
    """The run as if the clock had been so much ahead when it was made."""
    path, lines, prev = run / "journal.jsonl", [], sha256((run / "plan.json").read_bytes())
    for text in path.read_bytes().splitlines():
        line = from_json(Line, text, name="journal.jsonl")
        utc = as_written(datetime.fromisoformat(line.utc) + by)
        made = to_json(replace(line, utc=utc, prev=prev))
        prev = sha256(made)
        lines.append(made + b"\n")
    path.write_bytes(b"".join(lines))


def test_options_of_sessions_are_fixed_when_the_run_begins(copy: Path) -> None:
    for words in (("--sessions", "3"), ("--pause", "1h")):
        done = called("accept", "--resume", str(copy), *words)
        assert done.returncode == 2
        assert "was fixed when the run began" in done.stderr or "--sessions 2" in done.stderr


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--sessions", "0"), "--sessions is 0: give a number from 1 to 12"),
        (("--sessions", "13"), "--sessions is 13"),
        (("--sessions", "2", "--pause", "4"), '--pause is "4": give a number with s, m or h'),
        (("--sessions", "2", "--pause", "721h"), "give at most 720 h"),
        (("--pause", "4h"), "give --sessions 2 or more"),
    ],
)
def test_sessions_that_no_run_can_have_are_refused(words: tuple[str, ...], output: str) -> None:
    done = called("plan", "--suite", TINY, *words)
    assert (done.returncode, output in done.stderr) == (2, True), done.stderr


def test_killed_in_the_second_session_it_goes_on_and_verifies(copy: Path) -> None:
    before = (copy / "journal.jsonl").read_bytes()
    process = start("accept", "--resume", str(copy), "--quiet")
    while not _is_in_second_session(copy):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.kill()
    process.communicate()
    done = called("accept", "--resume", str(copy), "--quiet")
    assert done.returncode == 0, done.stderr
    assert (copy / "journal.jsonl").read_bytes().startswith(before)
    assert len(events(copy, "session_began")) == len(events(copy, "run_resumed")) == 1
    timed = [one["launch"] for one in events(copy, "launch_started")]
    assert len([one for one in timed if not str(one).endswith("/0")]) == 2 * 2 * 5
    verified = called("verify", str(copy), "--allow-dev")
    assert verified.returncode == 0, verified.stderr
    verdict = json.loads((copy / "verdict.json").read_bytes())
    assert verdict["num_interruptions"] == 1


def _is_in_second_session(run: Path) -> bool:
    text = (run / "journal.jsonl").read_text()
    _, began, rest = text.partition('"kind":"session_began"')
    return bool(began) and '"kind":"launch_started"' in rest
