"""Whether products are made in TF32: their error lies in a window, neither less nor more.

TF32 keeps 10 bits of float32's 23 after the leading one. Normally distributed operands that are
rounded so err by 0.42 of the unit roundoff 2**-11 each, so a product errs by sqrt(2) times that,
2.9e-4 of its norm; one that truncates them by 7.6e-4. Half of the first and three times it bound
the window: bfloat16 errs by 2.3e-3, full float32 by 1e-6. One H100 measured 3.0e-4.
"""

from __future__ import annotations

import math

import torch

from appliance.records.journal import Check
from workloads.contract.failures import ParameterError, Unsupported
from workloads.contract.target import Target
from workloads.parts.numerics.precision import on_host, unit_roundoff

EARNED = math.sqrt(2) * 0.42 * unit_roundoff(torch.float16)  # float16 keeps 10 bits too
LEAST, MOST = 0.5 * EARNED, 3.0 * EARNED
SIZE, SEED = 512, 1
"""Edge of the matrices that are multiplied to see it, and what draws them."""


def refuse_processor(target: Target) -> None:
    """Raise ParameterError if the target is a processor, whose products are of full float32."""
    if target.device.type == "cpu":
        raise ParameterError("tf32 is true, which a processor does not have: set it to false")


def require_tf32(target: Target) -> None:
    """Raise Unsupported where a product on the target keeps more of its operands than TF32 does.

    One that keeps less is a wrong product, which `window_check` judges.
    """
    error = product_error(target.device)
    if error < LEAST:
        raise Unsupported(
            f"tf32 is asked for, and float32 products here err by {error:.2g}, as full float32 "
            f"does: those of TF32 err by {LEAST:.2g} at least"
        )


def window_check(device: torch.device) -> Check:
    """Whether a product made now on the device errs as TF32 does, neither more nor less."""
    error = product_error(device)
    return Check(
        name="a product of float32 operands in TF32",
        error=max(error / MOST, LEAST / error if error > 0 else math.inf),
        bound=1.0,
        detects=MOST,
        detects_what=f"relative error of a product, which TF32 leaves at {LEAST:.2g} or more",
    )


def product_error(device: torch.device) -> float:
    """Relative error of one product of normally distributed matrices, as torch makes it now."""
    rng = torch.Generator().manual_seed(SEED)
    left, right = (torch.randn(SIZE, SIZE, generator=rng) for _ in range(2))
    product = on_host(left.to(device) @ right.to(device))
    exact = on_host(left) @ on_host(right)
    return float((product - exact).norm() / exact.norm())
