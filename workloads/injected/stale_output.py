"""Every step hands out the product of the step before, as a missing barrier does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class StaleOutput(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply that hands out the output of the step before"
    injector: ClassVar[str] = "stale output"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        state.outputs.append(output)
        return state.outputs.pop(0) if len(state.outputs) > 1 else output


WORKLOAD = StaleOutput
