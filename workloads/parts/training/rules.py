"""Rules that every healthy training step keeps, as those watch who debug one.

A step may agree with float64 and still train nothing: a model that was built wrong is followed
faithfully. So these look at the health of the training itself, each with its evidence:

- values that are not finite are counted, in weights, moments, gradients, loss and logits;
- the norm of a tensor's gradient, relative to that of its weights, must not explode; of a matrix
  it must not vanish beside the largest of them (beside, because all of them fall together as a
  network learns its inputs by heart);
- no tensor's moments may stand still, and no update be out of proportion to its weights;
- not most of the rectified units may be zero for the whole batch.

The limits are wide: what is healthy differs by orders of magnitude from one model to another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from appliance.records.journal import Check

Tensors = Mapping[str, torch.Tensor]
_SMALL_WEIGHT = 0.01
"""Size of one weight below which it is no yardstick: biases and adapters begin at zero."""
_ORDERED = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
_IMAGES = 4  # dimensions, from which on the second is the channels; else the last


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a healthy step keeps; `vanishing` is what float32 loses beside the largest."""

    vanishing: float = 2.0**-24
    exploding: float = 1e3
    least_update: float = 1e-8
    largest_update: float = 2.0
    dead: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Of one tensor of weights: what is not finite, its norms, and what moved."""

    num_broken: int
    is_matrix: bool
    weights: float
    gradient: float
    update: float
    has_gradient: bool
    has_changed: bool
    has_still_moments: bool


@dataclass(frozen=True, kw_only=True)
class Part:
    """The same of some of its elements; the weights' norm is as it was before the step."""

    num_broken: int
    weights: float
    gradient: float
    update: float
    has_gradient: bool
    has_changed: bool
    has_moved: bool


def look_at(
    start: tuple[torch.Tensor, Tensors],
    gradient: torch.Tensor,
    end: tuple[torch.Tensor, Tensors],
) -> Part:
    """Look at elements that lie on the host; `start` and `end` are of weight and moments."""
    before, after = start[0], end[0]
    return Part(
        num_broken=sum(num_broken(tensor) for tensor in (after, gradient, *end[1].values())),
        weights=_norm(before),
        gradient=_norm(gradient),
        update=_norm(after - before),
        has_gradient=bool(gradient.any()),
        has_changed=not torch.equal(after, before),
        has_moved=any(_has_moved(start[1].get(key), now) for key, now in end[1].items()),
    )


def facts(before: torch.Tensor, parts: Sequence[Part], *, has_moments: bool) -> Facts:
    """Facts of a tensor, of which some parts are all elements; `before` is its weights then."""
    return Facts(
        num_broken=sum(part.num_broken for part in parts),
        is_matrix=before.dim() > 1,
        weights=_root([part.weights for part in parts]) + _SMALL_WEIGHT * math.sqrt(before.numel()),
        gradient=_root([part.gradient for part in parts]),
        update=_root([part.update for part in parts]),
        has_gradient=any(part.has_gradient for part in parts),
        has_changed=any(part.has_changed for part in parts),
        has_still_moments=has_moments and not any(part.has_moved for part in parts),
    )


def _root(norms: Sequence[float]) -> float:
    """Norm of a whole from those of its parts; NaN if one is."""
    return math.sqrt(sum(norm * norm for norm in norms))


def numbers_of(facts: Facts) -> list[float]:
    """What the facts of a tensor's parts are joined from."""
    flags = (facts.has_gradient, facts.has_changed, not facts.has_still_moments)
    return [facts.num_broken, facts.weights, facts.gradient, facts.update, *map(float, flags)]


def joined(like: Facts, parts: torch.Tensor) -> Facts:
    """Facts of a tensor from those of its parts (parts, numbers): norms add up by their squares."""
    broken, weights, gradient, update, with_gradient, changed, moved = parts.unbind(1)
    return Facts(
        num_broken=int(broken.sum()),
        is_matrix=like.is_matrix,
        weights=float(torch.linalg.vector_norm(weights)),
        gradient=float(torch.linalg.vector_norm(gradient)),
        update=float(torch.linalg.vector_norm(update)),
        has_gradient=bool(with_gradient.any()),
        has_changed=bool(changed.any()),
        has_still_moments=not bool(moved.any()),
    )


