"""Dense matrix multiply of 8-bit integers with 32-bit sums: quantised inference's core.

One step is one product C = A @ B of integers from -127 to 127, the right operand by columns, whose
sums fit 32 bits at every K to 133,144. They have one right answer in any order: sampled rows must
be the host's to the bit, and so must every row's projection on a random sign vector
(`parts/matmul/dense.py`), in integers that float64 holds. One wrong, lost or saturated element
shows in both if it is in a sampled row, and in the projection wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.generator import maps
from appliance.generator.maps import Map
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.matmul.dense import DenseProduct, Given, Operands, References

LARGEST = 127
MOST = (2**31 - 1) // LARGEST**2
MULTIPLE, LEAST_ROWS = 16, 32  # what the products of some devices take: more than 16 rows


@dataclass(frozen=True, kw_only=True)
class GemmInt8(DenseProduct):
    summary: ClassVar[str] = "Dense matrix multiply of 8-bit integers, exact to the bit"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {"m": 256, "n": 256}
    dtype: ClassVar[str] = "int8"
    needs: ClassVar[frozenset[str]] = frozenset({"int8"})
    data_pattern: ClassVar[str] = "uniform 8-bit integers"
    by_columns: ClassVar[bool] = True
    values: ClassVar[Map] = maps.integers(-LARGEST, LARGEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > MOST:
            raise ParameterError(f"k is {self.k}: 32-bit sums hold at most {MOST}")
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if value % MULTIPLE:
                raise ParameterError(f"{name} is {value}: give a multiple of {MULTIPLE}")
        if self.m < LEAST_ROWS:
            raise ParameterError(f"m is {self.m}: give {LEAST_ROWS} or more")

    def work(self) -> Work:
        return self.product_work("int8", 1, 4)

    @property
    def format(self) -> torch.dtype:
        return torch.int8

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch._int_mm(left, right)  # noqa: SLF001 - none is public
        return product

    @property
    def rounding(self) -> float:
        return 0.0

    def judge(self, product: Given, exact: References, state: Operands) -> Iterator[Check]:
        """Counts of what differs: float64 holds every sum here exactly."""
        yield Check(
            name="elements of sampled rows that differ",
            error=int((product.rows != exact.rows).sum()),
            bound=0.0,
            kind="exact",
            detects=1,
            detects_what=f"wrong elements in {len(state.rows)} of {self.m} rows",
        )
        yield Check(
            name="rows whose random projection differs",
            error=int((product.projected != exact.projected).sum()),
            bound=0.0,
            kind="exact",
            detects=1,
            detects_what="wrong elements anywhere",
        )


WORKLOAD = GemmInt8
