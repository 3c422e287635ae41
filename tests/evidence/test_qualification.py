"""Which record speaks of a case: what its workload needs must be the same, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from support.builders import SYSTEM, a_case, a_plan, records

from appliance.evidence.qualification import find
from appliance.records.system import Fact, System
from appliance.storage.qualified_file import load_qualified

TORCH_ALONE, OF_JAX = ("torch",), ("jax", "numpy", "torch")


def with_versions(**versions: str) -> System:
    facts = {name: Fact(value=value, source="test") for name, value in versions.items()}
    identity = SYSTEM.identity
    return replace(SYSTEM, identity=replace(identity, software={**identity.software, **facts}))


RECORDED = with_versions(torch="2.13.0", jax="0.10.2", jaxlib="0.10.2", numpy="2.4.6")


def reason(here: System, libraries: Collection[str]) -> str:
    case = replace(a_case(), libraries=tuple(libraries))
    known = records(a_plan(case), RECORDED)
    return find(known, case, here)[1]


@pytest.mark.parametrize("libraries", [TORCH_ALONE, OF_JAX, ()])
def test_record_of_the_same_stack_is_found(libraries: Collection[str]) -> None:
    assert reason(RECORDED, libraries) == ""


def test_library_that_the_workload_does_not_need_is_no_part_of_its_stack() -> None:
    without = with_versions(torch="2.13.0", numpy="1.26.4")
    assert reason(without, TORCH_ALONE) == ""
    assert "0.10.2, this run has none reported" in reason(without, OF_JAX)


@pytest.mark.parametrize("libraries", [TORCH_ALONE, OF_JAX, ()])
def test_another_torch_is_another_stack(libraries: Collection[str]) -> None:
    other = with_versions(torch="2.12.0", jax="0.10.2", jaxlib="0.10.2", numpy="2.4.6")
    assert "torch 2.13.0, this run has 2.12.0" in reason(other, libraries)


def test_of_a_workload_that_names_no_library_every_one_counts() -> None:
    assert "this run has none reported" in reason(with_versions(torch="2.13.0", numpy="2.4.6"), ())


def test_shipped_records_name_no_library_that_their_workload_does_not_need() -> None:
    stacks = {one.workload: one.stack for one in load_qualified(["AMD EPYC"]).record}
    assert "jax" not in stacks["gemm"]
    assert {"onnxruntime", "numpy"} <= stacks["onnx_resnet50"].keys()
