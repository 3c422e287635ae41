"""Training over two ranks in real processes: right in each way, and one rank that goes wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.forked_ranks import checks_of_ranks
from support.launching import TESTS, Bench, case, plan

from appliance.records.journal import Check, Checked
from appliance.records.workload import Work
from workloads.bert import Bert
from workloads.contract.failures import ParameterError
from workloads.llm_full import LlmFull
from workloads.llm_lora import LlmLora
from workloads.parts.distributed.sharding import num_batches, seed_of
from workloads.parts.training.sampled_checks import WEIGHTS
from workloads.resnet50 import Resnet50
from workloads.rlhf import Rlhf

MARK = f"BENCH_TEST_MARK={uuid.uuid4().hex}"
RANKS = 2
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("bert", {**Bert.small, "parallel": "ddp"}),
    "fsdp": ("bert", {**Bert.small, "parallel": "fsdp"}),
    "tensor": ("bert", {**Bert.small, "parallel": "tensor"}),
    "ddp-half": ("bert", {**Bert.small, "parallel": "ddp", "dtype": "bfloat16"}),
    "ddp-feedback": ("rlhf", {**Rlhf.small, "parallel": "ddp"}),
    "fsdp-layers": ("llm_full", {**LlmFull.small, "parallel": "fsdp", "followed": "layers"}),
    "tensor-layers": ("llm_full", {**LlmFull.small, "parallel": "tensor", "followed": "layers"}),
    "ddp-layers": ("llm_lora", {**LlmLora.small, "parallel": "ddp", "followed": "layers"}),
    "ddp-images": ("resnet50", {**Resnet50.small, "parallel": "ddp"}),
}
FAULTS: dict[str, dict[int, set[str]]] = {
    # by rank, names of checks that find it
    "triples": {
        0: {"gradients against float64", "share of rank 1 in the average gradient"},
        1: {"gradients against float64", "share of rank 1 in the average gradient"},
    },
    "skips": {
        0: {"weights of rank 1 differ"},
        1: {"gradients against float64", "weights of rank 1 differ"},
    },
    "strays": {
        0: {"inputs of rank 1 differ", "gradients against float64"},
        1: {"inputs of rank 1 differ", "loss against float64"},
    },
    "drifts": {
        0: {"weights of rank 1 differ"},
        1: {"weights of rank 1 differ"},
    },
    "sums": {
        0: {
            "gradients against float64",
            "share of rank 0 in the average gradient",
            "share of rank 1 in the average gradient",
        },
        1: {"gradients against float64"},
    },
}
SLOPES = "gradients of the drawn layers against float64"
LAYER_FAULTS = {
    "triples": {SLOPES, "share of rank 1 in the average gradient"},
    "skips": {"weights of rank 1 differ"},
    "sums": {SLOPES},
}
"""Where drawn layers alone are followed: names of checks that find it, on some rank."""
INNOCENT = {
    "triples": {"share of rank 0 in the average gradient", "weights of rank 0 differ"},
    "skips": {"weights of rank 0 differ", "inputs of rank 0 differ"},
    "strays": {"inputs of rank 0 differ", "weights of rank 0 differ", "weights of rank 1 differ"},
    "drifts": {"weights of rank 0 differ", "inputs of rank 1 differ"},
    "sums": {"inputs of rank 0 differ", "weights of rank 1 differ"},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A run of one case as a suite has it: its untimed launch, and a timed one."""
    workload, parameters = HEALTHY["ddp"]
    launches = case(
        "ddp",
        workload=workload,
        parameters={**parameters, "ranks": RANKS},
        ranks=RANKS,
        work=Work(units=1.0),
        launches=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        made = Bench(tmp_path_factory.mktemp("training") / "run", plan(launches))
        made.run()
        yield made


def require_healthy(checks: Sequence[Sequence[Check]], *, in_tensors: bool) -> None:
    everything = [check for of_rank in checks for check in of_rank]
    assert [check for check in everything if not check.is_within] == []
    assert all(check.error <= check.bound / 2 for check in everything if check.kind == "numeric")
    for of_rank in checks:
        names = {check.name for check in of_rank}
        assert {f"weights of rank {peer} differ" for peer in range(RANKS)} <= names
        assert {f"inputs of rank {peer} differ" for peer in range(RANKS)} <= names
        shares = {name for name in names if name.startswith("share of rank")}
        assert len(shares) == (0 if in_tensors else RANKS)


def outside(checks: Sequence[Check]) -> set[str]:
    return {check.name for check in checks if not check.is_within}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ranks_agree_with_float64_over_the_batches_of_all(
    tmp_path: Path, name: str
) -> None:
    workload, parameters = HEALTHY[name]
    checks = checks_of_ranks(f"workloads.{workload}", parameters, RANKS, tmp_path)
    require_healthy(checks, in_tensors=name.startswith("tensor"))


def test_first_and_last_timed_step_of_a_run_are_followed(bench: Bench) -> None:
    for number, phases in ((0, {"first"}), (1, {"first", "last"})):
        launch = f"ddp@cpu:0/{number}"
        assert bench.ended(launch).outcome == "completed", bench.ended(launch)
        checked = list(bench.of(launch, Checked))
        numeric = [item for item in checked if item.phase in {"first", "last"}]
        assert {(item.rank, item.phase) for item in numeric} == {
            (rank, phase) for rank in range(RANKS) for phase in phases
        }
        assert not [item for item in checked if not item.check.is_within]
        first = [item for item in checked if item.phase == "first"]
        by_rank = [[item.check for item in first if item.rank == rank] for rank in range(RANKS)]
        require_healthy(by_rank, in_tensors=False)


@pytest.mark.parametrize("name", FAULTS)
def test_rank_that_goes_wrong_is_recognised_and_named(tmp_path: Path, name: str) -> None:
    parameters = {**Bert.small, "parallel": "ddp", "fault": name}
    checks = checks_of_ranks("faulty.disloyal", parameters, RANKS, tmp_path)
    for rank, expected in FAULTS[name].items():
        assert expected <= outside(checks[rank])
        assert not outside(checks[rank]) & INNOCENT[name]


@pytest.mark.parametrize("name", LAYER_FAULTS)
def test_rank_that_goes_wrong_is_recognised_where_layers_are_followed(
    tmp_path: Path, name: str
) -> None:
    parameters = {**LlmLora.small, "parallel": "ddp", "followed": "layers", "fault": name}
    checks = checks_of_ranks("faulty.disloyal_layers", parameters, RANKS, tmp_path)
    blamed = set().union(*(outside(of_rank) for of_rank in checks))
    assert LAYER_FAULTS[name] <= blamed
    assert "weights of rank 0 differ" not in blamed  # the loyal one is not blamed
    assert name != "triples" or "share of rank 0 in the average gradient" not in blamed


def test_ranks_have_inputs_of_their_own_and_the_first_those_of_one_alone() -> None:
    assert seed_of(7, 0) == 7
    assert len({seed_of(7, rank) for rank in range(100)}) == 100
    assert [num_batches(4, way) for way in ("ddp", "fsdp", "tensor")] == [4, 4, 1]
    alone, shared = Bert(), Bert(ranks=4, parallel="fsdp")
    assert shared.work().units == 4 * alone.work().units
    assert shared.work().flops == 4 * (alone.work().flops or 0)


@pytest.mark.parametrize(
    "given",
    [
        {"ranks": 2},
        {"parallel": "ddp"},
        {"ranks": 0, "parallel": "ddp"},
        {"ranks": 2, "parallel": "pipeline"},
        {"ranks": 5, "parallel": "tensor"},
    ],
)
def test_ways_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Bert(**given)


def test_ranks_whose_steps_are_sampled_agree_and_name_who_goes_wrong(tmp_path: Path) -> None:
    parameters = {**Bert.small, "parallel": "ddp"}
    healthy, triples = (
        checks_of_ranks("faulty.sampled", {**parameters, "fault": fault}, RANKS, tmp_path / fault)
        for fault in ("none", "triples")
    )
    assert not set().union(*map(outside, healthy))
    assert all(WEIGHTS in {check.name for check in of_rank} for of_rank in healthy)
    assert WEIGHTS in set().union(*map(outside, triples))
