"""One element of the output is not a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import Kept, SpoiltGemm


@dataclass(frozen=True, kw_only=True)
class NotANumber(SpoiltGemm):
    summary: ClassVar[str] = "Matrix multiply with one element that is not a number"
    injector: ClassVar[str] = "NaN"

    def spoil(self, state: Kept, output: torch.Tensor) -> torch.Tensor:
        del state
        output[-1, -1] = math.nan
        return output


WORKLOAD = NotANumber
