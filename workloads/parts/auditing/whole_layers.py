"""A model whose layers are cut among ranks: whole layers in float64, from what went through them.

What a cut layer is given and makes differs from rank to rank, and no module inside of it can be
followed alone. So each watched layer is followed whole, on all rows, with its weights gathered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from workloads.parts.auditing.errors import Errors
from workloads.parts.distributed import tensors

Tensors = Mapping[str, torch.Tensor]
_FLOOR, _FLOOR_OF_SUMS = 0.01, 0.03
"""Share of a layer's gradient below which that of one of its tensors is no yardstick: of a matrix,
and of a bias or a scale, which is a sum of terms that may all but cancel."""


@dataclass(kw_only=True)
class Seen:
    """What went through one layer, on the host: tensors in the order in which they were given."""

    layer: torch.nn.Module
    arguments: tuple[Any, Any] | None = None
    output: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    input_gradient: torch.Tensor | None = None


@dataclass(kw_only=True)
class LayerWatch(ExitStack):
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
    def note(layer: torch.nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        del layer
        result = first(output)
        if result.requires_grad and seen.gradient is None:
            result.register_hook(lambda gradient: _store(seen, "gradient", gradient))  # type: ignore[no-untyped-call]
            entered = stream(arguments, keywords)
            if entered is not None and entered.requires_grad:
                entered.register_hook(  # type: ignore[no-untyped-call]
                    lambda gradient: _store(seen, "input_gradient", gradient)
                )
        if seen.output is None:  # the first time; activations may be made anew in the backward pass
            seen.arguments = (_on_host(arguments), _on_host(keywords))
            seen.output = result.detach().cpu().clone()

    return note


def _store(seen: Seen, name: str, gradient: torch.Tensor) -> None:
    setattr(seen, name, gradient.detach().cpu().clone())


def first(output: Any) -> torch.Tensor:
    tensor: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return tensor


def stream(arguments: Any, keywords: Mapping[str, Any]) -> torch.Tensor | None:
    """The first tensor of floats that a layer is given."""
    for value in (*arguments, *keywords.values()):
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


def follow_whole(
    make: Callable[[], torch.nn.Module],
    seen: Mapping[str, Seen],
    weights: Tensors,
    gradients: Tensors,
    errors: Errors,
) -> None:
    """Add the errors of watched layers; `weights`, `gradients` are theirs, whole on the host.

    `make` builds the model without values worth keeping; it is asked for one on the meta device.
    """
    with torch.device("meta"):
        skeleton = make()
    for name, one in seen.items():
        layer = _filled(skeleton.get_submodule(name), one.layer, _of(weights, name))
        _follow(layer, one, name, _of(gradients, name), errors)


def _filled(hollow: torch.nn.Module, device: torch.nn.Module, weights: Tensors) -> torch.nn.Module:
    """A layer in float64 on the host, with these weights and with the buffers of the device's."""
    layer = hollow.double().to_empty(device="cpu").train()
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(weights[name])
        for name, buffer in device.named_buffers():
            layer.get_buffer(name).copy_(tensors.whole(buffer))
    return layer


def _of(named: Tensors, layer: str) -> dict[str, torch.Tensor]:
    """Those of a layer, by the names that they have in it."""
    start = f"{layer}."
    return {n.removeprefix(start): one for n, one in named.items() if n.startswith(start)}


def _follow(
    layer: torch.nn.Module, seen: Seen, path: str, gradients: Tensors, errors: Errors
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
    errors.compare("outputs", path, seen.output, output)
    if seen.gradient is None or not output.requires_grad:
        if gradients:
            errors.fail("gradients", path)
        return
    torch.autograd.backward(output, seen.gradient.double())
    if entered is not None and entered.grad is not None:
        errors.compare("gradients", path, seen.input_gradient, entered.grad)
    _follow_weights(layer, path, gradients, errors)


def _follow_weights(layer: torch.nn.Module, path: str, gradients: Tensors, errors: Errors) -> None:
    """Add the errors of the gradients of a layer's weights, after its backward pass."""
    weights = dict(layer.named_parameters())
    exact = {}
    for name in sorted(gradients):
        gradient = weights[name].grad
        own = torch.zeros_like(weights[name]) if gradient is None else gradient
        exact[name] = errors.average(own)
    size = math.sqrt(sum(float(one.norm()) ** 2 for one in exact.values()))
    for name, gradient in gradients.items():
        floor = _FLOOR if gradient.dim() > 1 else _FLOOR_OF_SUMS
        errors.compare("weights", f"{path}.{name}", gradient, exact[name], floor * size)
