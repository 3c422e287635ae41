"""A tile of the output is never written, so that what lay in the memory stays: here poison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History

TILE = 16


@dataclass(frozen=True, kw_only=True)
class UnwrittenOutput(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply that leaves a tile of its output unwritten"
    injector: ClassVar[str] = "unwritten output"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        output[-TILE:, -TILE:] = math.nan
        return output


WORKLOAD = UnwrittenOutput
