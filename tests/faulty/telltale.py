"""A workload that says what its machine is called, wherever it can; for tests of redaction.

The names are those of the recorded machine `xeon_two_sockets`, in the forms in which libraries
write them. They must not be parameters, which a plan repeats.
"""

# ruff: noqa: ARG002 - the contract names the arguments

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.target import Target
from workloads.contract.workload import Workload

SAID = (
    "node-017: connect to NODE-017.example.org:29500 (10.20.30.40) failed",
    "mlx5_0 a0:88:c2:00:00:01 A088C2000001 a0-88-c2-00-00-01 a088.c200.0001",
    "guid a088:c203:0000:0001, interface enxa088c2000001, fd00::17%ens1np0",
)


@dataclass(frozen=True, kw_only=True)
class Telltale(Workload[torch.Tensor, torch.Tensor]):
    """Prints every name of the machine, then fails with a sentence that holds them."""

    summary: ClassVar[str] = "Says what its machine is called"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {"size": 8}

    size: int = 8

    def work(self) -> Work:
        return Work(units=self.size, unit="rows", flops=2.0 * self.size**3)

    def build(self, target: Target, seed: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(seed)
        return torch.randn(self.size, self.size, generator=rng).to(target.device)

    def step(self, state: torch.Tensor) -> torch.Tensor:
        for line in SAID:
            print(line)  # noqa: T201 - that is what it is for
            print(line, file=sys.stderr)  # noqa: T201 - the same
        raise RuntimeError("; ".join(SAID))

    def check(self, before: object, state: torch.Tensor, output: torch.Tensor) -> Iterator[Check]:
        yield Check(name="nothing", error=0.0, bound=0.0)


WORKLOAD = Telltale
