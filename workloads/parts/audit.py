"""A few layers of a step in float64, for models too large to be followed whole on a host.

The step is run once more, untimed, from its snapshot, with the drawn layers, the embedding and the
head watched. Its logits and all of its gradients must have the bits of the step's: then what was
seen in it is what the step did. Each watched layer alone is followed in float64 from the input
and the gradient that it was given; the loss and its gradient from the logits. What is wrong in a
layer that was not drawn, and wrong again when run again, is not seen: the check says with what
probability it is. The update of every weight is held to its formula as in any training.

Errors are in roundings of the dtype, relative to the norm of the whole result. Measured on small
Llamas on a processor, all layers watched (6 of width 64, 3 of 256; 3 seeds, steps 0, 1, 3 and 7):
outputs 0.69 in float32 and 1.3 in bfloat16, gradients 0.93 and 1.7.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from appliance.records import Check
from workloads.contract import ParameterError
from workloads.parts.bits import num_differing
from workloads.parts.precision import rounding

Tensors = Mapping[str, torch.Tensor]
Loss = Callable[[torch.Tensor, Tensors], torch.Tensor]
_SMALLEST = 1e-30
_FLOOR = 0.01
"""Share of a layer's gradient below which the gradient of one of its tensors is no yardstick."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Which layers are followed: `count` of those in the list `layers`, and all of `ends`.

    The last of `ends` makes the logits; `loss(logits, batch)` is the loss that the model makes of
    them, in the dtype given. `outputs` and `gradients` are roundings that a healthy layer may be
    off.
    """

    layers: str
    ends: tuple[str, ...]
    loss: Loss
    seed: int
    count: int = 2
    outputs: float = 4.0
    gradients: float = 6.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ParameterError(f"audited layers are {self.count}: give 1 or more")

    def drawn(self, model: torch.nn.Module, number: int) -> list[int]:
        """Numbers of the layers for the step with this number."""
        rng = torch.Generator().manual_seed((self.seed + number) % 2**63)
        order = torch.randperm(self.num_layers(model), generator=rng)
        return sorted(order[: self.count].tolist())

    def num_layers(self, model: torch.nn.Module) -> int:
        return len(list(model.get_submodule(self.layers).children()))


@dataclass(kw_only=True)
class Seen:
    """What went through one layer, on the host: tensors in the order in which they were given."""

    layer: torch.nn.Module
    given: tuple[Any, Any] | None = None
    output: torch.Tensor | None = None
    slope: torch.Tensor | None = None
    slope_of_input: torch.Tensor | None = None


@dataclass(kw_only=True)
class Watch(ExitStack):
    """While it is entered, notes what goes through the layers, forward and backward."""

    layers: Mapping[str, torch.nn.Module]
    seen: dict[str, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __enter__(self) -> Self:
        super().__enter__()
        for name, layer in self.layers.items():
            self.seen[name] = Seen(layer=layer)
            handle = layer.register_forward_hook(_noting(self.seen[name]), with_kwargs=True)
            self.callback(handle.remove)
        return self


def _noting(seen: Seen) -> Callable[..., None]:
    def note(layer: torch.nn.Module, given: Any, named: Any, output: Any) -> None:
        del layer
        made = _first(output)
        if made.requires_grad and seen.slope is None:
            made.register_hook(lambda slope: _keep(seen, "slope", slope))  # type: ignore[no-untyped-call]
            entered = _stream(given, named)
            if entered is not None and entered.requires_grad:
                entered.register_hook(  # type: ignore[no-untyped-call]
                    lambda slope: _keep(seen, "slope_of_input", slope)
                )
        if seen.output is None:  # the first time; activations may be made anew in the backward pass
            seen.given = (_on_host(given), _on_host(named))
            seen.output = made.detach().cpu().clone()

    return note


def _keep(seen: Seen, name: str, slope: torch.Tensor) -> None:
    setattr(seen, name, slope.detach().cpu().clone())


def _first(output: Any) -> torch.Tensor:
    found: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return found


def _stream(given: Any, named: Mapping[str, Any]) -> torch.Tensor | None:
    """The first tensor of floats that a layer is given."""
    for value in (*given, *named.values()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
    return None


def _on_host(value: Any) -> Any:
    """A copy in float64 of all tensors in tuples and dicts; anything else as it is."""
    if isinstance(value, torch.Tensor):
        host = value.detach().cpu().clone()
        return host.double() if host.is_floating_point() else host
    if isinstance(value, tuple):
        return tuple(_on_host(one) for one in value)
    return {key: _on_host(one) for key, one in value.items()} if isinstance(value, dict) else value


# ------------------------------------------------------------------ the judgement


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A pass whose layers were watched: its inputs, what it made, and the weights it began with."""

    batch: Tensors
    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: Tensors
    seen: Mapping[str, Seen]


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


