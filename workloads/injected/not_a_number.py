"""One element of the output is not a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class NotANumber(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply with one element that is not a number"
    injector: ClassVar[str] = "NaN"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        output[-1, -1] = math.nan
        return output


WORKLOAD = NotANumber
