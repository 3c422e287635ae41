"""A burn-in that is killed at three points and gone on with: what was cut costs coverage alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.program import called, events, only_run
from support.short_segments import short_segments, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEGMENTS = 4
SUITE = short_segments("killed", SEGMENTS, blocks=2, block_seconds=2.0)
KILLED_AT = ("launch_started", "warmed", "block")
"""Records of the first, the second and the third segment, after which everything is killed.

Behind each of them come seconds of a block, so that no segment ends meanwhile.
"""


def kill_after(running: subprocess.Popen[bytes], out: Path, kind: str, segment: int) -> None:
    """Kill the whole tree once the journal has this record of this segment."""
    deadline = time.monotonic() + 900
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
    running = started("run", "--suite", str(suite), "--out", str(out))
    for segment, kind in enumerate(KILLED_AT, 1):
        kill_after(running, out, kind, segment)
        run = only_run(out)
        watched = called("watch", str(out), "--once")
        assert watched.returncode == 3
        assert f"accept --resume {run}" in " ".join(watched.stderr.split())
        if segment < len(KILLED_AT):
            running = started("run", "--resume", str(run))
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
