"""The first product is handed out again for other inputs, as a benchmark that cheats does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class CachedOutput(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply that hands out its first output for every input"
    injector: ClassVar[str] = "cached output"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        if not state.outputs:
            state.outputs.append(output)
        return state.outputs[0]


WORKLOAD = CachedOutput
