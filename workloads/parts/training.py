"""One training step that can be followed in float64: what it made, and whether that is right.

A step is forward, loss, backward and optimiser, in float32 or by automatic mixed precision over
float32 weights. Its output is everything that it made, and it is judged in two halves. The new
weights and moments are held to the optimiser's formula in float64, fed with the gradients that
the device reported: about ten roundings of float32, whatever the model. Loss, logits, gradients
and running statistics are held to the same step in float64 on the host, from copies of what it
started from; their bounds are multiples of one rounding (`Growth`), measured by each workload.
The float64 result of the first step is made once per run and read by its launches.

Where a network has rectifiers or maxima, the check repeats the device's forward pass, untimed,
and float64 follows on the sides of zero that it took (`parts/kinks.py`): then the gradients are
as smooth as those of any network, and a backward pass alone in a lower precision shows. If the
repeated pass does not give the step's logits to the bit, its sides may not be those of the step:
a switched unit must then be allowed for, and the check says that it detects no less.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from appliance.records import Check
from workloads.contract import Artifacts, Turn
from workloads.parts import kinks
from workloads.parts.dropout import generator_of
from workloads.parts.optimizers import Optimizer, Tensors, Updated
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

Allowed only where the device's forward pass does not give the same bits twice.

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
    one unit's gradient on or off, which no multiple of a rounding bounds. `kinks`: roundings by
    which an input of theirs may be off, in units of its root mean square.
    """

    loss: float
    logits: float
    gradients: float
    statistics: float | None = None
    has_kinks: bool = False
    kinks: float = 100

    def bound_gradients(self, dtype: torch.dtype, *, is_followed: bool) -> float:
        """Largest relative error of one tensor's gradient.

        `is_followed`: float64 took the sides of the kinks that the device took.
        """
        smooth = self.gradients * rounding(dtype)
        if is_followed or not self.has_kinks:
            return smooth
        return smooth + SWITCHED + KINKS * math.sqrt(rounding(dtype))


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
    """What float64 makes of a step before its optimiser; rounded to float32 but for the loss.

    `choices` is the digest of the sides of the kinks that it took from the device, `switched`
    how far the furthest that float64 would not have taken lies from its kink.
    """

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    statistics: Tensors
    choices: str
    switched: float


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


def _repeated(before: Before, state: Training) -> tuple[kinks.Choices, torch.Tensor]:
    """The device's forward pass once more: the sides of the kinks that it takes, and its logits."""
    weight = next(state.model.parameters())
    model = _at_start(before, copy.deepcopy(state.model))
    batch = {name: tensor.to(weight.device, copy=True) for name, tensor in before.batch.items()}
    with kinks.Recorded() as recorded, torch.no_grad():
        _, logits = _forward(model, batch, state.dtype)
    return recorded.choices, logits


def _reference(before: Before, state: Training, choices: kinks.Choices) -> Reference:
    """Float64 result of the step; that of the first is made once per run.

    A device that took other sides at the first step than the one that made the file has the
    result computed for its own.
    """
    if before.number > 0:
        return _compute(before, state, choices)

    def make(path: Path) -> None:
        torch.save(vars(_compute(before, state, choices)), path)

    path = state.artifacts.once("first_step_float64.pt", make)
    reference = Reference(**torch.load(path, weights_only=True))
    if reference.choices != kinks.digest(choices):
        return _compute(before, state, choices)
    return reference


def _compute(before: Before, state: Training, choices: kinks.Choices) -> Reference:
    model = _at_start(before, copy.deepcopy(state.model).cpu().double())
    batch = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in before.batch.items()
    }
    imposed = kinks.Imposed(choices)
    if state.growth.has_kinks:
        with imposed:
            loss, logits = _forward(model, batch, torch.float64)
    else:
        loss, logits = _forward(model, batch, torch.float64)
    torch.autograd.backward(loss)
    if state.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), state.clip)
    return Reference(
        loss=loss.detach(),
        logits=logits.detach().float(),
        gradients={name: gradient(p).float() for name, p in model.named_parameters()},
        statistics=_copied(_statistics(model)),
        choices=kinks.digest(choices),
        switched=imposed.close(),
    )


