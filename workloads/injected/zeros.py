"""The output is all zeros, as a kernel that was never started leaves fresh memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class Zeros(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply whose output is all zeros"
    injector: ClassVar[str] = "zeros"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        return torch.zeros_like(output)


WORKLOAD = Zeros
