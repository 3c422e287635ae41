"""Answers of a served network held against float64, and against a processor in the same format."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from appliance.records.journal import Check
from workloads.parts.numerics.precision import rounding

RATIO = 3.0
"""Largest root mean square error, in those of a processor in the same format."""


def compare_whole(
    output: torch.Tensor,
    reference: torch.Tensor,
    eager: torch.Tensor,
    *,
    turned: float,
    dtype: torch.dtype,
    what: str = "an image's logits",
) -> Iterator[Check]:
    """Compare all answers at once, last dimension one answer; `turned`: the most of 1 - cosine."""
    error = (output.double() - reference).square().mean().sqrt()
    yardstick = (eager.double() - reference).square().mean().sqrt()
    yardstick = torch.maximum(yardstick, rounding(dtype) * reference.square().mean().sqrt())
    yield Check(
        name="error over that of a processor in the same format",
        error=(error / yardstick).item(),
        bound=RATIO,
        detects=RATIO,
        detects_what=f"times the processor's root mean square error, {yardstick.item():.2g}",
    )
    directions = [torch.nn.functional.normalize(z.double(), dim=-1) for z in (output, reference)]
    angle = (directions[0] - directions[1]).square().sum(-1).amax().sqrt()
    bound = (2 * turned) ** 0.5
    yield Check(
        name=f"angle between {what} and float64's",
        error=angle.item(),
        bound=bound,
        detects=bound,
        detects_what=f"radians; of the cosine, {turned:.0e} less than 1",
    )


def count_other_choices(
    output: torch.Tensor,
    reference: torch.Tensor,
    *,
    unit_roundoffs: float,
    dtype: torch.dtype,
    what: str,
) -> Check:
    """Choices (row) that float64 would not make; a lead within the bound on logits is no choice."""
    chosen = reference.gather(1, output.argmax(1, keepdim=True)).squeeze(1)
    allowed = 2 * unit_roundoffs * rounding(dtype) * reference.square().mean().sqrt()
    lost = reference.amax(1) - chosen
    return Check(
        name=f"{what} that float64 would not choose", error=int((lost > allowed).sum()), bound=0.0
    )
