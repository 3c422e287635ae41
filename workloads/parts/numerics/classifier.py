"""A small classifier in the form that the training step takes: inputs and labels to a loss."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from workloads.parts.numerics.size import OperationCounter


@dataclass(frozen=True, kw_only=True)
class Result:
    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(nn.Module):
    """Layers from inputs to logits, under mean cross-entropy."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> Result:
        logits = self.layers(inputs)
        return Result(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


def in_float64(model: nn.Module) -> nn.Module:
    """A copy on the host, which judges what the model has learned free of the device."""
    return copy.deepcopy(model).cpu().double()


def count_training_flops(model: Classifier, inputs: torch.Tensor) -> int:
    """Floating-point operations of matrix products, forward and backward; both on `meta`."""
    labels = torch.empty(len(inputs), dtype=torch.long, device="meta")
    counter = OperationCounter()
    with counter:
        torch.autograd.backward(model(inputs, labels).loss)
    return counter.flops
