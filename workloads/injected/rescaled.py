"""The output is right but for a factor, as where a scale is applied twice or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class Rescaled(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply whose output is a little too large"
    injector: ClassVar[str] = "rescaled output"

    factor: float = 1.001

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        return output * self.factor


WORKLOAD = Rescaled
