"""What goes through chosen layers of a model, forward and backward, copied to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import torch


@dataclass(kw_only=True)
class Seen:
    """What went through one layer, on the host: tensors in the order in which they were given."""

    layer: torch.nn.Module
    arguments: tuple[Any, Any] | None = None
    output: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    input_gradient: torch.Tensor | None = None


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
