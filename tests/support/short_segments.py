"""A suite with one small burn-in of short segments, and what starts it beside a test."""

from __future__ import annotations

import subprocess
import sys

from support.program import ROOT


def short_segments(
    name: str,
    launches: int,
    *,
    blocks: int = 1,
    block_seconds: float = 3.0,
    seconds: tuple[int, int] = (10, 5),
    memory_gib: int = 4,
    more: str = "",
) -> str:
    """The suite as TOML; `seconds`: expected, and of the reference; `more`: lines of the case."""
    return f"""
schema = "bench/suite/2"
name = "{name}"
version = 1
summary = "A burn-in of short segments"
time_limit_seconds = 600

[protocol]
mode = "fresh"
calibration_seconds = 0.03
warmup_steps = 0
warmup_seconds = 0.0
blocks = {blocks}
block_steps = 3
block_seconds = {block_seconds}
interim_analyses = [{launches}]
last_checks = "all"

[[case]]
id = "burn_in"
workload = "burn_in"
small = true
launches = {launches}
expected_seconds = {seconds[0]}
reference_seconds = {seconds[1]}
time_limit_seconds = 300
memory_limit_gib = {memory_gib}
{more}
"""


def started(*words: str) -> subprocess.Popen[bytes]:
    """The program as a process group of its own, which can be killed whole."""
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", *words, "--quiet"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
