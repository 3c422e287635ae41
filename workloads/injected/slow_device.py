"""Every step takes longer by a factor, as on a device that is throttled or shared; all is right."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.gemm import Gemm
from workloads.parts.matmul.dense import Operands as State


@dataclass(frozen=True, kw_only=True)
class SlowDevice(Gemm):
    """`factor`: time of a step over what it takes by itself, measured at each step anew."""

    summary: ClassVar[str] = "Matrix multiply on a device that is slower than it was"
    injector: ClassVar[str] = "slow device"

    factor: float = 1.3

    def step(self, state: State) -> torch.Tensor:
        begin = time.perf_counter()
        output = super().step(state)
        time.sleep((self.factor - 1.0) * (time.perf_counter() - begin))
        return output


WORKLOAD = SlowDevice
