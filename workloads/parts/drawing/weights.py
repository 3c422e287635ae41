"""Weights of a network that the generator draws: on the device, and any of them again on the host.

Each stands for itself: its bits follow from the launch's seed and its own name. So a reference
draws a layer when it comes to it, and a weight that was spoilt on the device shows there. Matrices
and convolutions are normally distributed with the variance that keeps the size of what passes
through them; vectors (the gains of normalisations) lie around one, and biases around zero. All are
looked up in their final format, so no device rounds anything.

`Gains` multiply the weights whose name ends so, where a model would not keep its signals' size, or
would hardly look at its input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from appliance.generator import maps
from appliance.generator.maps import Map
from workloads.parts.drawing.drawn import Drawer, Wanted
from workloads.parts.drawing.initial_weights import Rule, begun, expect

Gains = Mapping[str, float]
NO_GAINS: Gains = {}
AROUND, SPREAD = 1.0, 0.1
"""Mean of the gains of normalisations, and standard deviation of theirs and of biases."""


def values_of(name: str, shape: tuple[int, ...], gains: Gains = NO_GAINS) -> Map:
    """How the weight of a name and a shape is distributed.

    A square root is the same on every host.
    """
    gain = math.prod(gain for ending, gain in gains.items() if name.endswith(ending))
    if len(shape) > 1:
        return maps.normal(0.0, gain / math.sqrt(math.prod(shape[1:])))
    mean = 0.0 if name.endswith("bias") else AROUND
    return maps.normal(mean * gain, SPREAD * gain)


def weight(
    drawer: Drawer,
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    gains: Gains = NO_GAINS,
) -> torch.Tensor:
    """The weight called `name` in its format, where the drawer draws."""
    return drawer.tensor(name, values_of(name, shape, gains), dtype, shape)


@torch.no_grad()
def fill(
    model: torch.nn.Module,
    drawer: Drawer,
    *,
    prefix: str = "",
    gains: Gains = NO_GAINS,
    excluded: tuple[str, ...] = (),
) -> None:
    """Give every parameter its weight, in the parameter's format.

    `prefix` stands before the names, of a model that is not the drawer's only one. `excluded` are
    endings of the names of parameters that stay as they are: what a library computed instead of
    drawing, a table of sines, say.
    """
    wanted: dict[str, Wanted] = {}
    for name, parameter in model.named_parameters():
        if not name.endswith(excluded):
            shape, full = tuple(parameter.shape), prefix + name
            wanted[name] = full, values_of(full, shape, gains), parameter.dtype, shape
    drawer.expect(wanted.values())
    for name, parameter in model.named_parameters():
        if name in wanted:
            parameter.copy_(drawer.tensor(*wanted[name]))


def begin(
    model: torch.nn.Module,
    drawer: Drawer,
    device: torch.device,
    *,
    gains: Gains = NO_GAINS,
    zeros: tuple[str, ...] = (),
) -> None:
    """Put every parameter, in its format, on the device where the drawer draws.

    What `fill` does to a model that lies there already. Parameters whose names end with one of
    `zeros` are zero.
    """
    rules: dict[str, Rule] = {
        name: 0.0 if name.endswith(zeros) else values_of(name, tuple(parameter.shape), gains)
        for name, parameter in model.named_parameters()
    }
    expect(drawer, model, rules)
    for name, parameter in model.named_parameters():
        parameter.data = begun(drawer, name, parameter, rules[name], device)
