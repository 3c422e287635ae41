"""Builds hand an accelerator as few operations as is recorded, and the page says how many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import count_operations  # noqa: E402 - after the path

PAGE = ROOT / "docs" / "explanation" / "inputs.md"
COUNTED = ("bert", "gemm-bf16", "markov_lm")
FEWER = 5


def test_the_page_has_the_recorded_counts() -> None:
    recorded = json.loads(count_operations.RECORDED.read_text())
    assert "\n".join(count_operations.table(recorded)) in PAGE.read_text()


@pytest.mark.usefixtures("simulated_accelerator")
def test_builds_hand_over_as_few_operations_and_kinds_of_them_as_is_recorded() -> None:
    """Each in a process of its own, as registering the simulated device changes torch for good."""
    script = str(ROOT / "scripts" / "count_operations.py")
    command = [sys.executable, script, "--only", "smoke", *COUNTED]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    recorded = json.loads(count_operations.RECORDED.read_text())
    found = json.loads(made.stdout)
    counts = found["counts"]
    assert found["kinds"] == {name: recorded["kinds"]["today"][name] for name in COUNTED}
    assert counts == {name: recorded["today"]["smoke"][name] for name in COUNTED}
    for name, (operations, _) in counts.items():
        assert FEWER * operations <= recorded["before"]["smoke"][name][0], name
