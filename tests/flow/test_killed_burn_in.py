"""A burn-in that is killed at three points and gone on with: what was cut costs coverage alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.program import ROOT, called, events, only_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEGMENTS = 4
SUITE = f"""
schema = "bench/suite/2"
name = "killed"
version = 1
summary = "A burn-in of short segments"
time_limit_seconds = 600

[protocol]
mode = "fresh"
calibration_seconds = 0.03
warmup_steps = 0
warmup_seconds = 0.0
blocks = 1
block_steps = 3
block_seconds = 3.0
interim_analyses = [{SEGMENTS}]
last_checks = "all"

[[case]]
id = "burn_in"
workload = "burn_in"
small = true
launches = {SEGMENTS}
expected_seconds = 10
reference_seconds = 5
time_limit_seconds = 300
memory_limit_gib = 4
"""
KILLED_AT = ("launch_started", "warmed", "block")
"""Records of the first, the second and the third segment, after which everything is killed."""


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", "run", *words, "--quiet"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_after(running: subprocess.Popen[bytes], out: Path, kind: str, segment: int) -> None:
    """Kill the whole tree once the journal has this record of this segment."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and running.poll() is None:
        if any(has(run, kind, segment) for run in out.glob("2*")):
            break
        time.sleep(0.05)
    assert running.poll() is None, "it ended before it could be killed"
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def has(run: Path, kind: str, segment: int) -> bool:
    path = run / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    found = (json.loads(line)["event"] for line in lines)
    return any(
        one["kind"] == kind and one.get("launch", "").endswith(f"/{segment}") for one in found
    )


def test_three_kills_cost_three_segments_and_no_ruling(tmp_path: Path) -> None:
    suite, out = tmp_path / "killed.toml", tmp_path / "out"
    suite.write_text(SUITE)
    running = start("--suite", str(suite), "--out", str(out))
    for segment, kind in enumerate(KILLED_AT, 1):
        kill_after(running, out, kind, segment)
        run = only_run(out)
        watched = called("watch", str(out), "--once")
        assert watched.returncode == 3
        assert f"accept --resume {run}" in " ".join(watched.stderr.split())
        if segment < len(KILLED_AT):
            running = start("--resume", str(run))
    done = called("run", "--resume", str(run), "--quiet")
    assert done.returncode in (0, 3), done.stderr
    ended = {str(one["launch"]): one["outcome"] for one in events(run, "launch_ended")}
    outcomes = [ended[f"burn_in@cpu:0/{number}"] for number in range(1, SEGMENTS + 1)]
    assert outcomes == ["interrupted"] * 3 + ["completed"]
    assert len(events(run, "run_resumed")) == len(KILLED_AT)
    rulings = {
        one["criterion"]: one["ruling"]
        for one in json.loads((run / "verdict.json").read_text())["rulings"]
    }
    functional = ("completion", "integrity", "correctness")
    assert [rulings[name] for name in functional] == ["pass"] * 3
    again = called("watch", str(run), "--once", "--json")
    assert json.loads(again.stdout)["interruptions"] == len(KILLED_AT)