def check(audit: Audit, made: Watched, dtype: torch.dtype, covered: str) -> Iterator[Check]:
    """Hold the watched layers, and the loss that is made of the logits, to float64."""
    exact = made.logits.detach().cpu().double().requires_grad_()
    followed = audit.loss(exact, {name: tensor.cpu() for name, tensor in made.batch.items()})
    torch.autograd.backward(followed)
    outputs = [_relative(made.loss, followed)]
    slopes = [_relative(made.seen[audit.ends[-1]].slope, exact.grad)]
    for name, seen in made.seen.items():
        more = _follow(seen, _of(made.weights, name), _of(made.gradients, name))
        outputs += more[0]
        slopes += more[1]
    for kind, found in (("outputs", outputs), ("gradients", slopes)):
        bound = getattr(audit, kind) * rounding(dtype)
        yield Check(
            name=f"{kind} of the drawn layers against float64",
            error=torch.stack(found).max().item(),
            bound=bound,
            detects=bound,
            detects_what=f"error of one result, relative to its norm; {covered}",
        )


def names(audit: Audit, drawn: Sequence[int]) -> list[str]:
    """Paths of all layers that are followed."""
    return [*(f"{audit.layers}.{number}" for number in drawn), *audit.ends]


def covering(audit: Audit, model: torch.nn.Module, drawn: Sequence[int]) -> str:
    """What a check covers, in words."""
    count = audit.num_layers(model)
    probability = min(1.0, len(drawn) / count)
    return (
        f"layers {', '.join(map(str, drawn))} of {count}, {', '.join(audit.ends)} and the loss were"
        f" followed: a fault that stays in one layer is in them with probability {probability:.3g}"
    )


def _of(gradients: Tensors, layer: str) -> dict[str, torch.Tensor]:
    """Those of a layer, by the names that they have in it."""
    start = f"{layer}."
    return {n.removeprefix(start): g for n, g in gradients.items() if n.startswith(start)}


def _follow(
    seen: Seen, start: Tensors, gradients: Tensors
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Errors of a layer's output, and of the gradients of its input and weights.

    `start`: what the layer's weights that learn were; the others are as they are.
    """
    if seen.given is None or seen.output is None:
        raise RuntimeError("a layer that is to be followed was not called in the step")
    layer = copy.deepcopy(seen.layer).cpu().double()
    layer.zero_grad(set_to_none=True)
    weights = dict(layer.named_parameters())
    with torch.no_grad():
        for name, weight in start.items():
            weights[name].copy_(weight)
    given, named = seen.given
    entered = _stream(given, named)
    if entered is not None and seen.slope_of_input is not None:
        entered.requires_grad_()
    output = _first(layer(*given, **named))
    outputs = [_relative(seen.output, output)]
    if seen.slope is None or not output.requires_grad:
        return outputs, []
    torch.autograd.backward(output, seen.slope.double())
    exact = {name: weights[name].grad for name in gradients}
    size = math.sqrt(sum(float(one.norm()) ** 2 for one in exact.values() if one is not None))
    slopes = [_relative(slope, exact[name], _FLOOR * size) for name, slope in gradients.items()]
    if entered is not None and entered.grad is not None:
        slopes.append(_relative(seen.slope_of_input, entered.grad))
    return outputs, slopes


def _relative(
    actual: torch.Tensor | None, exact: torch.Tensor | None, floor: float = 0.0
) -> torch.Tensor:
    """Norm of the difference over that of the exact tensor; infinite where one is missing."""
    if actual is None or exact is None:
        return torch.tensor(torch.inf, dtype=torch.float64)
    true = exact.detach()
    error: torch.Tensor = torch.linalg.vector_norm(actual.detach().cpu().double() - true)
    found: torch.Tensor = error / (torch.linalg.vector_norm(true) + floor + _SMALLEST)
    return found
