"""Dense matrix multiply of float8 (e4m3) operands, stored in bfloat16: quantised training's core.

One step is one product C = A @ B with one scale for each operand. Sampled rows and a random
projection of all rows (`parts/matmul/dense.py`) are held to what storing in bfloat16 earns (0.6 of
its unit roundoff, as a bfloat16 product is) and to what a narrow accumulator adds, which healthy
devices have (`parts/matmul/float8.py`): with fast accumulation in proportion to K, without no more
than the parts of a sum that it holds, so that a device which accumulates fast unasked is seen.
Operands cut to e5m2 err by 7e-2. A sum that is cut and not rounded errs towards zero: simulated
with 14 bits and K from 1024 to 16384, a factor common to all elements is 0.7 of the error. So much
is allowed of a common factor, which stands out of the noise: 1.01 shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.matmul.dense import DenseProduct, Given, Operands, References
from workloads.parts.matmul.float8 import narrow_error
from workloads.parts.numerics.precision import unit_roundoff

FORMAT = torch.float8_e4m3fn
STORED_ROUNDING = 0.6  # of bfloat16's unit roundoff; 0.42 is earned
SHRUNK = 0.5  # of what a narrow accumulator may cost, as a factor common to all elements
MULTIPLE = 16  # the products of some devices take multiples of 16 alone


@dataclass(frozen=True, kw_only=True)
class GemmFloat8(DenseProduct):
    """`use_fast_accum`: sums stay in the narrow accumulator to their end."""

    summary: ClassVar[str] = "Dense matrix multiply of float8 (e4m3), stored in bfloat16"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {"m": 64, "n": 64}
    dtype: ClassVar[str] = "float8"
    needs: ClassVar[frozenset[str]] = frozenset({"float8"})
    by_columns: ClassVar[bool] = True

    use_fast_accum: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if value % MULTIPLE:
                raise ParameterError(f"{name} is {value}: give a multiple of {MULTIPLE}")

    def work(self) -> Work:
        return self.product_work("float8", 1, 2)

    @property
    def format(self) -> torch.dtype:
        return FORMAT

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        one = torch.ones((), device=left.device)
        call = torch._scaled_mm  # noqa: SLF001 - torch has no public one
        product: torch.Tensor = call(
            left,
            right,
            one,
            one,
            out_dtype=torch.bfloat16,
            use_fast_accum=self.use_fast_accum,
        )
        return product

    @property
    def rounding(self) -> float:
        narrow = narrow_error(self.k, is_fast=self.use_fast_accum)
        return STORED_ROUNDING * unit_roundoff(torch.bfloat16) + narrow

    def judge(self, product: Given, exact: References, state: Operands) -> Iterator[Check]:
        yield from super().judge(product, exact, state)
        factor = (product.rows * exact.rows).sum() / exact.rows.square().sum()
        narrow = narrow_error(self.k, is_fast=self.use_fast_accum)
        bound = 0.1 * unit_roundoff(torch.bfloat16) + SHRUNK * narrow
        yield Check(
            name="scale of the sampled rows",
            error=(factor - 1).abs().item(),
            bound=bound,
            detects=bound,
            detects_what="relative error common to all elements",
        )


WORKLOAD = GemmFloat8
