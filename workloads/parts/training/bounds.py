"""How far a healthy step may be off, as multiples of one rounding in the dtype of the case.

Each workload gives its own multiples. What was measured stands in workloads/calibration/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from workloads.parts.numerics.precision import rounding, unit_roundoff

SWITCHED, BRANCH_POINTS = 0.1, 8.0
"""What units that switch may do to a gradient: one alone, and as a share of very many.

Allowed only where the device's forward pass is not bitwise reproducible. A unit switches if it lies
within the error of zero, so their share goes with a rounding, and the gradient's relative error
with its root."""
_CONVERGED_ERRORS = 2
"""Errors of the loss that a gradient may show, relative to a loss below 1.

A converged model has a loss, and a gradient that goes with it, that are the difference of large
numbers, made in float32."""
_OF_TF32 = rounding(torch.float16) / rounding(torch.float32)
"""What a rounding to 10 bits costs, which TF32 and float16 both keep, in roundings of float32."""
LANES = 8
"""Sums side by side that a softmax may make of its exponentials at least.

Each addition to one that stands near 1 may lose half a bit, and those of nearly equal terms lose
it in the same direction."""


@dataclass(frozen=True, kw_only=True)
class ErrorBounds:
    """Roundings of the dtype that a healthy step may be off, for each kind of result.

    `has_branch_points`: the network has rectifiers or maxima, so that a rounding now and then
    switches one unit's gradient on or off, which no multiple of a rounding bounds. `branch_points`:
    roundings by which an input of theirs may be off, in units of its root mean square.
    `recomputes`: the backward pass comes to branch points as well, since it makes anew what was not
    kept. `scale`: roundings of a factor common to all logits, more than one where they are few.
    `converged_loss`: the loss from which on the gradient's errors grow, with the root of how far it
    has fallen below: the texts of a batch then pull in different directions, and what they leave is
    small beside each. `unit`: roundings of the dtype that one of a product costs.
    """

    loss: float
    logits: float
    gradients: float
    statistics: float | None = None
    has_branch_points: bool = False
    branch_points: float = 100
    recomputes: bool = False
    scale: float = 1.0
    converged_loss: float = 0.0
    unit: float = 1.0

    def in_tf32(self) -> ErrorBounds:
        """Roundings of float32 that a step may be off where its products are made in TF32."""
        statistics = self.statistics
        return replace(
            self,
            loss=self.loss * _OF_TF32,
            logits=self.logits * _OF_TF32,
            gradients=self.gradients * _OF_TF32,
            statistics=None if statistics is None else statistics * _OF_TF32,
            branch_points=self.branch_points * _OF_TF32,
            scale=self.scale * _OF_TF32,
            unit=self.unit * _OF_TF32,
        )

    def bound_loss(self, dtype: torch.dtype, loss: float, classes: int) -> float:
        """Largest error of a loss that is this in float64, relative to itself or to 1."""
        converged = max(0.0, 1 - abs(loss))
        return max(self.loss * rounding(dtype), converged * _softmax(classes))

    def bound_gradients(
        self, dtype: torch.dtype, loss: float, logits: torch.Tensor, *, is_followed: bool
    ) -> float:
        """Largest relative error of one tensor's gradient at this exact loss, of these logits.

        `is_followed`: float64 took the branches that the device took. A rounding of a logit changes
        what is left of a converged loss by a factor, so that the largest counts as a whole.
        """
        converged, largest = max(0.0, 1 - abs(loss)), logits.abs().max().item()
        smooth = (self.gradients + converged * largest) * rounding(dtype)
        if loss:
            smooth *= max(1.0, math.sqrt(self.converged_loss / abs(loss)))
            errors = _CONVERGED_ERRORS * self.loss * rounding(torch.float32)
            smooth += converged / abs(loss) * max(errors, _softmax(logits.shape[-1]))
        if is_followed or not self.has_branch_points:
            return smooth
        return smooth + SWITCHED + BRANCH_POINTS * math.sqrt(rounding(dtype))


def _softmax(classes: int) -> float:
    """Largest error of a probability near 1, and of its logarithm, in float32; see `LANES`."""
    return (16 + classes / LANES) * unit_roundoff(torch.float32)
