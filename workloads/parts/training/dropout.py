"""Dropout whose masks can be drawn again, so that float64 can follow a step that uses it."""

from __future__ import annotations

import torch


class Dropout(torch.nn.Module):
    """Zero a share `rate` of the elements in training, and scale the others up.

    Masks come from `generator`, on its own device, also where the input is on the host: the
    same state of the generator gives a float64 copy of the model the same masks.
    """

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.generator = generator

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0 or values.is_meta:
            return values  # on the meta device there is nothing to mask
        mask = torch.empty(values.shape, device=self.generator.device)
        mask.bernoulli_(1 - self.rate, generator=self.generator)
        return values * (mask / (1 - self.rate)).to(values)


def generator_of(model: torch.nn.Module) -> torch.Generator | None:
    """Return the generator that the model's dropout shares; None if it has none."""
    return next((m.generator for m in model.modules() if isinstance(m, Dropout)), None)
