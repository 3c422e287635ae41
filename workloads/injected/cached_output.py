"""The first product is handed out again for other inputs, as a benchmark that cheats does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import Kept, SpoiltGemm


@dataclass(frozen=True, kw_only=True)
class CachedOutput(SpoiltGemm):
    summary: ClassVar[str] = "Matrix multiply that hands out its first output for every input"
    injector: ClassVar[str] = "cached output"

    def spoil(self, state: Kept, output: torch.Tensor) -> torch.Tensor:
        if not state.outputs:
            state.outputs.append(output)
        return state.outputs[0]


WORKLOAD = CachedOutput
