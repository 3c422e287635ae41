"""Dense products in the number formats of torch's own product, and how each of them rounds.

Held to the rounding that the dtype earns on average, not to its worst case: at K = 8192 a
worst-case bound lets float32 computed in bfloat16 pass. Storing in a 16-bit dtype with unit
roundoff u earns 0.42 u at any K, and 0.6 u is allowed; a float32 result is limited by its
accumulator, 2.5e-5 at K = 16384 where that truncates, and is allowed 1e-5 for each 4096 of K, where
inputs cut to TF32 would give 2.9e-4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from appliance.records.workload import Work
from workloads.parts.matmul.dense import DenseProduct
from workloads.parts.matmul.products import FLOATS
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.numerics.precision import unit_roundoff

STORED_ROUNDING = 0.6  # of the unit roundoff; 0.42 is earned
ACCUMULATED = {torch.float32: 1e-5, torch.float64: 1e-13}  # per 4096 of the inner dimension


@dataclass(frozen=True, kw_only=True)
class FloatingProduct(DenseProduct):
    """`dtype`: of the operands and of the result."""

    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("dtype", self.dtype, FLOATS)

    def work(self) -> Work:
        size = FLOATS[self.dtype].itemsize
        return self.product_work(self.dtype, size, size)

    @property
    def format(self) -> torch.dtype:
        return FLOATS[self.dtype]

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    @property
    def rounding(self) -> float:
        dtype = self.format
        if dtype in ACCUMULATED:
            return ACCUMULATED[dtype] * max(1.0, self.k / 4096)
        return STORED_ROUNDING * unit_roundoff(dtype)
