"""Dense matrix multiply of float32 whose products keep 10 bits of their operands (TF32).

One step is one product C = A @ B of normally distributed data, as training in TF32 makes it.
The worker sets the device so. Sampled rows and a random projection of all rows
(`parts/matmul/dense.py`) are held to what cutting both operands costs (`parts/matmul/tf32.py`). A
device that makes them in full float32 has not done what was asked: the second bound is from below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.target import Target
from workloads.parts.matmul.dense import DenseProduct, Operands
from workloads.parts.matmul.tf32 import LEAST, MOST, refuse_processor


@dataclass(frozen=True, kw_only=True)
class GemmTf32(DenseProduct):
    summary: ClassVar[str] = "Dense matrix multiply of float32 with products in TF32"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {"m": 256, "n": 256}
    dtype: ClassVar[str] = "tf32"
    needs: ClassVar[frozenset[str]] = frozenset({"tf32"})

    def work(self) -> Work:
        return self.product_work("tf32", 4, 4)

    def build(self, target: Target, seed: int) -> Operands:
        refuse_processor(target)
        return super().build(target, seed)

    @property
    def format(self) -> torch.dtype:
        return torch.float32

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    @property
    def rounding(self) -> float:
        return MOST

    def check(self, before: object, state: Operands, output: torch.Tensor) -> Iterator[Check]:
        checks = list(super().check(before, state, output))
        yield from checks
        yield replace(
            checks[0],
            name="products are not of full float32",
            error=LEAST / checks[0].error if checks[0].error > 0 else math.inf,
            bound=1.0,
            detects=LEAST,
            detects_what="relative error that cutting the operands must leave",
        )


WORKLOAD = GemmTf32
