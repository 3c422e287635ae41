"""Faults of training, put into a step of a small real model: each is found by the check named."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from appliance.records.journal import Check
from workloads.bert import Bert
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.digits_mlp import DigitsMlp
from workloads.parts.numerics.checksums import checksum
from workloads.parts.numerics.classifier import Classifier
from workloads.parts.numerics.inputs import placed
from workloads.parts.numerics.threads import on_threads
from workloads.parts.training import rules
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.optimizers import AdamW, Momentum, Optimizer
from workloads.parts.training.rules import Limits
from workloads.parts.training.state import Trained, Training, seeded, take_snapshot
from workloads.parts.training.step import train_step

SEED = 5
BATCH = {
    "inputs": torch.randn(8, 6, generator=torch.Generator().manual_seed(1)),
    "labels": torch.arange(8) % 3,
}
KINDS: Mapping[str, type[Workload[Any, Trained]]] = {"bert": Bert, "digits": DigitsMlp}


@dataclasses.dataclass
class Course:
    """One step of a workload, with a fault put in before it, into its course or after it."""

    workload: Workload[Any, Trained]
    state: Any

    @property
    def training(self) -> Training:
        return self.state if isinstance(self.state, Training) else self.state.training

    def outside(
        self,
        prepare: Callable[[Training], None] = lambda _: None,
        step: Callable[[Course], Trained] = lambda course: course.workload.step(course.state),
        spoil: Callable[[Trained], object] = lambda _: None,
    ) -> set[str]:
        prepare(self.training)
        before = self.workload.snapshot(self.state)
        output = step(self)
        spoil(output)
        return outside(self.workload.check(before, self.state, output))


def outside(checks: Any) -> set[str]:
    return {check.name for check in checks if not check.is_within}


@pytest.fixture(params=KINDS)
def course(request: pytest.FixtureRequest, tmp_path: Path) -> Course:
    kind: Any = KINDS[request.param]
    workload = kind(**kind.small)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    made = Course(workload, workload.build(target, SEED))
    workload.step(made.state)  # so that there are moments
    return made


def test_healthy_step_keeps_every_rule_with_room_to_spare(course: Course) -> None:
    before = course.workload.snapshot(course.state)
    checks = list(course.workload.check(before, course.state, course.workload.step(course.state)))
    assert not outside(checks)
    assert all(check.error <= check.bound / 2 for check in checks)
    names = {check.name for check in checks}
    assert {"inputs as generated", "values that are not finite"} <= names
    assert {"vanishing gradient of a matrix", "tensors whose moments stand still"} <= names


# ------------------------------------------------------------------ each fault by its name


def _batch_of_next(state: Training) -> dict[str, torch.Tensor]:
    batch = state.batches[(state.cycle.number + 1) % state.cycle.of]
    assert isinstance(batch, dict)
    return batch


def _swap_labels(state: Training) -> None:
    batch = _batch_of_next(state)
    batch["labels"] = batch["labels"].flip(0)


def _halve(state: Training) -> None:
    batch = _batch_of_next(state)
    for name, tensor in list(batch.items()):
        batch[name] = tensor[: len(tensor) // 2]


@pytest.mark.parametrize("change", [_swap_labels, _halve], ids=["labels swapped", "half a batch"])
def test_inputs_other_than_generated_are_found(
    course: Course, change: Callable[[Training], None]
) -> None:
    assert "inputs as generated" in course.outside(prepare=change)


def _on_other(change: Callable[[Training], None]) -> Callable[[Course], Trained]:
    """A step on a changed batch, where all looks as generated before and after it."""

    def step(course: Course) -> Trained:
        batch = _batch_of_next(course.training)
        kept = dict(batch)
        change(course.training)
        output = course.workload.step(course.state)
        batch.update(kept)
        return output

    return step


def test_step_that_swaps_labels_inside_is_found(course: Course) -> None:
    result = course.outside(step=_on_other(_swap_labels))
    assert {"loss against float64", "gradients against float64"} <= result
    assert "inputs as generated" not in result


def test_step_that_drops_half_of_its_batch_is_found(course: Course) -> None:
    assert "logits against float64" in course.outside(step=_on_other(_halve))


def _hide_half(state: Training) -> None:
    """The loss is averaged over the first half alone, while all logits are made."""
    real = state.result

    def half(result: Any) -> tuple[torch.Tensor, torch.Tensor]:
        _, logits = real(result)
        labels = _labels_now(state)
        part = slice(len(logits) // 2)
        rows = logits[part].reshape(-1, logits.shape[-1])
        loss = torch.nn.functional.cross_entropy(rows, labels[part].reshape(-1))
        return loss, logits

    state.result = half


def _labels_now(state: Training) -> torch.Tensor:
    return state.batches[state.cycle.index]["labels"]


def test_loss_over_half_of_the_batch_is_found(course: Course) -> None:
    def step(course: Course) -> Trained:
        real = course.training.result
        _hide_half(course.training)
        output = course.workload.step(course.state)
        course.training.result = real
        return output

    outcome = course.outside(step=step)
    assert {"loss against float64", "gradients against float64"} <= outcome


def _constant_logits(state: Training) -> None:
    """The last matrix is zero, so that its bias alone makes the logits."""
    with torch.no_grad():
        for weight in state.trained.values():
            weight.mul_(0 if weight.dim() > 1 else 1)


def test_constant_logits_are_found(course: Course) -> None:
    assert "logits depend on the input" in course.outside(prepare=_constant_logits)


def _freeze(state: Training) -> None:
    for group in state.optimizer.param_groups:
        group["params"] = []


def test_weights_that_no_longer_learn_are_found(course: Course) -> None:
    result = course.outside(prepare=_freeze)
    assert "tensors without a gradient or a change" in result
    assert "tensors whose moments stand still" in result
    assert "smallest update, relative to its weights" in result


def test_skipped_step_is_found(course: Course) -> None:
    def step(course: Course) -> Trained:
        optimizer = course.training.optimizer
        kept = optimizer.step
        optimizer.step = lambda *_: None  # type: ignore[method-assign, assignment]
        output = course.workload.step(course.state)
        optimizer.step = kept  # type: ignore[method-assign]
        return output

    result = course.outside(step=step)
    assert {"updated weights, given the gradients", "tensors whose moments stand still"} <= result


def _one(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return next(tensor for tensor in tensors.values() if tensor.dim() > 1)


def test_gradient_of_zero_is_found(course: Course) -> None:
    result = course.outside(spoil=lambda output: _one(output.gradients).zero_())
    assert "tensors without a gradient or a change" in result
    assert "vanishing gradient of a matrix" in result


def test_exploding_gradient_is_found(course: Course) -> None:
    result = course.outside(spoil=lambda output: _one(output.gradients).mul_(1e6))
    assert "largest gradient, relative to its weights" in result


def _spoil_moment(output: Trained) -> None:
    moments = next(iter(output.moments.values()))
    next(iter(moments.values())).reshape(-1)[0] = torch.nan


def test_one_value_that_is_not_finite_is_found_in_a_moment(course: Course) -> None:
    result = course.outside(spoil=_spoil_moment)
    assert "values that are not finite" in result
    assert "updated moments, given the gradients" in result


def test_update_out_of_proportion_is_found(course: Course) -> None:
    result = course.outside(spoil=lambda output: _one(output.weights).mul_(10))
    assert "largest update, relative to its weights" in result


def test_units_that_let_nothing_pass_are_counted_by_channel_and_by_feature() -> None:
    passes = torch.zeros(2, 4, 3, 3, dtype=torch.bool)
    passes[0, 0, 1, 1] = True
    features = torch.zeros(5, 4, dtype=torch.bool)
    features[:, 0] = True
    (result,) = rules.check_units([passes, features, torch.arange(3)], Limits())
    assert (result.error, result.is_within) == (6 / 8, False)
    assert list(rules.check_units([torch.arange(3)], Limits())) == []


# ------------------------------------------------------------------ what is frozen


class Adapted(Classifier):
    """A frozen layer, a learning one, and one whose weights it shares with the frozen one."""

    def __init__(self) -> None:
        frozen = torch.nn.Linear(6, 6)
        tied = torch.nn.Linear(6, 6)
        tied.weight = frozen.weight
        frozen.requires_grad_(requires_grad=False)
        super().__init__(frozen, torch.nn.GELU(), tied, torch.nn.Linear(6, 3))


def adapted(folder: Path, rule: Optimizer, **fields: Any) -> Training:
    model = seeded(SEED, Adapted)
    given: dict[str, Any] = {
        "model": model,
        "rule": rule,
        "optimizer": rule.make(model),
        "batches": placed([BATCH], torch.device("cpu")),
        "cycle": InputCycle(of=1),
        "dtype": torch.float32,
        "error_bounds": ErrorBounds(loss=8, logits=32, gradients=32),
        "artifacts": Artifacts(folder),
    }
    return Training(**{**given, **fields})


def judged(state: Training, spoil: Callable[[Training], None] = lambda _: None) -> list[Check]:
    before = take_snapshot(state)
    output = train_step(state)
    spoil(state)
    return list(check_step(before, state, output))


@pytest.mark.parametrize(
    "rule", [AdamW(learning_rate=1e-3), Momentum(learning_rate=0.1)], ids=["adamw", "momentum"]
)
def test_frozen_parameters_are_left_out_and_keep_their_bits(
    rule: Optimizer, tmp_path: Path
) -> None:
    state = adapted(tmp_path, rule)
    assert set(state.frozen) == {"layers.0.weight", "layers.0.bias"}
    assert set(state.trained) == {"layers.2.bias", "layers.3.weight", "layers.3.bias"}
    for _ in range(3):
        assert not outside(judged(state))

    def touch(state: Training) -> None:
        with torch.no_grad():
            _one(state.frozen)[0, 0] *= 1 + 2.0**-23

    assert "frozen tensors that changed" in outside(judged(state, touch))


def test_result_of_another_name_is_judged_alike(tmp_path: Path) -> None:
    class Sampled(Adapted):
        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> Any:
            made = super().forward(inputs, labels)
            return SimpleNamespace(total=made.loss, sample=made.logits)

    model = seeded(SEED, Sampled)
    rule = AdamW(learning_rate=1e-3)
    state = adapted(
        tmp_path,
        rule,
        model=model,
        optimizer=rule.make(model),
        result=lambda made: (made.total, made.sample),
    )
    assert not outside(judged(state))


# ------------------------------------------------------------------ checksums


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64])
def test_seal_tells_one_element_and_two_swapped_and_leaves_the_tensor_alone(
    dtype: torch.dtype,
) -> None:
    values = (torch.arange(60) % 7 - 3).to(dtype).reshape(3, 20)
    kept, checksums = values.clone(), checksum(values)
    assert torch.equal(values, kept)
    assert checksums == checksum(kept.t().contiguous().t())
    changed, swapped = kept.clone(), kept.clone()
    changed[1, 2] = 0 if changed[1, 2] else 1
    swapped[0, 0], swapped[0, 3] = kept[0, 3], kept[0, 0]
    assert (
        len({checksums, checksum(changed), checksum(swapped), checksum(kept.reshape(20, 3))}) == 4
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_checksum_of_a_long_tensor_is_that_of_its_words_one_by_one(threads: int) -> None:
    words = torch.arange(2**20 + 2**18 + 5, dtype=torch.int32).mul_(-77)
    index = np.arange(len(words), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (index.view(np.int64) ^ (index.view(np.int64) >> 29)).view(np.uint64)
    weights = mixed * np.uint64(0x2545F4914F6CDD1D) | np.uint64(1)
    total = int((words.numpy().view(np.uint32).astype(np.uint64) * weights).sum(dtype=np.uint64))
    kind = hashlib.sha256(f"torch.int32 ({len(words)},)".encode()).digest()[:8]
    with on_threads(threads):
        assert checksum(words) == (total + int.from_bytes(kind, "big")) % 2**63
