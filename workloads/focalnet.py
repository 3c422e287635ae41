"""FocalNet-B training: focal modulation in place of attention, layer normalisation and AdamW.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device. The checks of `parts/training` recompute the step in
float64: a focal level that is left out, a product in a lower precision, a wrong or lost gradient,
a stale batch and a weight that the optimiser missed would each be seen, in the first step and in
the last.

`error_bounds` allow twice what was measured. A backward pass alone with products in bfloat16 for
float32, or in float8 for bfloat16, lies outside. Images memorised leave small gradients, of
which the error is relatively larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import FocalNetConfig, FocalNetForImageClassification

from appliance.records.json import Parameters
from workloads.contract.failures import ParameterError
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.optimizers import AdamW
from workloads.parts.vision.image_training import (
    ACTIVATIONS,
    CLASSES,
    GELU,
    RELU,
    SILU,
    ImageTraining,
)

DEPTHS = (2, 2, 18, 2)
WIDTH = 128
SPREAD = 0.02
"""Standard deviation of the weights of linear layers at the full width; a narrower network's are
larger, so that its branches carry as much. Convolutions are drawn as torch does, after the authors'
own code: at 0.02 each of a chain of depthwise ones would lose nine tenths of its signal, and at the
full width the last of them its gradient to rounding."""
SMALLEST = 32
"""Pixels to a side that four stages turn into one."""


@dataclass(frozen=True, kw_only=True)
class Focalnet(ImageTraining):
    """`width`: channels of the first stage, doubled by each of the three that follow.

    `focal_levels`: depthwise convolutions of growing size whose outputs modulate a layer; 3 is
    the published network of large receptive fields, 2 that of small ones.
    """

    summary: ClassVar[str] = "FocalNet-B training, images on the device"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "width": 16,
        "dtype": "float32",
        "channels_last": False,
    }
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one image more": {"batch_change": 1},
        "one block more": {"extra_layers": 1},
        "small receptive fields": {"focal_levels": 2},
        "sigmoid-weighted units": {"activation": SILU},
        "rectified units": {"activation": RELU},
    }

    batch: int = 128
    width: int = WIDTH
    focal_levels: int = 3
    activation: str = GELU
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("activation", self.activation, ACTIVATIONS)
        require_positive(self, "width", "focal_levels")
        if self.side % SMALLEST:
            raise ParameterError(f"side is {self.side}: give a multiple of {SMALLEST}")

    def rule(self) -> AdamW:
        return AdamW(learning_rate=self.learning_rate, decay=0.05)

    def network(self) -> torch.nn.Module:
        config = FocalNetConfig(
            image_size=self.side,
            embed_dim=self.width,
            depths=[*DEPTHS[:2], DEPTHS[2] + self.extra_layers, DEPTHS[3]],
            hidden_sizes=[self.width, 2 * self.width, 4 * self.width, 8 * self.width],
            focal_levels=[self.focal_levels] * len(DEPTHS),
            focal_windows=[3] * len(DEPTHS),
            hidden_act=self.activation,
            initializer_range=SPREAD * math.sqrt(WIDTH / self.width),
            drop_path_rate=0.0,
            problem_type="single_label_classification",
        )
        config.num_labels = CLASSES
        network = FocalNetForImageClassification(config)
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.reset_parameters()
        return network

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(
            loss=4,
            logits=50,
            gradients=20,
            has_branch_points=self.activation == RELU,
            converged_loss=0.1,
        )


WORKLOAD = Focalnet
