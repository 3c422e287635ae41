"""A library's model whose every weight is drawn from the seed and its own name.

As `parts/numerics/weights.py`, whose draws these are, for models that have more than matrices and
gains: biases lie around zero, and a convolution has the variance of all that it sums. What a
library computed instead of drawing (a table of sines, say) is kept. `Gains` multiply the weights
whose name ends so, where a model would not keep its signals' size, or would hardly look at its
input.

`streamed` is for a reference too large for the host's memory: the model has no weights until one
of its parts is called, and none again when that part is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import nn

from workloads.parts.numerics.weights import draw

Gains = Mapping[str, float]
Model = TypeVar("Model", bound=nn.Module)
NO_GAINS: Gains = {}


def weight(name: str, shape: torch.Size, seed: int, gains: Gains = NO_GAINS) -> torch.Tensor:
    """Return the float32 weight called `name`, on the host."""
    flat = tuple(shape) if len(shape) < 2 else (shape[0], shape[1:].numel())  # noqa: PLR2004
    values = draw(name, flat, seed).view(shape)
    if name.endswith("bias"):
        values = values - 1
    for ending, gain in gains.items():
        if name.endswith(ending):
            values = values * gain
    return values


@torch.no_grad()
def fill(
    model: nn.Module, seed: int, *, gains: Gains = NO_GAINS, excluded: tuple[str, ...] = ()
) -> None:
    """Give every parameter its weight, rounded to the parameter's format.

    `excluded`: endings of the names of parameters that stay as they are. On all threads that torch
    may use; which of them draws a weight does not change it.
    """

    def put(named: tuple[str, nn.Parameter]) -> None:
        name, parameter = named
        with torch.no_grad():
            parameter.copy_(weight(name, parameter.shape, seed, gains))

    drawn = [item for item in model.named_parameters() if not item[0].endswith(excluded)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(put, drawn):
            pass  # so that an error is raised here


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
    make: Callable[[], Model], seed: int, *, dtype: torch.dtype, gains: Gains = NO_GAINS
) -> Model:
    """Return the model in float64 for forward passes on the host, a part of it at a time.

    A part is an element of a list of layers, or what lies outside of those. Its weights are the
    draws, rounded to `dtype`. The model may have no buffers.
    """
    with torch.device("meta"):
        model = make().double().eval().requires_grad_(requires_grad=False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for part in _parts(model):
        own = {name: names[id(parameter)] for name, parameter in part.named_parameters()}
        part.register_forward_pre_hook(_loader(own, seed, dtype, gains))
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
    names: Mapping[str, str], seed: int, dtype: torch.dtype, gains: Gains
) -> Callable[[nn.Module, Any], None]:
    @torch.no_grad()
    def load(part: nn.Module, inputs: Any) -> None:
        del inputs
        part.to_empty(device="cpu")
        for name, parameter in part.named_parameters():
            values = weight(names[name], parameter.shape, seed, gains)
            parameter.copy_(values.to(dtype))

    return load


def _unloader(part: nn.Module, inputs: Any, result: Any) -> None:
    del inputs, result
    part.to_empty(device="meta")
