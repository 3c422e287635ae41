"""A burn-in with stress beside it is killed, gone on with, signed and verified."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from support.program import called, events, only_run
from support.short_segments import short_segments, started

from appliance.stress.aggregates import LASTING, name
from appliance.stress.kinds import EVERY, NO_LINKS, loaded
from workloads.parts.stress.stressors import PROCESS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KINDS = loaded(EVERY, 1)
SUITE = short_segments("stressed", 2, memory_gib=8)


def stressors(root: int) -> list[psutil.Process]:
    """Processes of stress below another one, as far as they live."""
    try:
        every = psutil.Process(root).children(recursive=True)
        return [one for one in every if PROCESS in one.cmdline()]
    except psutil.NoSuchProcess:
        return []


def wait_for_stress(running: subprocess.Popen[bytes]) -> list[psutil.Process]:
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and running.poll() is None:
        found = stressors(running.pid)
        if len(found) == len(KINDS):
            return found
        time.sleep(0.05)
    pytest.fail("no stress was begun")


def test_stress_dies_with_its_launch_and_is_verified(tmp_path: Path) -> None:
    suite, out = tmp_path / "stressed.toml", tmp_path / "out"
    suite.write_text(SUITE)
    options = ("--stress", "all", "--suite", str(suite), "--out", str(out))
    running = started("accept", *options)
    begun = wait_for_stress(running)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    _, alive = psutil.wait_procs(begun, timeout=300)
    assert alive == []
    run = only_run(out)
    done = called("accept", "--resume", str(run), "--quiet")
    assert done.returncode in (0, 3), done.stderr
    last = [one for one in events(run, "checked") if one["phase"] == "last"]
    said = {one["check"]["name"]: one["check"] for one in last}
    for kind in KINDS:
        check = said[name(kind, LASTING)]
        assert check["error"] == 0
        assert "ended: asked to stop" in check["detects_what"]
    page = (run / "report.html").read_text()
    assert "Stress beside the products" in page
    assert NO_LINKS in page
    verified = called("verify", str(run), "--allow-dev")
    assert verified.returncode == done.returncode, verified.stderr
