"""A step never comes back, and does not heed a request to end."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.injected.product import CorruptedGemm, History


@dataclass(frozen=True, kw_only=True)
class Hang(CorruptedGemm):
    summary: ClassVar[str] = "Matrix multiply that never comes back"
    injector: ClassVar[str] = "hang"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state, output
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1.0)


WORKLOAD = Hang
