"""Number formats by name, what rounding in them costs, and the comparison of logits.

Bounds are written as a multiple of what one rounding costs in the format that a case asks for,
so that one measured multiple serves float32 on a processor and bfloat16 on an accelerator.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from appliance.records.journal import Check
from workloads.contract.failures import ParameterError

FORMATS = ("float32", "bfloat16", "float16")
LEAST_SHARE = 0.003
"""Of the logits' size, what must vary from input to input; a network gone constant has none."""


def dtype_named(name: str) -> torch.dtype:
    """Return the floating-point format called `name`; raises ParameterError for another one."""
    if name not in FORMATS:
        message = f"dtype {name!r} is not one of {', '.join(FORMATS)}"
        raise ParameterError(message)
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)  # noqa: S101 - narrows getattr for the type checker
    return dtype


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding to nearest."""
    return torch.finfo(dtype).eps / 2


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values in float64 on the host."""
    return tensor.detach().cpu().double()


def rounding(dtype: torch.dtype) -> float:
    """Return the relative error that one stored result of a long sum earns in this format.

    One rounding to store it, and the accumulation in float32, for which 8 more of its unit
    roundoffs are allowed.
    """
    return unit_roundoff(dtype) + 8 * unit_roundoff(torch.float32)


def compare_logits(
    output: torch.Tensor,
    reference: torch.Tensor,
    *,
    unit_roundoffs: float,
    dtype: torch.dtype,
    others: torch.Tensor | None = None,
    scale: float = 1.0,
    against: str = "float64",
) -> Iterator[Check]:
    """Compare logits, last dimension the classes, with their reference, which is in float64.

    Or in the format that `against` names, if its roundings are none beside those of `dtype`.

    `unit_roundoffs` is how many roundings the worst logit may be off, in units of the logits' root
    mean square. A factor common to all logits stands out of the noise that their number averages
    away: it is held to one rounding, so that 1.01 is seen in bfloat16 too, or to `scale` roundings
    or `unit_roundoffs` over the root of their number where the logits are too few to average. An
    output of a single input cannot show that it depends on it; `others` are the references of other
    inputs, from which it must differ.
    """
    measured, exact = on_host(output), on_host(reference)
    size = exact.square().mean().sqrt()
    bound = unit_roundoffs * rounding(dtype)
    yield Check(
        name=f"logits against {against}",
        error=((measured - exact).abs().max() / size).item(),
        bound=bound,
        detects=bound,
        detects_what="error of one logit, in units of their root mean square",
    )
    common = max(scale, unit_roundoffs / exact.numel() ** 0.5) * rounding(dtype)
    yield _check_scale(measured, exact, common)
    rows = measured.reshape(-1, measured.shape[-1])
    if others is not None:
        rows = torch.cat((rows, on_host(others).reshape(-1, rows.shape[-1])))
    yield _check_dependence(rows, size)


def _check_scale(measured: torch.Tensor, exact: torch.Tensor, bound: float) -> Check:
    factor = (measured * exact).sum() / exact.square().sum()
    return Check(
        name="scale of the logits",
        error=(factor - 1).abs().item(),
        bound=bound,
        detects=bound,
        detects_what="relative error common to all logits",
    )


def _check_dependence(rows: torch.Tensor, size: torch.Tensor) -> Check:
    """Whether logits (inputs, classes) of this size vary from input to input."""
    share = rows.std(dim=0, correction=0).square().mean().sqrt() / size
    return Check(
        name="logits depend on the input",
        error=(LEAST_SHARE / share).item(),
        bound=1.0,
        detects=LEAST_SHARE,
        detects_what="share of the logits' size that varies from input to input",
    )


def set_format(parameter: torch.nn.Parameter, dtype: torch.dtype) -> None:
    """Give a parameter that has no values yet its format; memory that is not used stays so."""
    parameter.data = torch.empty_like(parameter, dtype=dtype)
