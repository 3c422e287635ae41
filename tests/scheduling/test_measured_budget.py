"""What the recorded H100 took is read off its journals without loss."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from measured_budget import measured


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("smoke", {"untimed": 9, "repeat": 27, "timed": 45}),
        ("node", {"untimed": 11, "repeat": 33, "timed": 33}),
    ],
)
def test_stages_of_all_launches_add_up_to_their_time(name: str, launches: dict[str, int]) -> None:
    run = measured(name)
    assert {kind: len(made.seconds) for kind, made in run.kinds.items()} == launches
    for made in run.kinds.values():
        assert sum(made.stages.values()) == pytest.approx(sum(made.seconds), rel=0.02)
    assert sum(len(made.seconds) for made in run.cases.values()) == launches["timed"]