def _at_start(before: Before, model: torch.nn.Module) -> torch.nn.Module:
    """The given copy of the model, as it was when the step began."""
    model.train()
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
    choices, is_followed = _choices(before, state, output)
    reference = _reference(before, state, choices)
    yield _check_loss(output.loss, reference.loss, state.growth.loss * rounding(state.dtype))
    yield from compare_logits(
        output.logits, reference.logits, growth=state.growth.logits, dtype=state.dtype
    )
    if state.growth.has_kinks:
        yield _check_kinks(reference.switched, state.growth.kinks * rounding(state.dtype))
    bound = state.growth.bound_gradients(state.dtype, is_followed=is_followed)
    yield _check_gradients(output.gradients, reference.gradients, bound)
    if state.growth.statistics is not None:
        bound = state.growth.statistics * rounding(state.dtype)
        yield from _check_statistics(output, reference, bound)


def _choices(before: Before, state: Training, output: Trained) -> tuple[kinks.Choices, bool]:
    """The sides of the kinks for float64 to follow, and whether they are surely the step's.

    Equal bits of all logits come of equal activations.
    """
    if not state.growth.has_kinks:
        return (), True
    choices, logits = _repeated(before, state)
    return choices, bool(choices) and torch.equal(logits, output.logits)


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
    errors = [
        _update_errors(
            state.rule,
            before.number,
            (weight, before.moments[name]),
            output.gradients[name],
            (output.weights[name], output.moments[name]),
        )
        for name, weight in before.weights.items()
    ]
    bound = _ROUNDINGS * unit_roundoff(torch.float32)
    for index, kind in enumerate(("weights", "moments")):
        yield Check(
            name=f"updated {kind}, given the gradients",
            error=_largest([pair[index] for pair in errors]),
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def _update_errors(
    rule: Optimizer,
    number: int,
    start: tuple[torch.Tensor, Tensors],
    slope: torch.Tensor,
    end: tuple[torch.Tensor, Tensors],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest errors of one weight and of its moments; `start` and `end` are of these two."""
    moments = {key: on_host(moment) for key, moment in start[1].items()}
    updated = dict(rule.update(on_host(start[0]), on_host(slope), moments, number))
    weight = _distance(end[0], updated.pop("weight"))
    others = [_distance(end[1].get(key), exact) for key, exact in updated.items()]
    return weight, torch.stack(others).max() if others else torch.zeros(())


def _distance(actual: torch.Tensor | None, exact: Updated) -> torch.Tensor:
    """A moment that the optimiser has not made is zero, as before its first step."""
    distance = exact.value if actual is None else on_host(actual) - exact.value
    return (distance.abs() / exact.size.add_(_SMALLEST)).max()


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


def _check_kinks(switched: float, bound: float) -> Check:
    return Check(
        name="units on the other side of a kink",
        error=switched,
        bound=bound,
        detects=bound,
        detects_what="distance of one from its kink, in units of its layer's root mean square",
    )


def _check_gradients(output: Tensors, reference: Tensors, bound: float) -> Check:
    norms = {name: _distance_of(None, exact) for name, exact in reference.items()}
    floor = _FLOOR * torch.stack(list(norms.values())).norm()
    errors = [
        _distance_of(output[name], exact) / (norms[name] + floor)
        for name, exact in reference.items()
    ]
    return Check(
        name="gradients against float64",
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one tensor's gradient, relative to its norm",
    )


def _distance_of(output: torch.Tensor | None, exact: torch.Tensor) -> torch.Tensor:
    """Norm of the difference, or of the exact tensor alone."""
    distance = exact.double() if output is None else on_host(output) - exact
    norm: torch.Tensor = torch.linalg.vector_norm(distance)
    return norm


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
