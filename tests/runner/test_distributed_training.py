"""Training over two ranks in real processes: right in each way, and one rank that goes wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.launching import TESTS, Bench, case, plan

from appliance.records.journal import Checked
from appliance.records.plan import Case
from appliance.records.workload import Work
from workloads.bert import Bert
from workloads.contract.failures import ParameterError
from workloads.llm_full import LlmFull
from workloads.llm_lora import LlmLora
from workloads.parts.distributed.sharding import num_batches, seed_of
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


def of_ranks(name: str, workload: str, parameters: dict[str, Any], launches: int) -> Case:
    return case(
        name,
        workload=workload,
        parameters={**parameters, "ranks": RANKS},
        ranks=RANKS,
        work=Work(units=1.0),
        launches=launches,
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One run of all, one after the other."""
    folder = tmp_path_factory.mktemp("training")
    cases = [
        of_ranks(name, workload, parameters, int(name == "ddp"))
        for name, (workload, parameters) in HEALTHY.items()
    ]
    given = {**Bert.small, "parallel": "ddp"}
    cases += [of_ranks(name, "faulty.disloyal", {**given, "fault": name}, 0) for name in FAULTS]
    given = {**LlmLora.small, "parallel": "ddp", "followed": "layers"}
    cases += [
        of_ranks(f"layers-{name}", "faulty.disloyal_layers", {**given, "fault": name}, 0)
        for name in LAYER_FAULTS
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv(*MARK.split("="))
        made = Bench(folder / "run", plan(*cases))
        made.run()
        yield made


def checks(bench: Bench, name: str, number: int = 0) -> list[Checked]:
    launch = f"{name}@cpu:0/{number}"
    assert bench.ended(launch).outcome == "completed", bench.ended(launch)
    return list(bench.of(launch, Checked))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ranks_agree_with_float64_over_the_batches_of_all(bench: Bench, name: str) -> None:
    found = checks(bench, name)
    assert not [item for item in found if not item.check.is_within]
    close = [item.check for item in found if item.check.kind == "numeric"]
    assert all(check.error <= check.bound / 2 for check in close)
    for rank in range(RANKS):
        names = {item.check.name for item in found if item.rank == rank}
        assert {f"weights of rank {peer} differ" for peer in range(RANKS)} <= names
        assert {f"inputs of rank {peer} differ" for peer in range(RANKS)} <= names
        shares = {name for name in names if name.startswith("share of rank")}
        assert len(shares) == (0 if name.startswith("tensor") else RANKS)


def test_last_timed_step_is_followed_too(bench: Bench) -> None:
    found = checks(bench, "ddp", 1)
    assert {(item.rank, item.phase) for item in found} == {
        (rank, phase) for rank in range(RANKS) for phase in ("first", "last")
    }
    assert not [item for item in found if not item.check.is_within]


@pytest.mark.parametrize("name", FAULTS)
def test_rank_that_goes_wrong_is_found_and_named(bench: Bench, name: str) -> None:
    found = [item for item in checks(bench, name) if item.phase == "first"]
    for rank, expected in FAULTS[name].items():
        outside = {i.check.name for i in found if i.rank == rank and not i.check.is_within}
        assert expected <= outside
        assert not outside & INNOCENT[name]


@pytest.mark.parametrize("name", LAYER_FAULTS)
def test_rank_that_goes_wrong_is_found_where_layers_are_followed(bench: Bench, name: str) -> None:
    found = checks(bench, f"layers-{name}")
    outside = {item.check.name for item in found if not item.check.is_within}
    assert LAYER_FAULTS[name] <= outside
    assert "weights of rank 0 differ" not in outside  # the loyal one is not blamed
    assert name != "triples" or "share of rank 0 in the average gradient" not in outside


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
