"""Self-distillation with prototypes, the parts that DINO and iBOT share.

A head maps features to a bottleneck of unit length and compares it with many prototypes, of unit
length but for a gain. The teacher's answers are made into targets by Sinkhorn and Knopp's
iteration, in which every input counts alike and so does every prototype, and the student learns
them by cross-entropy (Oquab et al., DINOv2, arXiv 2304.07193; Caron et al., SwAV). Whatever the
precision of the products, targets and losses are made in float32 at least.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_ITERATIONS = 3
_STUDENT_TEMPERATURE = 0.1


class Prototypes(nn.Module):
    """Cosine of each input (count, width) with each of `number` prototypes, times its gain."""

    def __init__(self, width: int, number: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(nn.init.normal_(torch.empty(number, width)))
        self.gains = nn.Parameter(torch.ones(number, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        weights = self.gains * functional.normalize(self.directions, dim=1)
        return functional.linear(functional.normalize(features, dim=1), weights)


class Head(nn.Sequential):
    """Three layers with GELU between, a bottleneck, and prototypes."""

    def __init__(self, *, width: int, hidden: int, bottleneck: int, prototypes: int) -> None:
        layers = [
            _linear(width, hidden),
            nn.GELU(),
            _linear(hidden, hidden),
            nn.GELU(),
            _linear(hidden, bottleneck),
        ]
        super().__init__(*layers, Prototypes(bottleneck, prototypes))


def _linear(width: int, height: int) -> nn.Linear:
    """A layer whose outputs are about as large as its inputs."""
    layer = nn.Linear(width, height)
    nn.init.normal_(layer.weight, std=width**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def wide(values: torch.Tensor) -> torch.Tensor:
    """The values in float32, or in float64 as they are."""
    return values if values.dtype == torch.float64 else values.float()


def assigned(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Targets (count, prototypes) from the teacher's logits, each row a distribution."""
    shares = (wide(logits) / temperature).exp()
    shares = shares / shares.sum()
    for _ in range(_ITERATIONS):
        shares = shares / (shares.sum(dim=0, keepdim=True) * shares.shape[1])
        shares = shares / (shares.sum(dim=1, keepdim=True) * shares.shape[0])
    return shares * shares.shape[0]


def cross_entropy(targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the student's answers to the targets, summed over prototypes."""
    chances = functional.log_softmax(wide(logits) / _STUDENT_TEMPERATURE, dim=-1)
    return -(targets * chances).sum(dim=-1)
