"""Parameters beyond the small ones: every dtype of the products, every kernel of the memory.

The contract test runs each workload once, at its small parameters; these are the other
numerics that a suite can ask of the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import trial
from trial import Trial

from workloads.contract.failures import ParameterError
from workloads.gemm import Gemm
from workloads.gemm_exact import GemmExact
from workloads.gemm_tf32 import GemmTf32
from workloads.memory_bandwidth import MemoryBandwidth
from workloads.parts.numerics.bits import num_differing, weighted_digest
from workloads.parts.training import reference
from workloads.parts.training.state import Before, Training
from workloads.resnet50 import Resnet50

SMALL = {"m": 64, "n": 96}


@pytest.mark.parametrize(
    ("dtype", "k"),
    [("float64", 1000), ("float32", 8192), ("float16", 1000), ("bfloat16", 1000)],
)
def test_product_of_any_dtype_is_judged_rightly(dtype: str, k: int, tmp_path: Path) -> None:
    subject = Trial(Gemm(**SMALL, k=k, dtype=dtype), tmp_path)
    assert trial.misjudged(subject) == []
    assert trial.blind_to_downgrade(subject) == []


def test_tensor_float_32_is_no_float_32(tmp_path: Path) -> None:
    subject = Trial(Gemm(**SMALL, dtype="float32"), tmp_path)
    moment = subject.first()
    left, right = moment.state.left[0], moment.state.right[0]
    assert subject.is_rejected(moment, cut(left) @ cut(right))


def in_tf32(monkeypatch: pytest.MonkeyPatch, made: Callable[[Any, Any], Any]) -> GemmTf32:
    """The product in TF32 as a device with such products would make it: `made(left, right)`."""
    monkeypatch.setattr("workloads.gemm_tf32.refuse_processor", lambda _target: None)
    monkeypatch.setattr(GemmTf32, "multiply", lambda _self, left, right: made(left, right))
    return GemmTf32(**SMALL)


def test_product_in_tf32_is_judged_rightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Trial(in_tf32(monkeypatch, lambda left, right: cut(left) @ cut(right)), tmp_path)
    assert trial.misjudged(subject) == []


@pytest.mark.parametrize(
    "made",
    [
        lambda left, right: left @ right,
        lambda left, right: (left.bfloat16() @ right.bfloat16()).float(),
    ],
    ids=["float32", "bfloat16"],
)
def test_what_is_no_tf32_is_rejected(
    made: Callable[[Any, Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Trial(in_tf32(monkeypatch, made), tmp_path)
    moment = subject.first()
    assert subject.is_rejected(moment, moment.output)


def test_processor_has_no_tf32(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="a processor does not have"):
        Trial(GemmTf32(**SMALL), tmp_path).first()


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to the 10 bits after the leading one that TF32 keeps."""
    return ((tensor.view(torch.int32) + 2**12) & ~(2**13 - 1)).view(torch.float32)


