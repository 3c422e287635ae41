"""Weights of a network that the generator draws: on the device, and any of them again on the host.

Each stands for itself: its bits follow from the launch's seed and its own name. So a reference
draws a layer when it comes to it, and a weight that was spoilt on the device shows there. Matrices
are normally distributed with the variance that keeps the size of what passes through them; vectors
(the gains of normalisations) lie around one. Both are looked up in their final format, so no device
rounds anything.
"""

from __future__ import annotations

import math

import torch

from appliance.generator import maps
from appliance.generator.maps import Map
from workloads.parts.drawing.drawn import Drawer

GAIN, SPREAD_OF_GAINS = 1.0, 0.1


def values_of(shape: tuple[int, ...]) -> Map:
    """How the weights of a shape are distributed; a square root is the same on every host."""
    if len(shape) == 1:
        return maps.normal(GAIN, SPREAD_OF_GAINS)
    return maps.normal(0.0, 1 / math.sqrt(shape[-1]))


def weight(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The weight called `name` in its format, where the drawer draws."""
    return drawer.tensor(name, values_of(shape), dtype, shape)


@torch.no_grad()
def fill(model: torch.nn.Module, drawer: Drawer) -> None:
    """Give every parameter its weight, in the parameter's format."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weight(drawer, name, tuple(parameter.shape), parameter.dtype))
