"""A sample of hostile inputs: none verifies, none crashes, none takes 5 s or 500 MB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tamper.fuzz import Outcome
from tamper.memory import Sampler
from tamper.mutations import KINDS

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_verify.py"
HARMLESS = Outcome(
    number=0,
    kind="bytes",
    is_signed=False,
    code=4,
    crash="",
    seconds=0.1,
    peak_bytes=10**8,
    bound_bytes=6 * 10**8,
)


def test_no_hostile_input_verifies_crashes_or_exhausts(
    genuine: Path, pytestconfig: pytest.Config
) -> None:
    """In a process of its own, whose memory is no other test's."""
    seed, count = pytestconfig.getoption("fuzz_seed"), pytestconfig.getoption("fuzz_count")
    words = ["--bundle", str(genuine), "--seed", str(seed), "--count", str(count), "--workers", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    kinds = {line.split()[0] for line in done.stdout.splitlines() if " exit " in line}
    assert len(kinds) == len(KINDS)
    assert "signed anew" in done.stdout


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"code": 0}, "ended with 0, and nobody signed it"),
        ({"code": 3}, "ended with 3, and nobody signed it"),
        ({"code": 0, "is_signed": True}, ""),
        ({"code": 3, "kind": "html"}, ""),
        ({"crash": "KeyError"}, "crashed: KeyError"),
        ({"seconds": 5.5}, "took 5.5 s"),
        ({"peak_bytes": 501 * 10**6}, "took 501 MB"),
    ],
)
def test_what_fails_is_named(changes: dict[str, object], fault: str) -> None:
    fields = {name: getattr(HARMLESS, name) for name in HARMLESS.__dataclass_fields__}
    assert Outcome(**(fields | changes)).fault == fault


HOLD = "data = b'x' * 50_000_000; print(len(data), flush=True); input()"


def test_memory_of_a_process_and_its_child_is_that_of_one_moment() -> None:
    sampler = Sampler(os.getpid())
    sampler.look()
    before = sampler.peak_bytes
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "50000000\n"
        sampler.look()
        child.communicate("\n")
    assert before + 50e6 < sampler.peak_bytes < before + 90e6
