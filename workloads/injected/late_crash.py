"""The process is ended by a signal as a late output is checked, once nothing is timed any more.

The process of the next launch may wait by then, whose result this is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from workloads.injected.product import CorruptedGemm, History
from workloads.parts.matmul.dense import Operands


@dataclass(frozen=True, kw_only=True)
class LateCrash(CorruptedGemm):
    """`after`: outputs of a launch that are checked before the fault."""

    summary: ClassVar[str] = "Matrix multiply that ends its process in a check"
    injector: ClassVar[str] = "late_crash"

    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        del state
        return output

    def check(self, before: object, state: Operands, output: torch.Tensor) -> Iterator[Check]:
        if state.cycle.number >= self.after:
            os.abort()
        yield from super().check(before, state, output)


WORKLOAD = LateCrash
