"""How many bits of their operands float32 products keep: all of them, or the 10 of TF32.

torch keeps one switch for the whole process, over every engine's own; an engine's default may cut
convolutions and not matrix products. So what a case asks for is set for its step and its check,
and put back after each. Where a device has no such products the switch changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.parts.numerics.precision import rounding
from workloads.parts.training.bounds import ErrorBounds

_FACTOR = rounding(torch.float16) / rounding(torch.float32)
"""What a rounding to 10 bits costs, which TF32 and float16 both keep, in roundings of float32."""


def shortened(error_bounds: ErrorBounds) -> ErrorBounds:
    """Roundings of float32 that a step may be off where its products are made in TF32."""
    statistics = error_bounds.statistics
    return replace(
        error_bounds,
        loss=error_bounds.loss * _FACTOR,
        logits=error_bounds.logits * _FACTOR,
        gradients=error_bounds.gradients * _FACTOR,
        statistics=None if statistics is None else statistics * _FACTOR,
        branch_points=error_bounds.branch_points * _FACTOR,
        scale=error_bounds.scale * _FACTOR,
    )


def require_short_products(target: Target) -> None:
    """Raise ParameterError if the target has no products shorter than float32."""
    if target.device.type == "cpu":
        raise ParameterError("tf32 is true, which a processor does not have: set it to false")


@contextmanager
def float32_products(*, use_tf32: bool) -> Iterator[None]:
    """Make float32 products in TF32 or in full while it is entered, forward and backward."""
    engines: Any = torch.backends  # its types do not tell of the switch
    before = engines.fp32_precision
    engines.fp32_precision = "tf32" if use_tf32 else "ieee"
    try:
        yield
    finally:
        engines.fp32_precision = before