@pytest.mark.parametrize(
    ("dtype", "magnitude", "k"),
    [
        ("bfloat16", 255, 4096),
        ("bfloat16", 127, 16384),
        ("float16", 15, 4096),
        ("float32", 255, 4096),
        ("float64", 2**20, 4096),
    ],
)
def test_exact_product_has_no_tolerance(dtype: str, magnitude: int, k: int, tmp_path: Path) -> None:
    subject = Trial(GemmExact(**SMALL, dtype=dtype, magnitude=magnitude, k=k), tmp_path)
    assert trial.misjudged(subject) == []
    moment = subject.first()
    wrong = moment.output.clone()
    wrong.view(torch.uint8).reshape(-1)[7] ^= 1
    assert [check.error for check in subject.checks(moment, wrong)] == [1, 1]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"magnitude": 255, "k": 16384}, "lower magnitude or k"),
        ({"magnitude": 255, "k": 4096, "dtype": "float16"}, "lower magnitude or k"),
        ({"magnitude": 257}, "holds every integer to 256 only"),
        ({"dtype": "int7"}, "choose one of"),
    ],
)
def test_product_that_may_be_inexact_is_refused(parameters: dict[str, int], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        GemmExact(**parameters)


@pytest.mark.parametrize(
    ("dtype", "lower"), [("float32", torch.bfloat16), ("bfloat16", torch.float8_e4m3fn)]
)
def test_backward_pass_in_a_lower_precision_is_seen_in_the_gradients_alone(
    dtype: str, lower: torch.dtype, tmp_path: Path
) -> None:
    """Loss and logits are right, and the update is right for these gradients."""
    subject = Trial(Resnet50(**{**Resnet50.small, "dtype": dtype}), tmp_path)
    with trial.LowerBackward(lower):
        moment = subject.first()
    outside = [check for check in subject.checks(moment) if not check.is_within]
    assert [check.name for check in outside] == ["gradients against float64"]
    assert outside[0].error < 0.11  # which units that switch would have to be allowed


def test_forward_pass_that_does_not_come_again_is_allowed_its_switches(tmp_path: Path) -> None:
    """Sides of branch points are then unknown, and the check says that it detects less."""
    subject = Trial(Resnet50(**Resnet50.small), tmp_path)
    moment = subject.first()
    known = {check.name: check for check in subject.checks(moment)}
    real = reference.repeated

    def other(before: Before, state: Training) -> object:
        choices, logits = real(before, state)
        return choices, logits.nextafter(logits + 1)

    with mock.patch.object(reference, "repeated", other):
        unknown = {check.name: check for check in subject.checks(moment)}
    name = "gradients against float64"
    assert all(check.is_within for check in unknown.values())
    assert known[name].detects < 2e-5
    assert unknown[name].detects > 0.1


def test_choices_that_are_not_the_networks_are_refused(tmp_path: Path) -> None:
    """A device cannot claim a rectifier to be open where its input is far below zero."""
    subject = Trial(Resnet50(**Resnet50.small), tmp_path)
    moment = subject.first()
    choices, _ = reference.repeated(moment.before, moment.state)
    wrong = [choices[0].clone(), *choices[1:]]
    wrong[0].view(-1)[:1000] ^= True
    for given in (wrong, choices[:-1], [*choices, choices[0]]):
        exact = reference.computed(moment.before, moment.state, given)
        assert exact.switched > 0.1


def test_golden_digest_is_the_one_that_every_device_must_give(tmp_path: Path) -> None:
    """Recorded once; it moves only if inputs, weights or digest change: bump `version` then."""
    subject = Trial(GemmExact(**GemmExact.small), tmp_path)
    digest = subject.checks(subject.first())[1]
    assert "golden digest aaea7fb0f5bbf3ec, set 0" in digest.detects_what


def test_golden_product_is_the_integer_product(tmp_path: Path) -> None:
    subject = Trial(GemmExact(**SMALL, k=512), tmp_path)
    moment = subject.first()
    exact = moment.state.left[0].long() @ moment.state.right[0].long()
    assert num_differing(moment.output, exact.to(torch.bfloat16)) == 0


def test_digest_sees_swapped_rows_and_swapped_columns() -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    others = [matrix[[1, 0, 2]], matrix[:, [1, 0, 2, 3]], -matrix, matrix.double()]
    digests = {weighted_digest(other, 5) for other in [matrix, matrix.clone(), *others]}
    assert len(digests) == 1 + len(others)


@pytest.mark.parametrize("operation", ["copy", "scale", "add", "triad"])
def test_one_kernel_alone_is_judged_rightly(operation: str, tmp_path: Path) -> None:
    workload = MemoryBandwidth(operation=operation, array_bytes=2**20)
    assert trial.misjudged(Trial(workload, tmp_path)) == []
    assert workload.work().bytes == {"copy": 2, "scale": 2, "add": 3, "triad": 3}[operation] * 2**20


def test_kernel_that_does_not_write_is_seen(tmp_path: Path) -> None:
    subject = Trial(MemoryBandwidth(array_bytes=2**16), tmp_path)
    state = subject.build()
    state.cycle.advance()
    checks = list(subject.workload.check(None, state, state.results))
    assert [check.error for check in checks] == [2**14] * 4
