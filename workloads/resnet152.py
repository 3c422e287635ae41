"""ResNet-152 training: 50 blocks one behind the other, batch normalisation and SGD with momentum.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device; with `ranks`, each has a batch of its own and the
gradients are averaged (`parts/distributed`). The checks of `parts/training` recompute the
step in float64: a convolution in a lower precision, a block left out, a wrong or lost gradient, a
stale batch, a weight that the optimiser missed and running statistics that drift would each be
seen, in the first step and in the last.

`ERROR_BOUNDS` allows twice what was measured at worst (`calibration/resnet152.toml`), and less than
a backward pass alone errs whose products are made in the next lower precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.vision.resnet import DEPTHS_152
from workloads.parts.vision.resnet_training import ResnetTraining

ERROR_BOUNDS = ErrorBounds(
    loss=4, logits=64, gradients=32, statistics=20, has_branch_points=True, branch_points=160
)


@dataclass(frozen=True, kw_only=True)
class Resnet152(ResnetTraining):
    summary: ClassVar[str] = "ResNet-152 training, images on the device"
    version: ClassVar[int] = 5
    has_drawn_weights: ClassVar[bool] = True
    depths: ClassVar[tuple[int, int, int, int]] = DEPTHS_152
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "most_blocks": 3,
        "width": 16,
        "dtype": "float32",
        "channels_last": False,
        "learning_rate": 0.01,
        "num_inputs": 2,
    }

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS


WORKLOAD = Resnet152
