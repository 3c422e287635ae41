"""What the residual networks in training share: their layers, variants and least sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.json import Parameters
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.vision.image_training import ImageTraining
from workloads.parts.vision.resnet import WIDTH, at_most, require_values_to_normalise, resnet


@dataclass(frozen=True, kw_only=True)
class ResnetTraining(ImageTraining):
    """`depths`: blocks of each stage, of which `most_blocks` at most are made.

    `width`: channels that the first convolution makes; all others are multiples of it.
    `first_version`: a block halves the image in its first convolution, not in the second. Other
    units than rectifiers are no parameter: with some that bend smoothly the rounding of a fresh
    network was seen to grow past what a check could tell from a fault in bfloat16.
    """

    depths: ClassVar[tuple[int, int, int, int]]
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one image more": {"batch_change": 1},
        "one block more": {"extra_layers": 1},
        "first version": {"first_version": True},
        "first version, two blocks more": {"first_version": True, "extra_layers": 2},
    }

    most_blocks: int = 36
    width: int = WIDTH
    first_version: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "most_blocks", "width")
        require_values_to_normalise(self.count, self.side)

    def network(self) -> torch.nn.Module:
        return resnet(
            at_most(self.most_blocks, self.depths),
            width=self.width,
            extra_layers=self.extra_layers,
            is_first_version=self.first_version,
        )
