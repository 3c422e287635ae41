"""Faults planted in sequence in real launches: each is counted, and the ruling follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.planted_launches import planted

pytestmark = pytest.mark.timeout(1800)


def test_every_fault_of_a_launch_is_counted_and_fails(tmp_path: Path) -> None:
    counted = planted(240, 1, tmp_path)
    assert counted.counted == counted.planted == 240
    assert counted.single == (0,)
    assert counted.correctness["ruling"] == "fail"
    assert counted.verdict["verdict"] != "ACCEPTED"
    (covered,) = counted.covered
    assert "mismatches: 240: " in covered
    assert "again in" in covered


def test_a_single_fault_that_never_comes_again_is_named_transient(tmp_path: Path) -> None:
    counted = planted(1, 1, tmp_path)
    assert (counted.lasting, counted.single) == ((0,), (1,))
    ruling = counted.correctness
    assert ruling["ruling"] == "inconclusive"
    assert "transient" in ruling["reason"] or "never came again" in ruling["detail"]
