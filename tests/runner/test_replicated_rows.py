"""Self-supervised and diffusion training over two ranks in real processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from support.launching import TESTS, Bench, case, plan

from appliance.records.journal import Checked
from appliance.records.workload import Work
from workloads.diffusion import Diffusion
from workloads.dinov2_giant import Dinov2Giant
from workloads.vjepa import Vjepa

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"
RANKS = 2
KINDS = {"dinov2_giant": Dinov2Giant, "vjepa": Vjepa, "diffusion": Diffusion}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One run of all, one after the other."""
    cases = [
        case(
            name,
            workload=name,
            parameters={**kind.small, "ranks": RANKS, "parallel": "ddp"},
            ranks=RANKS,
            work=Work(units=1.0),
            launches=0,
        )
        for name, kind in KINDS.items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        made = Bench(tmp_path_factory.mktemp("replicated") / "run", plan(*cases))
        made.run()
        yield made


@pytest.mark.parametrize("name", KINDS)
def test_ranks_agree_with_float64_and_each_has_the_same_weights(bench: Bench, name: str) -> None:
    launch = f"{name}@cpu:0/0"
    assert bench.ended(launch).outcome == "completed", bench.ended(launch)
    found = list(bench.of(launch, Checked))
    assert [item.check for item in found if not item.check.is_within] == []
    for rank in range(RANKS):
        names = {item.check.name for item in found if item.rank == rank}
        assert {f"weights of rank {peer} differ" for peer in range(RANKS)} <= names
        assert "gradients against float64" in names
        assert ("teacher, given the student's weights" in names) == (name != "diffusion")
