"""A few layers of a step in float64, for models too large to be followed whole on a host.

The step is run once more, untimed, from its snapshot, with the drawn layers, the embedding and the
head watched. Its logits and all of its gradients must have the bits of the step's: then what was
seen in it is what the step did. Each watched layer alone is followed in float64 from the input
and the gradient that it was given; the loss and its gradient from the logits. What is wrong in a
layer that was not drawn, and wrong again when run again, is not seen: the check says with what
probability it is. The update of every weight is held to its formula as in any training.

Where the model is shared out among ranks no rank ever holds all of it. Each holds its own shares
to the update's formula and to the step run again; of the drawn layers alone the weights and
gradients are gathered, one tensor after the other, and every rank follows its own batch through
them in float64: the average of their results is held against the gradient of all.

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
from workloads.parts.datasets.text import IGNORED
from workloads.parts.distributed import rank_checks, tensors
from workloads.parts.numerics.bits import num_differing
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.numerics.precision import rounding
from workloads.parts.training.watch import Seen, first, stream

Tensors = Mapping[str, torch.Tensor]
Loss = Callable[[torch.Tensor, Tensors], torch.Tensor]
Average = Callable[[torch.Tensor], torch.Tensor]
What = Literal["auto", "whole", "layers"]
LARGE = 2_000_000_000
"""Parameters from which on float64 follows layers: the whole would fill a host and take hours."""
_SMALLEST = 1e-30
_FLOOR, _FLOOR_OF_SUMS = 0.01, 0.03
"""Share of a layer's gradient below which that of one of its tensors is no yardstick: of a matrix,
and of a bias or a scale, which is a sum of terms that may all but cancel."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Which layers are followed: `count` of those in each list of `layers`, and all of `ends`.

    `make` builds the model without values worth keeping (it is asked for one on the meta device).
    The last of `ends` makes the logits; `loss(logits, batch)` is the loss that the model makes of
    all of them, in the dtype given. `outputs` and `gradients` are roundings that a healthy layer
    may be off.
    """

    make: Callable[[], torch.nn.Module]
    layers: tuple[str, ...]
    ends: tuple[str, ...]
    loss: Loss
    seed: int
    count: int = 2
    outputs: float = 4.0
    gradients: float = 6.0

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

    def covering(self, model: torch.nn.Module, drawn: Sequence[str]) -> str:
        """What a check of these layers covers, in words."""
        shares = [min(1.0, self.count / _num_layers(model, path)) for path in self.layers]
        shares_by_path = ", ".join(
            f"{share:.3g} in {path}" for share, path in zip(shares, self.layers, strict=True)
        )
        return (
            f"{', '.join((*drawn, *self.ends))} and the loss were followed: a fault that stays in "
            f"one layer is in them with probability {shares_by_path}"
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
    """A pass whose layers were watched: its inputs and what it made.

    `weights` and `gradients` are those of the watched layers, whole and on the host: all weights
    as the step began with them, and the gradients of those that learn.
    """

    batch: Tensors
    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: Tensors
    seen: Mapping[str, Seen]


@dataclass(kw_only=True)
class Followed:
    """Relative errors against float64; `own` samples the exact gradients of this rank.

    `average` is over the ranks that have a batch of their own, the same tensor on each.
    """

    average: Average
    outputs: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    own: dict[str, torch.Tensor] = field(default_factory=dict)


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


def follow(audit: Audit, watched: Watched, average: Average) -> Followed:
    """Hold the watched layers, and the loss that is made of the logits, to float64."""
    last = watched.seen[audit.ends[-1]]
    if last.output is None:
        raise RuntimeError("the layer that makes the logits was not called in the step")
    exact = last.output.double().requires_grad_()
    loss = audit.loss(exact, {name: tensor.cpu() for name, tensor in watched.batch.items()})
    torch.autograd.backward(loss)
    followed = Followed(average=average, outputs=[_relative(watched.loss, loss)])
    followed.gradients.append(_relative(last.gradient, exact.grad))
    with torch.device("meta"):
        skeleton = audit.make()
    for name, seen in watched.seen.items():
        layer = _filled(skeleton.get_submodule(name), seen.layer, _of(watched.weights, name))
        _follow(layer, seen, name, _of(watched.gradients, name), followed)
    return followed


def _filled(hollow: torch.nn.Module, device: torch.nn.Module, weights: Tensors) -> torch.nn.Module:
    """A layer in float64 on the host, with these weights and with the buffers of the device's."""
    layer = hollow.double().to_empty(device="cpu").train()
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(weights[name])
        for name, buffer in device.named_buffers():
            layer.get_buffer(name).copy_(tensors.whole(buffer))
    return layer


