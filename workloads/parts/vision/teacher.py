"""A teacher that follows its student by averages, and what shows that it does and still teaches.

The teacher is no model in training: its weights are buffers of the model that holds both, as the
running statistics of a batch normalisation are, and no optimiser sees them. After each step they
move a small share of the way to the student's weights. The check makes that move in float64 from
the teacher's weights before the step and the student's after it: an average that was forgotten,
made twice, of other weights or with another share is off by far more than the roundings
that are allowed. A teacher that tells every input alike would be followed just as well (the
collapse that such methods fear), so what it says must vary over the batch.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts
from workloads.parts.auditing import equal_bits
from workloads.parts.auditing.fingerprint import fingerprint
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.numerics import staging
from workloads.parts.numerics.precision import LEAST_SHARE, on_host, unit_roundoff
from workloads.parts.training.checks import check_step
from workloads.parts.training.state import Before, Trained, Training
from workloads.parts.training.step import train_step
from workloads.parts.training.supervised import Replicated

_ROUNDINGS = 6
"""Of float32 allowed in an average: four happen (share, difference, product, sum), two to spare."""
_SMALLEST = 1e-30
"""Added to sizes, so that zero may stand beside zero."""
_STUDENT, _TEACHER = "student.", "teacher."
KEPT = "first_average.json"


class Taught(torch.nn.Module):
    """A student and the teacher that follows it; a subclass says what they make of their inputs."""

    def __init__(self, student: torch.nn.Module) -> None:
        super().__init__()
        self.student: Any = student
        self.teacher: Any = teacher_of(student)


def teacher_of(student: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the student whose weights are buffers."""
    teacher = copy.deepcopy(student)
    for module in teacher.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, weight.detach())
    return teacher


def follow(model: torch.nn.Module, momentum: float) -> None:
    """Move every weight of the teacher by the share 1 - momentum of the way to the student's."""
    student, teacher = model.get_submodule("student"), model.get_submodule("teacher")
    leading = dict(student.named_parameters())
    following = dict(teacher.named_buffers())
    average = get_ema_multi_avg_fn(momentum)  # type: ignore[no-untyped-call]
    average([following[name] for name in leading], list(leading.values()), 0)


def check_average(
    before: Before, output: Trained, momentum: float, artifacts: Artifacts | None = None
) -> Iterator[Check]:
    """Hold the teacher of a step to the formula, from the student's weights that it reported.

    With `artifacts` it is made once for equal bits of a large one's first step
    (`parts/auditing/equal_bits`).
    """
    pairs = {
        name: (before.statistics[name], output.weights[_leader(name)], output.statistics[name])
        for name in before.statistics
        if _leader(name) in output.weights
    }

    def seen() -> str:
        sides = zip(*pairs.values(), strict=True)
        groups = [dict(zip(pairs, side, strict=True)) for side in sides]
        return fingerprint((), groups, "average", momentum)

    def make() -> tuple[int, float]:
        return _followed(list(pairs.values()), momentum)

    num_elements = sum(old.numel() for old, _, _ in pairs.values())
    if artifacts is None or before.number != 0 or num_elements < equal_bits.FEWEST:
        still, largest = make()
    else:
        still, largest = equal_bits.once(artifacts, KEPT, seen, make)
    yield Check(name="teacher's tensors that stood still", error=still, bound=0.0, kind="exact")
    bound = _ROUNDINGS * unit_roundoff(torch.float32)
    yield Check(
        name="teacher, given the student's weights",
        error=largest,
        bound=bound,
        detects=bound,
        detects_what="error of one element, relative to the terms that make it",
    )


def _followed(
    rows: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], momentum: float
) -> tuple[int, float]:
    """Tensors of the teacher that did not move, and the largest error of an element; NaN if any."""
    looks = staging.by_parts_of(rows, lambda _, parts: _looked_at(momentum, *parts))
    still = sum(not any(has_moved for has_moved, _ in parts) for parts in looks)
    errors = torch.tensor([error for parts in looks for _, error in parts], dtype=torch.float64)
    return still, errors.max().item()


def _leader(name: str) -> str:
    return _STUDENT + name.removeprefix(_TEACHER)


def _looked_at(
    momentum: float, old: torch.Tensor, leader: torch.Tensor, new: torch.Tensor
) -> tuple[bool, float]:
    """Whether some elements of the teacher have moved, and their largest error."""
    start, goal = on_host(old), on_host(leader)
    exact = (momentum * start).add_((1 - momentum) * goal)
    size = (momentum * start.abs()).add_((1 - momentum) * goal.abs()).add_(_SMALLEST)
    largest = on_host(new).sub(exact).abs_().div_(size).max()
    return not torch.equal(old, new), largest.item()


def check_variety(answers: torch.Tensor) -> Check:
    """Refuse a teacher that tells all inputs alike; `answers` is what it says, a row per input."""
    rows = on_host(answers).flatten(1)
    share = rows.std(dim=0, correction=0).square().mean().sqrt() / rows.square().mean().sqrt()
    return Check(
        name="teacher distinguishes inputs",
        error=(LEAST_SHARE / share).item(),
        bound=1.0,
        detects=LEAST_SHARE,
        detects_what="share of the teacher's output that varies from input to input",
    )


@dataclass(frozen=True, kw_only=True)
class SelfTaught(Replicated):
    """Trains a model that is `Taught`; its teacher follows inside the step."""

    momentum: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.momentum < 1:
            raise ParameterError(f"momentum is {self.momentum}: give a share between 0 and 1")
        if self.count < 2:  # noqa: PLR2004 - one input cannot be told from another
            message = f"batch is {self.batch} and batch_change {self.batch_change}: leave 2 inputs"
            raise ParameterError(message)

    @abstractmethod
    def network(self) -> torch.nn.Module:
        """Return what learns, with fresh weights."""

    @abstractmethod
    def taught(self, network: Any) -> Taught:
        """Return it with a teacher, which begins as its student, and the loss of both."""

    def model(self) -> Taught:
        return self.taught(self.network())

    def fresh(self, drawer: Drawer, device: torch.device) -> Taught:
        return self.taught(initialized(self.network, drawer, device))

    @abstractmethod
    def teacher_output(self, output: Trained) -> torch.Tensor:
        """Return what the teacher says of each input of a step, a row per input."""

    def step(self, state: Training) -> Trained:
        output = train_step(state)
        follow(state.model, self.momentum)
        return output

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        kept_in = state.artifacts if state.peers is None else None
        yield from check_average(before, output, self.momentum, kept_in)
        yield check_variety(self.teacher_output(output))
        yield from check_step(before, state, output)
