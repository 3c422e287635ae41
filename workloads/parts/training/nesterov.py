"""Gradient descent with Nesterov's momentum and a rate that rises and falls in a triangle.

Twice, as in `parts/training/optimizers.py`: torch's, which is timed, and the same formula in
float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from workloads.parts.training.optimizers import Tensors, Updated


@dataclass(frozen=True, kw_only=True)
class Nesterov:
    """`learning_rate` is the highest, reached after the share `rise` of `steps`; it ends near 0."""

    learning_rate: float
    steps: int
    rise: float = 0.2
    momentum: float = 0.9
    decay: float = 5e-4

    def make(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            [weight for weight in model.parameters() if weight.requires_grad],
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.decay,
            nesterov=True,
        )

    def learning_rate_at(self, number: int) -> float:
        place = (number + 1) / (self.steps + 1)
        return self.learning_rate * min(place / self.rise, (1 - place) / (1 - self.rise))

    def update(
        self, weight: torch.Tensor, gradient: torch.Tensor, moments: Tensors, number: int
    ) -> Mapping[str, Updated]:
        learning_rate = self.learning_rate_at(number)
        slope = gradient + self.decay * weight
        velocity, size = slope, gradient.abs() + self.decay * weight.abs()
        slope_size = size
        if "momentum_buffer" in moments:
            old = self.momentum * moments["momentum_buffer"]
            velocity, size = slope + old, size + old.abs()
        step, step_size = slope + self.momentum * velocity, slope_size + self.momentum * size
        return {
            "weight": Updated(
                value=weight - learning_rate * step, size=weight.abs() + learning_rate * step_size
            ),
            "momentum_buffer": Updated(value=velocity, size=size),
        }
