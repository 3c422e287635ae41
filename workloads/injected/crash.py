"""The process is ended by a signal in a step, as a driver's assertion does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class Crash(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply that ends its process"
    injector: ClassVar[str] = "crash"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state, output
        os.abort()


WORKLOAD = Crash
