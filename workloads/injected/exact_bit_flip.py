"""One bit of one element of a product of integers is flipped; there even the lowest shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.gemm_exact import GemmExact, State
from workloads.injected.product import flip


@dataclass(frozen=True, kw_only=True)
class ExactBitFlip(GemmExact):
    """`bit`: which one, counted from the lowest. `after`: steps that are right before it."""

    summary: ClassVar[str] = "Matrix multiply of integers with one bit of its output flipped"
    injector: ClassVar[str] = "bit flip in an exact product"

    bit: int = 0
    after: int = 0

    def step(self, state: State) -> torch.Tensor:
        output = super().step(state)
        return output if state.cycle.number < self.after else flip(output, self.bit)


WORKLOAD = ExactBitFlip
