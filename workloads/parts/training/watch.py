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
        made = first(output)
        if made.requires_grad and seen.slope is None:
            made.register_hook(lambda slope: _keep(seen, "slope", slope))  # type: ignore[no-untyped-call]
            entered = stream(given, named)
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


def first(output: Any) -> torch.Tensor:
    tensor: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return tensor


def stream(given: Any, named: Mapping[str, Any]) -> torch.Tensor | None:
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
