"""The product is made in bfloat16 where float32 is asked for, and handed out as float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class LowerPrecision(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply made in bfloat16 and handed out as float32"
    injector: ClassVar[str] = "precision downgrade"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        index = state.cycle.index
        product = state.left[index].bfloat16() @ state.right[index].bfloat16()
        return product.to(output.dtype)


WORKLOAD = LowerPrecision
