"""Ranks with more tensors than one environment variable can hold the digests of."""

# ruff: noqa: ARG002 - the contract names the arguments

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.target import Target
from workloads.contract.workload import Workload

TENSORS = 1000  # 64 digits each, for two ranks: the kernel takes 128 KiB in one string


@dataclass(frozen=True, kw_only=True)
class ManyTensors(Workload[None, dict[str, torch.Tensor]]):
    """Each step's output is as many tensors of one number."""

    summary: ClassVar[str] = "Has many tensors"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    is_timed: ClassVar[bool] = False

    ranks: int = 2

    def work(self) -> Work:
        return Work()

    def build(self, target: Target, seed: int) -> None: ...

    def step(self, state: None) -> dict[str, torch.Tensor]:
        return {f"layer.{number}": torch.ones(1) for number in range(TENSORS)}

    def check(
        self, before: object, state: None, output: dict[str, torch.Tensor]
    ) -> Iterator[Check]:
        yield Check(name="is there", error=0.0, bound=0.0)


WORKLOAD = ManyTensors
