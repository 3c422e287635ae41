"""A workload whose output differs from build to build, within its spread or beyond."""

# ruff: noqa: ARG002 - the contract names the arguments

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.target import Target
from workloads.contract.workload import Workload

COUNT = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Drifting(Workload[torch.Tensor, dict[str, torch.Tensor]]):
    summary: ClassVar[str] = "Differs from build to build"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    needs: ClassVar[frozenset[str]] = frozenset({"float64"})
    is_timed: ClassVar[bool] = False
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 0.05

    by: float = 0.0

    def work(self) -> Work:
        return Work()

    def build(self, target: Target, seed: int) -> torch.Tensor:
        return torch.ones(4) + self.by * next(COUNT)

    def step(self, state: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"value": state.to(torch.bfloat16), "other": state * 0}

    def check(
        self, before: object, state: torch.Tensor, output: dict[str, torch.Tensor]
    ) -> Iterator[Check]:
        yield Check(name="is there", error=0.0, bound=0.0)


WORKLOAD = Drifting
