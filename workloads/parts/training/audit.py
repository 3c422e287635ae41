"""A few layers of a step in float64, for models too large to be followed whole on a host.

The step is run once more, untimed, from its snapshot, with the drawn layers, the embedding and the
head watched. Its logits and all of its gradients must have the bits of the step's: then what was
seen in it is what the step did. Each call of a module in a watched layer is followed in float64
alone (`parts/auditing`), from what it was given: on drawn inputs of the first micro-batch, and the
gradients of its weights on drawn channels over all of that; the loss and its gradient are followed
from the logits. What is wrong in a layer that was not drawn, and wrong again when run again, is not
seen: the check says with what probability it is. The update of every weight is held to its formula
as in any training.

Where the model is shared out among ranks no rank ever holds all of it. Each holds its own shares
to the update's formula and to the step run again; of the drawn layers alone the weights and
gradients are gathered, one tensor after the other, and every rank follows its own batch in float64:
the average of their results is held against the gradient of all.

Errors are in roundings of the dtype, relative to the norm of the whole result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.calls import Call
from workloads.parts.auditing.errors import Errors
from workloads.parts.auditing.following import Following
from workloads.parts.auditing.selection import Rows
from workloads.parts.auditing.weights import Sums
from workloads.parts.datasets.text import IGNORED
from workloads.parts.distributed import rank_checks, tensors
from workloads.parts.numerics.bits import num_differing
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.numerics.precision import rounding

Tensors = Mapping[str, torch.Tensor]
Loss = Callable[[torch.Tensor, Tensors], torch.Tensor]
Average = Callable[[torch.Tensor], torch.Tensor]
What = Literal["auto", "whole", "layers"]
LARGE = 2_000_000_000
"""Parameters from which on float64 follows layers: the whole would fill a host and take hours."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Which layers are followed: `count` of those in each list of `layers`, and all of `ends`.

    `make` builds the model without values worth keeping (it is asked for one on the meta device).
    The last of `ends` makes the logits; `loss(logits, batch)` is the loss that the model makes of
    all of them, in the dtype given. `outputs` and `gradients` are roundings that a healthy layer
    may be off. Of each micro-batch so many `inputs` are drawn.
    """

    make: Callable[[], torch.nn.Module]
    layers: tuple[str, ...]
    ends: tuple[str, ...]
    loss: Loss
    seed: int
    count: int = 2
    inputs: int = 1
    outputs: float = 4.0
    gradients: float = 12.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ParameterError(f"audited layers are {self.count}: give 1 or more")

    def drawn(self, model: torch.nn.Module, number: int) -> list[str]:
        """Paths of the layers for the step with this number."""
        rng = torch.Generator().manual_seed((self.seed + number) % 2**63)
        paths = []
        for path in self.layers:
            order = torch.randperm(_num_layers(model, path), generator=rng)
            paths += [f"{path}.{index}" for index in sorted(order[: self.count].tolist())]
        return paths

    def covering(self, model: torch.nn.Module, drawn: Sequence[str], share: float) -> str:
        """What a check of these layers covers, on this share of a micro-batch, in words."""
        shares = [min(1.0, self.count / _num_layers(model, path)) for path in self.layers]
        shares_by_path = ", ".join(
            f"{share:.3g} in {path}" for share, path in zip(shares, self.layers, strict=True)
        )
        return (
            f"{', '.join((*drawn, *self.ends))} and the loss were followed, on {share:.3g} of the "
            f"inputs: a fault that stays in one layer is in them with probability {shares_by_path}"
        )


def _num_layers(model: torch.nn.Module, path: str) -> int:
    return len(list(model.get_submodule(path).children()))


def loss_of_next(logits: torch.Tensor, batch: Tensors) -> torch.Tensor:
    """Mean loss over every position that has a label after it, as a causal language model's."""
    labels = batch["labels"][:, 1:].reshape(-1)
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(len(labels), -1), labels, ignore_index=IGNORED
    )


def require_followed(followed: str) -> None:
    """Raise ParameterError unless it says what float64 is to follow."""
    require_choice("followed", followed, get_args(What))


def is_of_layers(followed: What, num_parameters: int) -> bool:
    """Whether layers are followed and not the whole; of a large model unless it is asked for."""
    return followed == "layers" or (followed == "auto" and num_parameters > LARGE)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A pass whose layers were watched: its first micro-batch, its calls, and what it made.

    `gradients` are those of the weights of the watched layers, shared out or not.
    """

    batch: Tensors
    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    calls: Sequence[Call]
    rows: Rows


@dataclass(kw_only=True)
class Followed:
    """Errors against float64; samples of this rank's own exact gradients and of the averaged."""

    errors: Errors
    own: dict[str, torch.Tensor] = field(default_factory=dict)
    averaged: dict[str, torch.Tensor] = field(default_factory=dict)


def check_same(name: str, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Check:
    """Count tensors of which the step run again has other bits than the step."""
    wrong = sum(num_differing(one, other) > 0 for one, other in pairs)
    return Check(
        name=name,
        error=wrong,
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what="tensor with another bit, without which the layers seen are not the step's",
    )


def follow(audit: Audit, watched: Watched, names: dict[int, str], average: Average) -> Followed:
    """Hold the watched layers, and the loss that is made of the logits, to float64."""
    errors, sums = Errors(average=average), Sums(names=names)
    made = [call.output() for call in watched.calls if call.path == audit.ends[-1]]
    if len(made) != 1:
        raise RuntimeError("the layer that makes the logits was not called once in the step")
    follow_loss(audit, watched, (made[0].first(), made[0].gradient()), errors)
    whole = frozenset(audit.ends)
    following = Following(rows=watched.rows, whole=whole, errors=errors, sums=sums)
    following.follow(watched.calls)
    picked = {
        name: one.pick(tensors.whole(watched.gradients[name])) for name, one in sums.of.items()
    }
    followed = Followed(errors=errors)
    for name, one in sums.of.items():
        followed.own[name] = rank_checks.sample(one.exact)
        followed.averaged[name] = rank_checks.sample(picked[name])
    sums.compare(picked, errors)
    for name in sorted(watched.gradients.keys() - errors.followed):
        errors.fail("weights", f"{name}, which was not followed")
    return followed


def follow_loss(
    audit: Audit,
    watched: Watched,
    logits: tuple[torch.Tensor, torch.Tensor | None],
    errors: Errors,
) -> None:
    """The loss and its gradient, from the logits that the last of the ends made."""
    exact = logits[0].double().requires_grad_()
    loss = audit.loss(exact, {name: tensor.cpu() for name, tensor in watched.batch.items()})
    torch.autograd.backward(loss)
    errors.compare("outputs", "the loss", watched.loss, loss)
    errors.compare("gradients", "the gradient of the logits", logits[1], exact.grad)


def checks(audit: Audit, followed: Followed, dtype: torch.dtype, covered: str) -> Iterator[Check]:
    """Judge what was followed."""
    errors = followed.errors
    largest = {
        "outputs": errors.largest.get("outputs", math.inf),
        "gradients": max(errors.largest.get(kind, math.inf) for kind in ("gradients", "weights")),
    }
    for kind, error in largest.items():
        bound = getattr(audit, kind) * rounding(dtype)
        furthest = ", ".join(errors.where.values())
        yield Check(
            name=f"{kind} of the drawn layers against float64",
            error=error,
            bound=bound,
            detects=bound,
            detects_what=f"error of one result, relative to its norm; {covered} (furthest were "
            f"{furthest})",
        )
