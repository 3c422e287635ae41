"""Each result of a step against its float64: one check for each kind.

The new weights and moments are held to the optimiser's formula in float64, fed with the gradients
that the device reported: about ten roundings of float32, whatever the model. Loss, gradients and
running statistics are held to the reference, within `ErrorBounds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from appliance.records.journal import Check
from workloads.parts.numerics.precision import on_host, unit_roundoff
from workloads.parts.training.optimizers import Optimizer, Tensors, Updated
from workloads.parts.training.reference import Reference
from workloads.parts.training.state import Before, Trained, Training

_ROUNDINGS = 16
"""Unit roundoffs of the weights' format allowed in one updated element: ten happen in float32."""
FLOOR, FLOOR_OF_SUMS = 0.01, 0.03
"""Share of the whole gradient's norm below which one tensor's own norm is no yardstick.

The gradient of an attention's key bias is zero but for rounding: relative to itself it is all
error. The gradients of biases and scales are sums over all places, whose terms may all but
cancel."""
_FEW_ROWS = 2
"""Rows of a matrix that sums as much as a bias does: the embedding of BERT's two kinds of text."""
_SMALLEST = 1e-30
"""Added to sizes, so that zero, and what a device flushes to zero, may stand beside zero."""
GRADIENTS = "gradients against float64"


def check_update(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    errors = [
        update_errors(
            state.rule,
            before.number,
            (weight, before.moments[name]),
            output.gradients[name],
            (output.weights[name], output.moments[name]),
        )
        for name, weight in before.weights.items()
        if weight.numel()  # a rank's part of a small tensor may be nothing
    ]
    bound = _ROUNDINGS * max(unit_roundoff(weight.dtype) for weight in before.weights.values())
    for index, kind in enumerate(("weights", "moments")):
        yield Check(
            name=f"updated {kind}, given the gradients",
            error=_largest([pair[index] for pair in errors]),
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def update_errors(
    rule: Optimizer,
    number: int,
    start: tuple[torch.Tensor, Tensors],
    gradient: torch.Tensor,
    end: tuple[torch.Tensor, Tensors],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest errors of one weight and of its moments; `start` and `end` are of these two."""
    moments = {key: on_host(moment) for key, moment in start[1].items()}
    updated = dict(rule.update(on_host(start[0]), on_host(gradient), moments, number))
    weight = _distance(end[0], updated.pop("weight"))
    others = [_distance(end[1].get(key), exact) for key, exact in updated.items()]
    return weight, torch.stack(others).max() if others else torch.zeros(())


def _distance(actual: torch.Tensor | None, exact: Updated) -> torch.Tensor:
    """A moment that the optimiser has not made is zero, as before its first step."""
    distance = exact.value if actual is None else on_host(actual) - exact.value
    return (distance.abs() / exact.size.add_(_SMALLEST)).max()


def check_loss(output: torch.Tensor, reference: torch.Tensor, bound: float) -> Check:
    """Relative to one nat at least: a loss near zero is the difference of large numbers."""
    error = (on_host(output) - reference).abs() / reference.abs().clamp(min=1.0)
    return Check(
        name="loss against float64",
        error=error.item(),
        bound=bound,
        detects=bound,
        detects_what="error of the loss, relative to itself or to 1 if that is more",
    )


def check_branch_points(switched: float, bound: float) -> Check:
    return Check(
        name="units on the other side of a branch point",
        error=switched,
        bound=bound,
        detects=bound,
        detects_what=(
            "distance of one from its branch point, in units of its layer's root mean square"
        ),
    )


def check_gradients(
    output: Tensors, reference: Tensors, bound: float, name: str = GRADIENTS
) -> Check:
    norms = {name: distance_of(None, exact) for name, exact in reference.items()}
    total = torch.stack(list(norms.values())).norm()
    errors = [
        distance_of(output[key], exact) / (norms[key] + _floor(exact) * total)
        for key, exact in reference.items()
    ]
    return Check(
        name=name,
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one tensor's gradient, relative to its norm",
    )


def _floor(exact: torch.Tensor) -> float:
    if exact.numel() == 1:
        return 1.0  # all of a batch added up: what is left may be nought while each term is not
    is_sum = exact.dim() <= 1 or len(exact) <= _FEW_ROWS
    return FLOOR_OF_SUMS if is_sum else FLOOR


def distance_of(output: torch.Tensor | None, exact: torch.Tensor) -> torch.Tensor:
    """Norm of the difference, or of the exact tensor alone."""
    distance = exact.double() if output is None else on_host(output) - exact
    norm: torch.Tensor = torch.linalg.vector_norm(distance)
    return norm


def check_statistics(output: Trained, reference: Reference, bound: float) -> Iterator[Check]:
    yield from check_statistics_of(output.statistics, reference.statistics, bound)


def check_statistics_of(actual: Tensors, exact: Tensors, bound: float) -> Iterator[Check]:
    """Hold running statistics, or drawn channels of them, to those of float64."""
    pairs = [(actual[name], one) for name, one in exact.items()]
    errors = [
        (on_host(one) - other).abs().max() / other.abs().max()
        for one, other in pairs
        if other.is_floating_point()
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


def other_shape(output: torch.Tensor, reference: torch.Tensor) -> Check:
    """A step on a part of its batch, say; nothing else of it can be compared."""
    shapes = " for ".join(str(tuple(tensor.shape)) for tensor in (output, reference))
    return Check(
        name="logits against float64",
        error=math.inf,
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what=f"dimension of another size: {shapes}",
    )
