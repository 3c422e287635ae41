"""Optimisers twice: torch's, which is timed, and the same formula in float64, which judges it.

`update` is fed with the gradients that the device reported. So an optimiser that divides by a
gradient's size, and turns the noise of a gradient near zero into a full step, is still checked
to the last bits of every weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch._dynamo  # the first optimiser of a process imports it: a second of each forked launch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Updated:
    """One tensor after the formula, and the size of the terms that were added up to make it.

    The rounding of a sum goes with the size of its terms, also where they cancel.
    """

    value: torch.Tensor
    size: torch.Tensor


class Optimizer(Protocol):
    """What a training step asks of its optimiser."""

    def make(self, model: torch.nn.Module) -> torch.optim.Optimizer: ...

    def learning_rate_at(self, number: int) -> float:
        """Learning rate of the step with this number, from 0."""

    def update(
        self, weight: torch.Tensor, gradient: torch.Tensor, moments: Tensors, number: int
    ) -> Mapping[str, Updated]:
        """Return the weight (under "weight") and each moment as step `number` leaves them.

        `moments` lacks those that do not exist before the first step: they are zero. All are in
        float64, and may be some elements of a tensor: the formula is that of each element, and of
        the tensor's dimensions no more is kept than whether it is a matrix. They stay as they are.
        """


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Stochastic gradient descent with momentum and weight decay."""

    learning_rate: float
    momentum: float = 0.9
    decay: float = 1e-4

    def make(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        groups = [{"params": some} for some in alike(weights)]
        return torch.optim.SGD(
            groups, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.decay
        )

    def learning_rate_at(self, number: int) -> float:  # noqa: ARG002 - constant
        return self.learning_rate

    def update(
        self,
        weight: torch.Tensor,
        gradient: torch.Tensor,
        moments: Tensors,
        number: int,  # noqa: ARG002 - the formula is the same in every step
    ) -> Mapping[str, Updated]:
        velocity = gradient + self.decay * weight
        size = gradient.abs() + self.decay * weight.abs()
        if "momentum_buffer" in moments:
            old = self.momentum * moments["momentum_buffer"]
            velocity, size = velocity + old, size + old.abs()
        return {
            "weight": Updated(
                value=weight - self.learning_rate * velocity,
                size=weight.abs() + self.learning_rate * size,
            ),
            "momentum_buffer": Updated(value=velocity, size=size),
        }


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay of matrices.

    With `steps` the rate rises over `warmup` steps and then falls by half a cosine to a tenth;
    without, it is constant.
    """

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.01
    warmup: int = 0
    steps: int | None = None

    def make(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        decays = sorted({self._decay_of(weight) for weight in weights})
        groups: list[dict[str, Any]] = [
            {"params": some, "weight_decay": decay}
            for decay in decays
            for some in alike([w for w in weights if self._decay_of(w) == decay])
        ]
        return torch.optim.AdamW(groups, lr=self.learning_rate, betas=self.betas, eps=self.epsilon)

    def _decay_of(self, weight: torch.Tensor) -> float:
        return self.decay if weight.dim() > 1 else 0.0

    def learning_rate_at(self, number: int) -> float:
        if self.steps is None:
            return self.learning_rate
        if number < self.warmup:
            return self.learning_rate * (number + 1) / (self.warmup + 1)
        done = min(1.0, (number - self.warmup) / max(1, self.steps - self.warmup))
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

    def update(
        self, weight: torch.Tensor, gradient: torch.Tensor, moments: Tensors, number: int
    ) -> Mapping[str, Updated]:
        (beta1, beta2), learning_rate = self.betas, self.learning_rate_at(number)
        first = moments.get("exp_avg", torch.zeros_like(weight))
        second = moments.get("exp_avg_sq", torch.zeros_like(weight))
        # What each operator would make anew it writes over what the one before has made.
        mean = (gradient - first).mul_(1 - beta1).add_(first)
        square = gradient.square().mul_(1 - beta2).add_(beta2 * second)
        divisor = (square / (1 - beta2 ** (number + 1))).sqrt_().add_(self.epsilon)
        pace = learning_rate / (1 - beta1 ** (number + 1)) / divisor
        decayed = weight * (1 - learning_rate * self._decay_of(weight))
        size = first.abs().add_(gradient.abs())
        weights = Updated(value=decayed.sub_(pace * mean), size=weight.abs().add_(pace * size))
        return {
            "weight": weights,
            "exp_avg": Updated(value=mean, size=size),
            "exp_avg_sq": Updated(value=square, size=square),
        }


@dataclass(frozen=True, kw_only=True)
class Nesterov:
    """Gradient descent with Nesterov's momentum, its learning rate a triangle.

    `learning_rate` is the highest, reached after the share `rise` of `steps`; it ends near 0.
    """

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


def alike(weights: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Weights shared out among ranks, and those that are not: no operation takes both at once."""
    parts = [
        [w for w in weights if hasattr(w, "full_tensor") == is_out] for is_out in (True, False)
    ]
    return [part for part in parts if part]
