"""Dense matrix multiply: the compute ceiling that every other workload is read against.

One step is one product C = A @ B of normally distributed data. Sampled rows and a random
projection of all rows (`parts/dense.py`) are held to the rounding that the dtype earns on
average, not to its worst case: at K = 8192 a worst-case bound lets float32 computed in bfloat16
pass. Storing in a 16-bit dtype with unit roundoff u earns 0.42 u at any K, and 0.6 u is allowed; a
float32 result is limited by its accumulator, 2.5e-5 at K = 16384 where that truncates, and is
allowed 1e-5 for each 4096 of K, where inputs cut to TF32 would give 2.9e-4. Small sizes keep the
full inner dimension, because the bound grows with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records import Work
from workloads.parts.dense import DenseProduct, normal
from workloads.parts.parameters import require_choice
from workloads.parts.precision import unit_roundoff
from workloads.parts.products import FLOATS

STORED_ROUNDING = 0.6  # of the unit roundoff; 0.42 is earned
ACCUMULATED = {torch.float32: 1e-5, torch.float64: 1e-13}  # per 4096 of the inner dimension


@dataclass(frozen=True, kw_only=True)
class Gemm(DenseProduct):
    summary: ClassVar[str] = "Dense matrix multiply, C = A @ B, normally distributed data"
    version: ClassVar[int] = 1
    small: ClassVar[Mapping[str, bool | int | float | str]] = {"m": 256, "n": 256}

    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("dtype", self.dtype, FLOATS)

    def work(self) -> Work:
        size = FLOATS[self.dtype].itemsize
        return self.product_work(self.dtype, size, size)

    def draw(self, rng: torch.Generator, shape: tuple[int, int]) -> torch.Tensor:
        return normal(rng, shape, FLOATS[self.dtype])

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    @property
    def rounding(self) -> float:
        dtype = FLOATS[self.dtype]
        if dtype in ACCUMULATED:
            return ACCUMULATED[dtype] * max(1.0, self.k / 4096)
        return STORED_ROUNDING * unit_roundoff(dtype)


WORKLOAD = Gemm
