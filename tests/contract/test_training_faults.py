"""Training that goes wrong as a whole, of every workload in workloads/ that has a `Training`.

Other than a spoiled number, these faults make a step that is in itself consistent: a device, a
driver or a library that did so would report numbers that fit each other. Nothing is listed but what
a workload calls its targets, where that is not labels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch
import trial
from leaves import instances
from trial import MODULES, Moment, Trial

from workloads.parts.curves import curves
from workloads.parts.training.state import Training

CHANGES: dict[str, dict[str, int]] = {"llava": {"batch": 4}}
"""Where small is a batch of one, which has no half."""
TARGETS = {"diffusion": "noise", "rlhf": "advantages", "vjepa": "hidden_0", "dinov2_giant": "masks"}
"""What a model is to learn, where it is not called labels or targets."""
HEADS = {"recursiongfn": ("stop", "add", "attach")}
"""Layers that make the logits, where they are several."""
Batch = dict[str, torch.Tensor]
Spoil = Callable[[Batch, str], None]


@dataclass(frozen=True)
class Walk:
    """What one step of a workload shows: inputs of its models by name, the layers of its logits."""

    batch: Batch
    heads: tuple[str, ...]


@pytest.fixture(params=MODULES, scope="module")
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    kind = trial.load(request.param)
    changes = trial.QUICKER.get(request.param, {}) | CHANGES.get(request.param, {})
    workload = kind(**{**kind.small, **changes})
    if trial.missing_data(workload) or trial.lacking(workload):
        pytest.skip("needs what is not here")
    if kind.is_timed and not curves.is_training(kind):
        pytest.skip("no step of it has a loss")
    if "jax" in kind.needs:
        pytest.skip("trains by a program of JAX: see test_jax_training_faults.py")
    return Trial(workload, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def walk(subject: Trial) -> Walk:
    """One step, of which every test asks something."""
    state = subject.build()
    if not instances(state, Training):
        pytest.skip("trains nothing that parts/training judges")
    batches: list[Batch] = []
    called: list[torch.nn.Module] = []
    with contextlib.ExitStack() as stack:
        for one in instances(state, Training):
            for module in one.model.modules():
                if any(p.dim() > 1 and p.requires_grad for p in module.parameters(recurse=False)):
                    handle = module.register_forward_hook(lambda own, *_: called.append(own))
                    stack.callback(handle.remove)
        stack.enter_context(intercepted(state, lambda batch: batches.append(dict(batch))))
        subject.workload.step(state)
    assert called, "no layer was seen"
    names = (
        name
        for one in instances(state, Training)
        for name, module in one.model.named_modules()
        if module is called[-1]
    )
    return Walk(batches[0] if batches else {}, (next(names),))


@pytest.fixture
def target(request: pytest.FixtureRequest, walk: Walk) -> str | None:
    """Name of the targets among the model's inputs, if they are one by sample."""
    name = request.node.callspec.params["subject"]
    return TARGETS.get(name) or _target_of(walk.batch)


def _target_of(batch: Batch) -> str | None:
    return next((name for name in ("labels", "targets") if name in batch), None)


@contextlib.contextmanager
def intercepted(state: Any, spoil: Callable[[Batch], None]) -> Iterator[None]:
    """While it is entered, `spoil` may replace tensors of what models are given to learn from."""

    def before(_: object, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not named:
            return None  # asked by position: how good it is by now, which trains nothing
        batch = dict(named)
        spoil(batch)
        return arguments, batch

    with contextlib.ExitStack() as stack:
        for one in instances(state, Training):
            handle = one.model.register_forward_pre_hook(before, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def spoiled(subject: Trial, spoil: Callable[[Batch], bool]) -> tuple[bool, Moment]:
    """A step on other inputs than its own, and whether `spoil` said that it changed one."""
    changes: list[bool] = []
    moment = subject.next(
        subject.build(), lambda state: intercepted(state, lambda b: changes.append(spoil(b)))
    )
    return any(changes), moment


def rejected(subject: Trial, moment: Moment) -> bool:
    return subject.is_rejected(moment, moment.output)


# ------------------------------------------------------------------ inputs


def test_swapped_labels_are_rejected(subject: Trial, target: str | None) -> None:
    """The targets of two samples that differ."""
    if target is None:
        pytest.skip("has no targets by sample among its inputs")

    def swap(batch: Batch) -> bool:
        old = batch[target]
        others = [row for row in range(1, len(old)) if not torch.equal(old[0], old[row])]
        if not others:
            return False
        order = torch.arange(len(old), device=old.device)
        order[0], order[others[0]] = others[0], 0
        batch[target] = old[order]
        return True

    is_changed, moment = spoiled(subject, swap)
    assert is_changed, f"no two samples differ in {target}"
    assert rejected(subject, moment)


def test_half_of_the_batch_taken_twice_is_rejected(subject: Trial, target: str | None) -> None:
    """The loss is then the mean over half of the samples."""
    if target is None:
        pytest.skip("has no targets by sample among its inputs")

    def halve(batch: Batch) -> bool:
        count = len(batch[target])
        if count < 2:
            return False
        rows = torch.arange(count, device=batch[target].device) % ((count + 1) // 2)
        for name, tensor in batch.items():
            if isinstance(tensor, torch.Tensor) and len(tensor) == count:
                batch[name] = tensor[rows]
        return True

    is_changed, moment = spoiled(subject, halve)
    assert is_changed, "the batch has no half"
    assert rejected(subject, moment)


# ------------------------------------------------------------------ weights


@contextlib.contextmanager
def standing(state: Any) -> Iterator[None]:
    """Weights are put back after each update, while the optimiser's moments go on."""
    with contextlib.ExitStack() as stack:
        for optimizer in instances(state, torch.optim.Optimizer):
            stack.enter_context(mock.patch.object(optimizer, "step", _put_back(optimizer)))
        yield


def _put_back(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    real = optimizer.step

    def step(*arguments: Any, **named: Any) -> Any:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        kept = [weight.detach().clone() for weight in weights]
        made = real(*arguments, **named)
        with torch.no_grad():
            for weight, old in zip(weights, kept, strict=True):
                weight.copy_(old)
        return made

    return step


def test_frozen_weights_are_rejected(subject: Trial, walk: Walk) -> None:
    assert rejected(subject, subject.next(subject.build(), standing))


def test_logits_that_say_the_same_of_every_input_are_rejected(
    request: pytest.FixtureRequest, subject: Trial, walk: Walk
) -> None:
    """The weights of the last layer are zero before the step begins, so that float64 agrees."""
    names = HEADS.get(request.node.callspec.params["subject"]) or walk.heads
    fresh = subject.build()
    with torch.no_grad():
        for one in instances(fresh, Training):
            for layer in names:
                for parameter in one.model.get_submodule(layer).parameters(recurse=False):
                    parameter.zero_()
    assert rejected(subject, subject.next(fresh, lambda _: contextlib.nullcontext()))
