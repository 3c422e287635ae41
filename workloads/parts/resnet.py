"""ResNet-50 as both its workloads use it: trained in one, served by ONNX Runtime in the other."""

from __future__ import annotations

import torch
from transformers import ResNetConfig, ResNetForImageClassification

CLASSES = 1000
BRANCH = 0.1
"""Scale of every residual branch before training.

At 1, the library's choice, rounding grows from block to block until bfloat16 logits of a fresh
network are all noise (measured: as large as the logits themselves), and no check of them could
tell anything. At 0, as Goyal et al. (2017) start, no gradient reaches the branches.
"""


def resnet50() -> ResNetForImageClassification:
    """Build the network with its library's random weights, from torch's generator."""
    config = ResNetConfig(
        depths=[3, 4, 6, 3],
        layer_type="bottleneck",
        num_labels=CLASSES,
        problem_type="single_label_classification",
    )
    network = ResNetForImageClassification(config)
    with torch.no_grad():
        for stage in network.resnet.encoder.stages:
            for block in stage.layers:
                block.layer[-1].normalization.weight.fill_(BRANCH)
    return network
