"""One training step that can be followed in float64: what it made, and whether that is right.

A step is forward, loss, backward and optimiser, in float32 or by automatic mixed precision over
float32 weights. Its output is everything that it made, and it is judged in two halves. The new
weights and moments are held to the optimiser's formula in float64, fed with the gradients that
the device reported: about ten roundings of float32, whatever the model. Loss, logits, gradients
and running statistics are held to the same step in float64 on the host, from copies of what it
started from; their bounds are multiples of one rounding (`Growth`), measured by each workload.
The float64 result of the first step is made once per run and read by its launches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from appliance.records import Check
from workloads.contract import Artifacts, Turn
from workloads.parts.dropout import generator_of
from workloads.parts.optimizers import Optimizer, Tensors
from workloads.parts.precision import compare_logits, on_host, rounding, unit_roundoff

Model = TypeVar("Model", bound=torch.nn.Module)

_ROUNDINGS = 16
"""Unit roundoffs of float32 allowed in one updated element: ten happen, six are to spare."""
_FLOOR = 0.01
"""Share of the whole gradient's norm below which one tensor's own norm is no yardstick.

The gradient of an attention's key bias is zero but for rounding: relative to itself it is all
error."""
SWITCHED, KINKS = 0.1, 8.0
"""What units that switch may do to a gradient: one alone, and as a share of very many.

A unit switches if it lies within the error of zero, so their share goes with a rounding, and
the gradient's relative error with its root. ResNet-50 in bfloat16 was seen at 4.2 roots; in
float32, where one or no unit switches, at 0.013 at most in 26 steps of 4 images."""
_SMALLEST = 1e-30
"""Added to sizes, so that zero, and what a device flushes to zero, may stand beside zero."""
_LOSS_SCALE = 1024.0
"""For float16 alone, whose smallest normal number is 6e-5; a power of two rounds nothing."""


class Batches(Protocol):
    """Inputs of steps, by index: keyword arguments of the model, on the device."""

    def __getitem__(self, index: int, /) -> Tensors: ...


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Roundings of the dtype that a healthy step may be off, for each kind of result.

    `has_kinks`: the network has rectifiers or maxima, so that a rounding now and then switches
    one unit's gradient on or off, which no multiple of a rounding bounds.
    """

    loss: float
    logits: float
    gradients: float
    statistics: float | None = None
    has_kinks: bool = False

    def bound_gradients(self, dtype: torch.dtype) -> float:
        """Largest relative error of one tensor's gradient."""
        smooth = self.gradients * rounding(dtype)
        return smooth + (SWITCHED + KINKS * rounding(dtype) ** 0.5 if self.has_kinks else 0.0)


@dataclass(kw_only=True)
class Training:
    """A model in training, whose forward pass returns an object with `loss` and `logits`.

    `clip` is the largest norm of the whole gradient, or None.
    """

    model: torch.nn.Module
    rule: Optimizer
    optimizer: torch.optim.Optimizer
    batches: Batches
    turn: Turn
    dtype: torch.dtype
    growth: Growth
    artifacts: Artifacts
    clip: float | None = None


@dataclass(kw_only=True)
class Trained:
    """Everything that a step made. Weights, moments and statistics are those of the model."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors


@dataclass(frozen=True, kw_only=True)
class Before:
    """Copies on the host of what the next step starts from."""

    number: int
    batch: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors
    noise: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What float64 makes of a step before its optimiser; rounded to float32 but for the loss."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    statistics: Tensors


def seeded(seed: int, make: Callable[[], Model]) -> Model:
    """Build with torch's own generator seeded on the host, and put that back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


# ------------------------------------------------------------------ the step


def step(state: Training) -> Trained:
    """Train on the next batch."""
    batch = state.batches[state.turn.advance()]
    for group in state.optimizer.param_groups:
        group["lr"] = state.rule.rate_at(state.turn.number)
    state.optimizer.zero_grad(set_to_none=True)
    loss, logits = _forward(state.model, batch, state.dtype)
    _backward(state, loss)
    state.optimizer.step()
    weights = dict(state.model.named_parameters())
    return Trained(
        loss=loss.detach(),
        logits=logits.detach(),
        gradients={name: gradient(weight) for name, weight in weights.items()},
        weights={name: weight.detach() for name, weight in weights.items()},
        moments=_moments(state),
        statistics=_statistics(state.model),
    )


def _forward(
    model: torch.nn.Module, batch: Tensors, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    kind = next(iter(batch.values())).device.type
    if dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(kind, dtype=dtype):
            result = model(**batch)
    else:
        result = model(**batch)
    return result.loss, result.logits


def _backward(state: Training, loss: torch.Tensor) -> None:
    scale = _LOSS_SCALE if state.dtype is torch.float16 else 1.0
    torch.autograd.backward(loss * scale)
    if scale != 1.0:
        for parameter in state.model.parameters():
            gradient(parameter).div_(scale)
    if state.clip is not None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), state.clip)


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Gradient of a parameter; raises if the backward pass did not reach it."""
    if parameter.grad is None:
        message = f"the backward pass left a parameter of shape {tuple(parameter.shape)} out"
        raise RuntimeError(message)
    return parameter.grad


def _moments(state: Training) -> dict[str, dict[str, torch.Tensor]]:
    """By parameter, the optimiser's tensors of its shape; its step counter is no moment."""
    return {
        name: {
            key: value
            for key, value in state.optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape and key != "step"
        }
        for name, parameter in state.model.named_parameters()
    }


def _statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Running statistics: the buffers that belong to the model's state."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


