"""The residual networks of all workloads that have one, built from their library's classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import ResNetConfig, ResNetForImageClassification

from workloads.contract.failures import ParameterError

CLASSES = 1000
LEAST_VALUES = 8
"""Per channel; of two, normalisation makes plus and minus one, whatever they were."""
BRANCH = 0.1
"""Scale of every residual branch before training.

At 1, the library's choice, rounding grows from block to block until bfloat16 logits of a fresh
network are all noise (measured: as large as the logits themselves), and no check of them could
tell anything. At 0, as Goyal et al. (2017) start, no gradient reaches the branches.
"""
WIDTH = 64
DEPTHS_50, DEPTHS_152 = (3, 4, 6, 3), (3, 8, 36, 3)


def require_values_to_normalise(batch: int, side: int) -> None:
    """Raise ParameterError if the last layers would normalise fewer than `LEAST_VALUES`."""
    last = math.ceil(side / 32)
    if batch * last * last < LEAST_VALUES:
        raise ParameterError(f"side is {side} where batch is {batch}: give a larger one of them")


def at_most(most: int, depths: Sequence[int]) -> list[int]:
    """Depths of a network whose stages have `most` blocks at most, its classes of layer all there.

    With two blocks a stage still has one that halves the image and one that keeps it.
    """
    return [min(most, depth) for depth in depths]


def resnet(
    depths: Sequence[int],
    *,
    width: int = WIDTH,
    extra_layers: int = 0,
    is_first_version: bool = False,
) -> ResNetForImageClassification:
    """Build a bottleneck network with its library's random weights, from torch's generator.

    `width`: channels that the first convolution makes. `extra_layers` go to the third stage.
    `is_first_version`: a block halves the image in its first convolution, as He et al. (2015) did,
    not in the second, as is usual since.
    """
    config = ResNetConfig(
        depths=[*depths[:2], depths[2] + extra_layers, depths[3]],
        embedding_size=width,
        hidden_sizes=[4 * width, 8 * width, 16 * width, 32 * width],
        layer_type="bottleneck",
        downsample_in_bottleneck=is_first_version,
        problem_type="single_label_classification",
    )
    config.num_labels = CLASSES
    network = ResNetForImageClassification(config)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(".layer.2.normalization.weight"):
                weight.fill_(BRANCH)
    return network
