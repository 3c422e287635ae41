"""Self-supervised and diffusion training over two ranks in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.forked_ranks import checks_of_ranks

from workloads.diffusion import Diffusion
from workloads.dinov2_giant import Dinov2Giant
from workloads.vjepa import Vjepa

RANKS = 2
SMALL: dict[str, dict[str, Any]] = {
    "dinov2_giant": dict(Dinov2Giant.small),
    "vjepa": dict(Vjepa.small),
    "diffusion": dict(Diffusion.small),
}


@pytest.mark.parametrize("name", SMALL)
def test_ranks_agree_with_float64_and_each_has_the_same_weights(tmp_path: Path, name: str) -> None:
    parameters = {**SMALL[name], "parallel": "ddp"}
    for checks in checks_of_ranks(f"workloads.{name}", parameters, RANKS, tmp_path):
        assert [check for check in checks if not check.is_within] == []
        names = {check.name for check in checks}
        assert {f"weights of rank {peer} differ" for peer in range(RANKS)} <= names
        assert "gradients against float64" in names
        assert ("teacher, given the student's weights" in names) == (name != "diffusion")