# ------------------------------------------------------------------ what float64 makes of it


def snapshot(state: Training) -> Before:
    """Copy to the host what the next step starts from."""
    number = state.turn.number + 1
    generator = generator_of(state.model)
    return Before(
        number=number,
        batch=_copied(state.batches[number % state.turn.of]),
        weights=_copied(dict(state.model.named_parameters())),
        moments={name: _copied(moments) for name, moments in _moments(state).items()},
        statistics=_copied(_statistics(state.model)),
        noise=None if generator is None else generator.get_state(),
    )


def _copied(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _reference(before: Before, state: Training) -> Reference:
    """Float64 result of the step; that of the first is made once per run."""
    if before.number > 0:
        return _compute(before, state)

    def make(path: Path) -> None:
        torch.save(vars(_compute(before, state)), path)

    path = state.artifacts.once("first_step_float64.pt", make)
    return Reference(**torch.load(path, weights_only=True))


def _compute(before: Before, state: Training) -> Reference:
    model = _in_float64(before, state.model)
    batch = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in before.batch.items()
    }
    loss, logits = _forward(model, batch, torch.float64)
    torch.autograd.backward(loss)
    if state.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), state.clip)
    return Reference(
        loss=loss.detach(),
        logits=logits.detach().float(),
        gradients={name: gradient(p).float() for name, p in model.named_parameters()},
        statistics=_copied(_statistics(model)),
    )


def _in_float64(before: Before, model: torch.nn.Module) -> torch.nn.Module:
    model = copy.deepcopy(model).cpu().double().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(before.weights[name])
        for name, buffer in _statistics(model).items():
            buffer.copy_(before.statistics[name])
    generator = generator_of(model)
    if generator is not None and before.noise is not None:
        generator.set_state(before.noise)
    return model


# ------------------------------------------------------------------ the judgement


def check(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    """Judge everything that the step made; the cheap checks first."""
    yield _check_learning(before, output)
    yield from _check_update(before, state, output)
    reference = _reference(before, state)
    yield _check_loss(output.loss, reference.loss, state.growth.loss * rounding(state.dtype))
    yield from compare_logits(
        output.logits, reference.logits, growth=state.growth.logits, dtype=state.dtype
    )
    bound = state.growth.bound_gradients(state.dtype)
    yield _check_gradients(output.gradients, reference.gradients, bound)
    if state.growth.statistics is not None:
        bound = state.growth.statistics * rounding(state.dtype)
        yield from _check_statistics(output, reference, bound)


def _check_learning(before: Before, output: Trained) -> Check:
    """A model that stands still agrees with itself; so what stands still is counted."""
    still = [
        name
        for name, weight in before.weights.items()
        if not output.gradients[name].any() or torch.equal(output.weights[name].cpu(), weight)
    ]
    name = "tensors without a gradient or a change"
    return Check(name=name, error=len(still), bound=0.0, kind="exact")


def _check_update(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    errors: dict[str, list[torch.Tensor]] = {"weights": [], "moments": []}
    for name, weight in before.weights.items():
        moments = {key: on_host(moment) for key, moment in before.moments[name].items()}
        slope = on_host(output.gradients[name])
        updated = state.rule.update(on_host(weight), slope, moments, before.number)
        for key, exact in updated.items():
            kind = "weights" if key == "weight" else "moments"
            actual = output.weights[name] if key == "weight" else output.moments[name][key]
            distance = (on_host(actual) - exact.value).abs_()
            errors[kind].append((distance / exact.size.add_(_SMALLEST)).max())
    bound = _ROUNDINGS * unit_roundoff(torch.float32)
    for kind, worst in errors.items():
        yield Check(
            name=f"updated {kind}, given the gradients",
            error=_largest(worst),
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def _check_loss(output: torch.Tensor, reference: torch.Tensor, bound: float) -> Check:
    """Relative to one nat at least: a loss near zero is the difference of large numbers."""
    error = (on_host(output) - reference).abs() / reference.abs().clamp(min=1.0)
    return Check(
        name="loss against float64",
        error=error.item(),
        bound=bound,
        detects=bound,
        detects_what="error of the loss, relative to itself or to 1 if that is more",
    )


def _check_gradients(output: Tensors, reference: Tensors, bound: float) -> Check:
    norms = {name: exact.double().norm() for name, exact in reference.items()}
    floor = _FLOOR * torch.stack(list(norms.values())).norm()
    errors = [
        (on_host(output[name]) - exact).norm() / (norms[name] + floor)
        for name, exact in reference.items()
    ]
    return Check(
        name="gradients against float64",
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one tensor's gradient, relative to its norm",
    )


def _check_statistics(output: Trained, reference: Reference, bound: float) -> Iterator[Check]:
    pairs = [(output.statistics[name], exact) for name, exact in reference.statistics.items()]
    errors = [
        (on_host(actual) - exact).abs().max() / exact.abs().max()
        for actual, exact in pairs
        if exact.is_floating_point()
    ]
    yield Check(
        name="running statistics against float64",
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one channel, relative to the largest of its layer",
    )
    counters = [pair for pair in pairs if not pair[1].is_floating_point()]
    wrong = sum(not torch.equal(actual.cpu(), exact) for actual, exact in counters)
    name = "counters of the running statistics"
    yield Check(name=name, error=wrong, bound=0.0, kind="exact")


def _largest(errors: list[torch.Tensor]) -> float:
    """Largest error; NaN if there is one, which Python's max would hide."""
    return torch.stack(errors).max().item()
