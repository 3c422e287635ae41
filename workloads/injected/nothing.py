"""An injector whose fault cannot be seen: every check passes, and the run is not accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class Nothing(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply with a fault that cannot be seen"
    injector: ClassVar[str] = "invisible fault"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        return output


WORKLOAD = Nothing