def checks(audit: Audit, followed: Followed, dtype: torch.dtype, covered: str) -> Iterator[Check]:
    """Judge what was followed."""
    for kind, errors in (("outputs", followed.outputs), ("gradients", followed.gradients)):
        bound = getattr(audit, kind) * rounding(dtype)
        yield Check(
            name=f"{kind} of the drawn layers against float64",
            error=torch.stack(errors).max().item(),
            bound=bound,
            detects=bound,
            detects_what=f"error of one result, relative to its norm; {covered}",
        )


def _of(gradients: Tensors, layer: str) -> dict[str, torch.Tensor]:
    """Those of a layer, by the names that they have in it."""
    start = f"{layer}."
    return {n.removeprefix(start): g for n, g in gradients.items() if n.startswith(start)}


def _follow(
    layer: torch.nn.Module, seen: Seen, path: str, gradients: Tensors, followed: Followed
) -> None:
    """Add the errors of a layer's output, and of the gradients of its input and weights."""
    if seen.arguments is None or seen.output is None:
        raise RuntimeError(f"{path}, which is to be followed, was not called in the step")
    for name, weight in layer.named_parameters():
        weight.requires_grad_(name in gradients)
    arguments, keywords = seen.arguments
    entered = stream(arguments, keywords)
    if entered is not None and seen.input_gradient is not None:
        entered.requires_grad_()
    output = first(layer(*arguments, **keywords))
    followed.outputs.append(_relative(seen.output, output))
    if seen.gradient is None or not output.requires_grad:
        if gradients:
            followed.gradients.append(_relative(None, None))
        return
    torch.autograd.backward(output, seen.gradient.double())
    if entered is not None and entered.grad is not None:
        followed.gradients.append(_relative(seen.input_gradient, entered.grad))
    _follow_weights(layer, path, gradients, followed)


def _follow_weights(
    layer: torch.nn.Module, path: str, gradients: Tensors, followed: Followed
) -> None:
    """Add the errors of the gradients of a layer's weights, after its backward pass."""
    weights = dict(layer.named_parameters())
    exact = {}
    for name in sorted(gradients):
        gradient = weights[name].grad
        own = torch.zeros_like(weights[name]) if gradient is None else gradient
        followed.own[f"{path}.{name}"] = rank_checks.sample(own)
        exact[name] = followed.average(own)
    size = math.sqrt(sum(float(one.norm()) ** 2 for one in exact.values()))
    followed.gradients += [
        _relative(gradient, exact[name], _floor(gradient) * size)
        for name, gradient in gradients.items()
    ]


def _floor(gradient: torch.Tensor) -> float:
    return _FLOOR if gradient.dim() > 1 else _FLOOR_OF_SUMS


def _relative(
    actual: torch.Tensor | None, exact: torch.Tensor | None, floor: float = 0.0
) -> torch.Tensor:
    """Norm of the difference over that of the exact tensor; infinite where one is missing."""
    if actual is None or exact is None:
        return torch.tensor(torch.inf, dtype=torch.float64)
    true = exact.detach()
    error: torch.Tensor = torch.linalg.vector_norm(actual.detach().cpu().double() - true)
    relative: torch.Tensor = error / (torch.linalg.vector_norm(true) + floor + _SMALLEST)
    return relative
