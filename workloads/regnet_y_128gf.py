"""RegNetY-128GF training: grouped convolutions, squeeze and excitation, SGD with momentum.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device. The checks of `parts/training` recompute the step in
float64: a group that reads another's channels, a convolution in a lower precision, a wrong or lost
gradient, a stale batch, a weight that the optimiser missed and running statistics that drift would
each be seen, in the first step and in the last.

`ERROR_BOUNDS` allows twice or more of what was measured (`calibration/regnet_y_128gf.toml`), less
than what a backward pass alone in a lower precision errs by. Once the images are memorised they
pull in different directions, and what they leave is small beside each: errors grow beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import RegNetConfig, RegNetForImageClassification

from appliance.records.json import Parameters
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.vision.image_training import CLASSES, ImageTraining
from workloads.parts.vision.resnet import BRANCH, require_values_to_normalise

DEPTHS = (2, 7, 17, 1)
GROUPS = (2, 4, 11, 28)
"""Groups of each stage; all groups are of one width, 264 channels in the published network."""
OPEN = 2.0
"""Bias of the units that squeeze before training, twice what else goes into one.

Its inputs are much the same for all images. At 0 a layer of few units has all of them shut for
every image now and then, and its weights no gradient."""
ERROR_BOUNDS = ErrorBounds(
    loss=4,
    logits=50,
    gradients=26,
    statistics=16,
    has_branch_points=True,
    branch_points=100,
    converged_loss=0.1,
)


@dataclass(frozen=True, kw_only=True)
class RegnetY128gf(ImageTraining):
    """`group`: channels of one group of a grouped convolution.

    `squeezes`: layers are of kind Y, with squeeze and excitation, not of kind X without.
    `halves_first`: the first stage halves the image too. Other units than rectifiers are no
    parameter: where they bend smoothly the rounding of a fresh network grows from layer to layer,
    in bfloat16 until half of its gradient is noise (measured: 140 roundings), which shows nothing.
    """

    summary: ClassVar[str] = "RegNetY-128GF training, images on the device"
    version: ClassVar[int] = 4
    has_drawn_weights: ClassVar[bool] = True
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "group": 8,
        "dtype": "float32",
        "channels_last": False,
        "learning_rate": 0.01,
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one image more": {"batch_change": 1},
        "one block more": {"extra_layers": 1},
        "layers that do not squeeze": {"squeezes": False},
        "first stage at the full side": {"halves_first": False},
    }

    batch: int = 64
    group: int = 264
    squeezes: bool = True
    halves_first: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "group")
        require_values_to_normalise(self.count, self.side)

    def network(self) -> torch.nn.Module:
        config = RegNetConfig(
            depths=[*DEPTHS[:2], DEPTHS[2] + self.extra_layers, DEPTHS[3]],
            hidden_sizes=[self.group * groups for groups in GROUPS],
            groups_width=self.group,
            layer_type="y" if self.squeezes else "x",
            downsample_in_first_stage=self.halves_first,
            problem_type="single_label_classification",
        )
        config.num_labels = CLASSES
        network = RegNetForImageClassification(config)
        last = f".layer.{3 if self.squeezes else 2}.normalization.weight"
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if name.endswith(last):
                    weight.fill_(BRANCH)
                elif name.endswith(".attention.0.bias"):
                    weight.fill_(OPEN)
        return network

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS


WORKLOAD = RegnetY128gf
