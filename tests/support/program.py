"""The program as a person starts it: a process of its own, with its words and its exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import psutil
import pytest

from appliance.cli import main
from appliance.version import VERSION

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "suites" / "tiny.toml")
STEPS = str(ROOT / "tests" / "suites" / "steps.toml")
WITH_FAULTS = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
"""Variables with which the program finds the workloads and vendors of the tests, too."""
BEGIN = f"bench {VERSION}: probing this node and planning the run"
"""The first word of `accept` and `run`, ahead of what they refuse."""


def sentences(stderr: str) -> list[str]:
    """Its lines, but for that a run begins."""
    return [line for line in stderr.strip().splitlines() if line != BEGIN]


def bench(
    *words: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 1500,
) -> subprocess.CompletedProcess[str]:
    return program("-m", "appliance", *words, cwd=cwd, env=env, timeout=timeout)


def program(
    *words: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 1500,
) -> subprocess.CompletedProcess[str]:
    """What Python does with these words."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def called(*words: str) -> subprocess.CompletedProcess[str]:
    """What `bench` does in this process: from its entry on, without a second of imports each time.

    For verbs of which one test, at least, is of the process itself.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["bench", *words])
        with pytest.raises(SystemExit) as left:
            main.main()
    code = left.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def answered(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, which must hold no traceback."""
    done = bench(*words)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def start(*words: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    """The program, started and not waited for."""
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", *words],
        cwd=cwd,
        env=WITH_FAULTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def until_gone(folder: Path, seconds: float = 300.0) -> None:
    """Wait for the end of what a killed process began: all that has a folder among its words."""
    end = time.monotonic() + seconds
    while left := [one for one in psutil.process_iter() if _names(one, folder)]:
        assert time.monotonic() < end, left
        time.sleep(0.02)


def _names(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        return str(folder) in " ".join(process.cmdline())
    return False


def only_run(out: Path) -> Path:
    """The folder of the one run in it."""
    runs = [path for path in out.iterdir() if not path.name.startswith(".")]
    assert len(runs) == 1
    return runs[0]


def events(run: Path, kind: str) -> list[dict[str, object]]:
    """The journal's events of one kind."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    return [line["event"] for line in lines if line["event"]["kind"] == kind]
