"""One bit of one element of a product is flipped, as a fault in memory or in a register does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History, flip


@dataclass(frozen=True, kw_only=True)
class BitFlip(CorruptedGemm):
    """`bit`: which one, counted from the lowest."""

    summary: ClassVar[str] = "Matrix multiply with one bit of its output flipped"
    injector: ClassVar[str] = "bit flip in a product"

    bit: int = 30

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        return flip(output, self.bit)


WORKLOAD = BitFlip
