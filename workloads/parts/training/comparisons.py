"""Each result of a step against its float64: one check for each kind.

The new weights and moments are held to the optimiser's formula in float64, fed with the gradients
that the device reported: about ten roundings of float32, whatever the model. Loss, gradients and
running statistics are held to the reference, within `ErrorBounds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from appliance.records.journal import Check
from workloads.parts.auditing import equal_bits
from workloads.parts.auditing.fingerprint import fingerprint
from workloads.parts.numerics import staging
from workloads.parts.numerics.precision import on_host, unit_roundoff
from workloads.parts.training import rules
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
KEPT = "first_update.json"


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What one pass over a tensor of weights says: the facts, and the largest errors of its update.

    An error is None of a rank's part of a small tensor, which may be nothing.
    """

    facts: rules.Facts
    weights: float | None
    moments: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A tensor of weights with its moments, before the step on the host and after it."""

    start: tuple[torch.Tensor, Tensors]
    gradient: torch.Tensor
    end: tuple[torch.Tensor, Tensors]

    def tensors(self) -> list[torch.Tensor]:
        moments = (*self.start[1].values(), *self.end[1].values())
        return [self.start[0], self.end[0], self.gradient, *moments]

    def of_parts(self, parts: Sequence[torch.Tensor]) -> Row:
        """The same of some of the elements of `tensors`; a matrix stays one, of a single row."""
        if self.start[0].dim() > 1:
            parts = [part.unsqueeze(0) for part in parts]
        before, after, gradient, *moments = parts
        split = len(self.start[1])
        return Row(
            start=(before, dict(zip(self.start[1], moments[:split], strict=True))),
            gradient=gradient,
            end=(after, dict(zip(self.end[1], moments[split:], strict=True))),
        )


def examine(before: Before, state: Training, output: Trained) -> dict[str, Examined]:
    """Look at every tensor of weights, its gradient and its moments, each of which is read once."""
    rows = [
        Row(
            start=(weight, before.moments[name]),
            gradient=output.gradients[name],
            end=(output.weights[name], output.moments[name]),
        )
        for name, weight in before.weights.items()
    ]
    results = examined(state.rule, before.number, rows)
    return dict(zip(before.weights, results, strict=True))


def examine_once(before: Before, state: Training, output: Trained) -> dict[str, Examined]:
    """The same, of a large model's first step made once a run and read where its bits are equal.

    What it says follows from the weights and moments before and after the step, the gradients and
    the rule, and from nothing else (`parts/auditing/equal_bits`). A step after the first is looked
    at in each launch.
    """
    num_weights = sum(weight.numel() for weight in before.weights.values())
    if before.number != 0 or state.peers is not None or num_weights < equal_bits.FEWEST:
        return examine(before, state, output)

    def make() -> dict[str, dict[str, Any]]:
        return {name: asdict(one) for name, one in examine(before, state, output).items()}

    def seen() -> str:
        return _seen(before, state, output)

    kept = equal_bits.once(state.artifacts, KEPT, seen, make)
    return {
        name: Examined(**{**one, "facts": rules.Facts(**one["facts"])})
        for name, one in kept.items()
    }


def _seen(before: Before, state: Training, output: Trained) -> str:
    """Of every bit that is looked at, and of the rule that it is held to."""
    moments = [
        {f"{name} {key}": one for name, some in of.items() for key, one in some.items()}
        for of in (before.moments, output.moments)
    ]
    weights = (before.weights, output.weights, output.gradients)
    return fingerprint((), (*weights, *moments), state.rule, before.number)


def examined(rule: Optimizer, number: int, rows: Sequence[Row]) -> list[Examined]:
    """Each tensor of a step with this number, part by part on all threads."""

    def look(index: int, parts: list[torch.Tensor]) -> tuple[rules.Part, list[float]]:
        row = rows[index].of_parts(parts)
        facts = rules.look_at(row.start, row.gradient, row.end)
        return facts, update_errors(rule, number, row)

    looks = staging.by_parts_of([row.tensors() for row in rows], look)
    return [_joined(row, some) for row, some in zip(rows, looks, strict=True)]


def _joined(row: Row, looks: Sequence[tuple[rules.Part, list[float]]]) -> Examined:
    parts = [part for part, _ in looks]
    errors = torch.tensor([some for _, some in looks], dtype=torch.float64)
    largest = [None, None] if not looks else errors.amax(0).tolist()  # NaN if there is one
    return Examined(
        facts=rules.facts(row.start[0], parts, has_moments=bool(row.end[1])),
        weights=largest[0],
        moments=largest[1],
    )


def check_update(before: Before, tensors: Mapping[str, Examined]) -> Iterator[Check]:
    bound = _ROUNDINGS * max(unit_roundoff(weight.dtype) for weight in before.weights.values())
    for kind in ("weights", "moments"):
        errors = [getattr(one, kind) for one in tensors.values() if getattr(one, kind) is not None]
        yield Check(
            name=f"updated {kind}, given the gradients",
            error=torch.tensor(errors, dtype=torch.float64).max().item(),  # NaN if there is one
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def update_errors(rule: Optimizer, number: int, row: Row) -> list[float]:
    """Largest errors of some weights and of their moments."""
    moments = {key: on_host(moment) for key, moment in row.start[1].items()}
    exact = dict(rule.update(on_host(row.start[0]), on_host(row.gradient), moments, number))
    weight = _distance(row.end[0], exact.pop("weight"))
    others = [_distance(row.end[1].get(key), one) for key, one in exact.items()]
    return [weight.item(), torch.stack(others).max().item() if others else 0.0]


def _distance(actual: torch.Tensor | None, exact: Updated) -> torch.Tensor:
    """A moment that the optimiser has not made is zero, as before its first step."""
    distance = exact.value if actual is None else on_host(actual).sub(exact.value)
    return distance.abs().div_(exact.size.add_(_SMALLEST)).max()


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
