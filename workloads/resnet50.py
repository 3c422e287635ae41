"""ResNet-50 training: convolutions, batch normalisation and SGD with momentum.

One step is forward, loss, backward and update on a batch of generated images that have a
pattern by class, already on the device. The checks of `parts/training.py` recompute the step in
float64: a convolution in a lower precision, a wrong or lost gradient, a stale batch, a weight
that the optimiser missed and running statistics that drift would each be seen, in the first
step and in the last.

`GROWTH` allows two to seven times what was measured on a processor (4 images of 64 pixels, 2
seeds, steps 0 and 4; one rounding is 5.4e-7 in float32 and 3.9e-3 in bfloat16 with float32
sums): loss 0.4 and 0.6 roundings, logits 6.6 and 14, gradients 4.7 and 8.9, running statistics
1.7 and 2.9, units that rectify on another side than in float64 none and 27 off zero. With more
or larger images (16 of 64, 8 of 128, 4 of 160) bfloat16 gradients err by 6.0 to 7.0, kinks by
30 to 33. A backward pass alone whose products are made in bfloat16 where float32 is asked for
errs by 6.4e-3, where 1.1e-5 is allowed; in float8 for bfloat16 by 0.10, where 0.078 is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records import Check, Work
from workloads.contract import Target, Turn, Workload
from workloads.parts import training
from workloads.parts.images import labelled_images
from workloads.parts.optimizers import Momentum
from workloads.parts.parameters import require_positive
from workloads.parts.precision import dtype_named
from workloads.parts.resnet import CLASSES, require_values_to_normalise, resnet50
from workloads.parts.size import count_parameters, count_training_flops
from workloads.parts.training import Before, Growth, Trained, Training

GROWTH = Growth(loss=4, logits=50, gradients=20, statistics=16, has_kinks=True, kinks=100)


@dataclass(frozen=True, kw_only=True)
class Resnet50(Workload[Training, Trained]):
    summary: ClassVar[str] = "ResNet-50 training, images on the device"
    version: ClassVar[int] = 1
    small: ClassVar[Mapping[str, bool | int | float | str]] = {
        "batch": 4,
        "side": 64,
        "dtype": "float32",
        "channels_last": False,
        "rate": 0.01,
    }
    data_pattern: ClassVar[str] = "generated images with a pattern by class"

    batch: int = 256
    side: int = 224
    dtype: str = "bfloat16"
    channels_last: bool = True
    rate: float = 0.1
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "batch", "side", "num_inputs")
        require_values_to_normalise(self.batch, self.side)
        dtype_named(self.dtype)

    def work(self) -> Work:
        shapes = {"pixel_values": (self.batch, 3, self.side, self.side), "labels": (self.batch,)}
        flops = count_training_flops(resnet50, shapes)
        return Work(units=self.batch, unit="images", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(resnet50)

    def build(self, target: Target, seed: int) -> Training:
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        model = training.seeded(seed, resnet50).train()
        model = model.to(target.device, memory_format=layout)
        rng = torch.Generator().manual_seed(seed)
        rule = Momentum(rate=self.rate)
        return Training(
            model=model,
            rule=rule,
            optimizer=rule.make(model),
            batches=[self._batch(rng, target.device, layout) for _ in range(self.num_inputs)],
            turn=Turn(of=self.num_inputs),
            dtype=dtype_named(self.dtype),
            growth=GROWTH,
            artifacts=target.artifacts,
        )

    def _batch(
        self, rng: torch.Generator, device: torch.device, layout: torch.memory_format
    ) -> dict[str, torch.Tensor]:
        images, labels = labelled_images(rng, count=self.batch, side=self.side, classes=CLASSES)
        images = images.to(device, memory_format=layout)
        return {"pixel_values": images, "labels": labels.to(device)}

    def step(self, state: Training) -> Trained:
        return training.step(state)

    def snapshot(self, state: Training) -> Before:
        return training.snapshot(state)

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return training.check(before, state, output)


WORKLOAD = Resnet50