def num_broken(tensor: torch.Tensor) -> int:
    """How many values are not finite; none is where the least and the largest are."""
    has_ends = tensor.dtype in _ORDERED and tensor.numel() > 0
    if has_ends and all(map(math.isfinite, map(float, torch.aminmax(tensor)))):  # NaN is both
        return 0
    return int((~torch.isfinite(tensor)).sum())


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


def _has_moved(before: torch.Tensor | None, now: torch.Tensor) -> bool:
    return bool(now.any()) if before is None else not torch.equal(now, before)


def check(facts: Mapping[str, Facts], others: Sequence[torch.Tensor]) -> Iterator[Check]:
    """Rules that are counted; `others` are what else must be finite, as loss and logits."""
    broken = sum(one.num_broken for one in facts.values()) + sum(map(num_broken, others))
    broken += not math.isfinite(whole_norm(facts))
    yield Check(name="values that are not finite", error=broken, bound=0.0, kind="exact")
    still = sum(one.has_still_moments for one in facts.values())
    yield Check(name="tensors whose moments stand still", error=still, bound=0.0, kind="exact")


def whole_norm(facts: Mapping[str, Facts]) -> float:
    """Norm of the gradient of all weights; infinite or NaN if one is."""
    return math.sqrt(sum(one.gradient**2 for one in facts.values()))


def check_sizes(facts: Mapping[str, Facts], limits: Limits) -> Iterator[Check]:
    """Gradients and updates in proportion to their weights."""
    gradients = [one.gradient / one.weights for one in facts.values()]
    yield _at_most(
        "largest gradient, relative to its weights",
        gradients,
        limits.exploding,
        "norm of a gradient",
    )
    matrices = [one for one in facts.values() if one.is_matrix]
    steep = [one.gradient / one.weights for one in matrices]
    moved = [one.update / one.weights for one in facts.values()]
    if matrices:
        yield _at_least(
            "vanishing gradient of a matrix",
            [gradient / max(steep) if max(steep) else 0.0 for gradient in steep],
            limits.vanishing,
            "norm of a gradient relative to its weights, beside the largest",
        )
        yield _at_least(
            "smallest update, relative to its weights",
            [one.update / one.weights for one in matrices],
            limits.least_update,
            "norm of a matrix's update",
        )
    yield _at_most(
        "largest update, relative to its weights",
        moved,
        limits.largest_update,
        "norm of an update",
    )


def check_units(choices: Sequence[torch.Tensor], limits: Limits) -> Iterator[Check]:
    """Share of rectified units that let nothing pass in the whole batch.

    `choices` are those of `parts/training`; a unit is a channel of images, else a feature.
    """
    alive = [_alive(choice) for choice in choices if choice.dtype == torch.bool]
    if alive:
        share = 1 - torch.cat(alive).double().mean().item()
        yield Check(
            name="rectified units that are zero for the whole batch",
            error=share,
            bound=limits.dead,
            detects=limits.dead,
            detects_what="share of the units",
        )


def _alive(choice: torch.Tensor) -> torch.Tensor:
    unit = 1 if choice.dim() >= _IMAGES else choice.dim() - 1
    return choice.movedim(unit, 0).flatten(1).any(1)


def _at_most(name: str, values: Sequence[float], limit: float, what: str) -> Check:
    return Check(
        name=name,
        error=math.nan if _has_nan(values) else max(values),
        bound=limit,
        detects=limit,
        detects_what=what,
    )


def _at_least(name: str, values: Sequence[float], limit: float, what: str) -> Check:
    """As the limit's multiple of the smallest value, so that the bound is 1."""
    smallest = math.nan if _has_nan(values) else min(values)
    return Check(
        name=name,
        error=limit / smallest if smallest else math.inf,
        bound=1.0,
        detects=limit,
        detects_what=what,
    )


def _has_nan(values: Sequence[float]) -> bool:
    """Whether one of them is NaN, which Python's max and min would hide."""
    return any(math.isnan(value) for value in values)
