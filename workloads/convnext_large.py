"""ConvNeXt-L training: depthwise convolutions of 7 by 7, layer normalisation and AdamW.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device. `dtype` and `tf32` make the four rows of this network:
float32 in full or in TF32, and float16 with what remains of float32 in full or in TF32. The checks
of `parts/training` recompute the step in float64: a convolution in a lower precision, a wrong
or lost gradient, a stale batch and a weight that the optimiser missed would each be seen, in the
first step and in the last.

`error_bounds` allow three to ten times what was measured; gradients in bfloat16 have less to spare.
What errs most is the gradient of the first normalisation, a sum over all places that cancels. TF32
keeps as many bits as float16 and is allowed as much; it was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import ConvNextConfig, ConvNextForImageClassification

from appliance.records.json import Parameters
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

DEPTHS = (3, 3, 27, 3)
WIDTH = 192
SPREAD = 0.02
"""Standard deviation of all weights at the full width; a narrower network's are larger, so that its
branches carry as much."""
BRANCH = 0.1
"""Scale of every residual branch before training.

At a millionth, as Liu et al. (2022) start, a fresh network is its four downsampling layers, and
no check of its output could tell what its branches do."""


@dataclass(frozen=True, kw_only=True)
class ConvnextLarge(ImageTraining):
    """`width`: channels of the first stage, doubled by each of the three that follow."""

    summary: ClassVar[str] = "ConvNeXt-L training, images on the device"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "width": 32,
        "dtype": "float32",
        "tf32": False,
        "channels_last": False,
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one image more": {"batch_change": 1},
        "one block more": {"extra_layers": 1},
        "sigmoid-weighted units": {"activation": SILU},
        "rectified units": {"activation": RELU},
    }

    batch: int = 128
    dtype: str = "float16"
    tf32: bool = True
    width: int = WIDTH
    activation: str = GELU
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("activation", self.activation, ACTIVATIONS)
        require_positive(self, "width")

    def rule(self) -> AdamW:
        return AdamW(learning_rate=self.learning_rate, decay=0.05)

    def network(self) -> torch.nn.Module:
        config = ConvNextConfig(
            depths=[*DEPTHS[:2], DEPTHS[2] + self.extra_layers, DEPTHS[3]],
            hidden_sizes=[self.width, 2 * self.width, 4 * self.width, 8 * self.width],
            hidden_act=self.activation,
            initializer_range=SPREAD * math.sqrt(WIDTH / self.width),
            layer_scale_init_value=BRANCH,
            drop_path_rate=0.0,
            problem_type="single_label_classification",
        )
        config.num_labels = CLASSES
        return ConvNextForImageClassification(config)

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(
            loss=4, logits=50, gradients=20, has_branch_points=self.activation == RELU
        )


WORKLOAD = ConvnextLarge
