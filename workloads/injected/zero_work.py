"""A step that does nothing, hands out nothing and lets nothing be checked, but claims its work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from workloads.gemm import Gemm
from workloads.parts.matmul.dense import Operands as State


@dataclass(frozen=True, kw_only=True)
class ZeroWork(Gemm):
    summary: ClassVar[str] = "A step without work, output or check"
    injector: ClassVar[str] = "zero work"

    def step(self, state: State) -> torch.Tensor:
        del state
        return torch.empty(0)

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before, state, output
        yield from ()


WORKLOAD = ZeroWork
