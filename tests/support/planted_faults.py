"""Faults that are planted in a model's modules, as a device would make them every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from appliance.records.journal import Check

FACTOR = 1.001


def outside(checks: dict[str, Check]) -> set[str]:
    """Names of the checks that are not within their bounds."""
    return {name for name, check in checks.items() if not check.is_within}


def on_device(value: torch.Tensor) -> bool:
    """What float64 computes is not the device's."""
    return value.dtype != torch.float64


@contextmanager
def wrong(module: torch.nn.Module, spoil: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """A device that gets what this module makes wrong, every time."""

    def answer(other: Any, given: Any, made: Any) -> Any:
        del other, given
        return spoil(made) if on_device(made) else made

    handle = module.register_forward_hook(answer)
    try:
        yield
    finally:
        handle.remove()


class Sent(torch.autograd.Function):
    """What is right on the way there, and wrong on the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        del ctx
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        del ctx
        return gradients[0] * FACTOR
