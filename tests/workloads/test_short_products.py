"""Products of 8-bit numbers: what is asked of the device, and how far each way may be off."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from appliance.errors import ApplianceError
from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.gemm import Gemm
from workloads.gemm_float8 import GemmFloat8
from workloads.gemm_int8 import GemmInt8
from workloads.op_float8 import OpFloat8
from workloads.op_int8 import OpInt8
from workloads.parts.matmul.dense import REFERENCE
from workloads.parts.matmul.float8 import MOST_HELD, narrow_error
from workloads.parts.operators.family import OperatorFamily

K = 8192
TERMS = 32  # of one instruction's product
BITS = 14  # after the leading one, of the narrow accumulator


def target(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder))


def cut(values: torch.Tensor) -> torch.Tensor:
    """Truncated to the bits of the narrow accumulator."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp(torch.trunc(mantissa * 2**BITS), exponent - BITS)


def narrow(left: torch.Tensor, right: torch.Tensor, held: int) -> torch.Tensor:
    """A product whose accumulator is narrow, and is emptied into float32 every `held` terms."""
    whole = torch.zeros(left.shape[0], right.shape[1], dtype=torch.float32)
    for begin in range(0, left.shape[1], held):
        part = torch.zeros(whole.shape, dtype=torch.float64)
        for first in range(begin, min(begin + held, left.shape[1]), TERMS):
            terms = slice(first, first + TERMS)
            part = cut(part + left[:, terms].double() @ right[terms].double())
        whole += part.float()
    return whole.bfloat16()


@pytest.mark.parametrize(
    ("use_fast_accum", "held", "is_right"),
    [(True, K, True), (True, 128, True), (False, 128, True), (False, K, False)],
)
def test_fast_sums_are_right_only_where_they_are_asked_for(
    use_fast_accum: bool,  # noqa: FBT001 - a row of the table
    held: int,
    is_right: bool,  # noqa: FBT001 - a row of the table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        GemmFloat8, "multiply", lambda _self, left, right: narrow(left, right, held)
    )
    workload = GemmFloat8(m=32, n=32, k=K, use_fast_accum=use_fast_accum, num_inputs=1)
    state = workload.build(target(tmp_path), 7)
    checks = list(workload.check(None, state, workload.step(state)))
    assert all(check.is_within for check in checks) is is_right


def test_the_processors_product_is_right_either_way(tmp_path: Path) -> None:
    for use_fast_accum in (True, False):
        workload = GemmFloat8(m=32, n=32, k=1024, use_fast_accum=use_fast_accum)
        state = workload.build(target(tmp_path), 7)
        assert all(check.is_within for check in workload.check(None, state, workload.step(state)))


def test_without_fast_accumulation_the_bound_stops_growing() -> None:
    assert narrow_error(2 * K, is_fast=True) == 2 * narrow_error(K, is_fast=True)
    assert narrow_error(2 * K, is_fast=False) == narrow_error(MOST_HELD, is_fast=True)


def called(
    name: str, kind: type[OperatorFamily], size: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """Shapes, layout and options of each call of one of torch's products."""
    calls: list[dict[str, Any]] = []
    product = getattr(torch, name)

    def recording(left: torch.Tensor, right: torch.Tensor, *scales: Any, **options: Any) -> Any:
        if left.device.type != "meta":
            calls.append({"left": left, "right": right, **options})
        return product(left, right, *scales, **options)

    monkeypatch.setattr(torch, name, recording)
    workload = kind(size=size)
    workload.step(workload.build(target(folder), 7))
    return calls


@pytest.mark.parametrize(("name", "kind"), [("_int_mm", OpInt8), ("_scaled_mm", OpFloat8)])
@pytest.mark.parametrize("size", [5, 6])
def test_operators_ask_for_what_a_devices_library_takes(
    name: str, kind: type[OperatorFamily], size: int, tmp_path: Path, monkeypatch: Any
) -> None:
    """Of int8, 17 rows and inner dimensions that are no multiple of 16 were refused on an H100."""
    calls = called(name, kind, size, tmp_path, monkeypatch)
    assert len(calls) == 3
    for call in calls:
        left, right = call["left"], call["right"]
        assert {length % 16 for length in (*left.shape, *right.shape)} == {0}
        assert left.shape[0] > (16 if kind is OpInt8 else 0)
        assert left.is_contiguous()
        assert right.stride() == (1, right.shape[0])


def test_float8_operators_multiply_with_fast_accumulation_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = called("_scaled_mm", OpFloat8, 5, tmp_path, monkeypatch)
    assert {call["use_fast_accum"] for call in calls} == {True, False}


@pytest.mark.parametrize("kind", [GemmInt8, GemmFloat8])
def test_the_right_operand_lies_by_columns(kind: type[Any], tmp_path: Path) -> None:
    state = kind(m=32, n=48, k=64).build(target(tmp_path), 7)
    assert all(right.stride() == (1, 64) for right in state.right)


@pytest.mark.parametrize("sizes", [{"m": 16}, {"m": 40}, {"n": 8}, {"k": 24}])
def test_shapes_that_a_devices_library_refuses_are_refused_in_one_sentence(
    sizes: dict[str, int],
) -> None:
    (name, value), *_ = sizes.items()
    with pytest.raises(ParameterError, match=f"^{name} is {value}: give "):
        GemmInt8(**{"m": 32, "n": 32, "k": 32, **sizes})


def test_what_the_first_operands_give_is_made_once_per_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests: dict[str, str] = {}

    def checks() -> list[Check]:
        artifacts = Artifacts(tmp_path, dict(digests), report)
        state = gemm.build(Target(device=torch.device("cpu"), artifacts=artifacts), 7)
        product = gemm.step(state)
        product[3] *= factor
        return list(gemm.check(None, state, product))

    def report(name: str, path: Path, digest: str, is_made: bool) -> None:  # noqa: FBT001
        del path
        assert is_made is (name not in digests)
        digests[name] = digest

    gemm, factor = Gemm(dtype="float32", m=32, n=32, k=1024), 1.0
    made = checks()
    monkeypatch.setattr(Gemm, "_computed", None)
    assert checks() == made
    assert all(check.is_within for check in made)
    factor = 1.001
    assert not all(check.is_within for check in checks())
    np.save(tmp_path / REFERENCE, np.zeros(17 * 32))
    with pytest.raises(ApplianceError, match=f"{REFERENCE} changed"):
        checks()
