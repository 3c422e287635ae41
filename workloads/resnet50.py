"""ResNet-50 training: convolutions, batch normalisation and SGD with momentum.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device. The checks of `parts/training` recompute the step in
float64: a convolution in a lower precision, a wrong or lost gradient, a stale batch, a weight
that the optimiser missed and running statistics that drift would each be seen, in the first
step and in the last.

`ERROR_BOUNDS` allows two to seven times what was measured (`calibration/resnet50.toml`), and less
than a backward pass alone errs whose products are made in the next lower precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.vision.resnet import DEPTHS_50
from workloads.parts.vision.resnet_training import ResnetTraining

ERROR_BOUNDS = ErrorBounds(
    loss=4, logits=50, gradients=20, statistics=16, has_branch_points=True, branch_points=100
)


@dataclass(frozen=True, kw_only=True)
class Resnet50(ResnetTraining):
    summary: ClassVar[str] = "ResNet-50 training, images on the device"
    version: ClassVar[int] = 5
    has_drawn_weights: ClassVar[bool] = True
    depths: ClassVar[tuple[int, int, int, int]] = DEPTHS_50
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "most_blocks": 2,
        "width": 16,
        "dtype": "float32",
        "channels_last": False,
        "learning_rate": 0.01,
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS


WORKLOAD = Resnet50
