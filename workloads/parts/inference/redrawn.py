"""A large model where it runs, and its reference on the host, too large for the host's memory.

`moved_empty` gives a model memory on its device before its weights are drawn there. `streamed` is
the reference: it has no weights until one of its parts is called, and none again when that part is
done; they are drawn again by their names (`parts/drawing/weights.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.weights import NO_GAINS, Gains, weight

Model = TypeVar("Model", bound=nn.Module)


def moved_empty(model: Model, device: torch.device) -> Model:
    """Give the model memory on the device; weights that were one before are one after."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((module, name))
    model = model.to_empty(device=device)
    for (first, own), *others in owners.values():
        for module, name in others:
            setattr(module, name, getattr(first, own))
    return model


def streamed(
    make: Callable[[], Model],
    drawer: Drawer,
    *,
    dtype: torch.dtype,
    prefix: str = "",
    gains: Gains = NO_GAINS,
) -> Model:
    """Return the model in float64 for forward passes on the host, a part of it at a time.

    A part is an element of a list of layers, or what lies outside of those. Its weights are the
    draws in the format `dtype`. The model may have no buffers.
    """
    with torch.device("meta"):
        model = make().double().eval().requires_grad_(requires_grad=False)
    names = {id(parameter): prefix + name for name, parameter in model.named_parameters()}
    for part in _parts(model):
        own = {name: names[id(parameter)] for name, parameter in part.named_parameters()}
        part.register_forward_pre_hook(_loader(own, drawer, dtype, gains))
        part.register_forward_hook(_unloader)
    return model


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Elements of the outermost lists of layers, and the largest modules without such a list."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif any(isinstance(one, nn.ModuleList) for one in child.modules()):
            yield from _parts(child)
        else:
            yield child


def _loader(
    names: Mapping[str, str], drawer: Drawer, dtype: torch.dtype, gains: Gains
) -> Callable[[nn.Module, Any], None]:
    @torch.no_grad()
    def load(part: nn.Module, inputs: Any) -> None:
        del inputs
        part.to_empty(device="cpu")
        for name, parameter in part.named_parameters():
            shape = tuple(parameter.shape)
            parameter.copy_(weight(drawer, names[name], shape, dtype, gains))

    return load


def _unloader(part: nn.Module, inputs: Any, result: Any) -> None:
    del inputs, result
    part.to_empty(device="meta")
