"""A workload whose output has a flipped bit in some of its deterministic builds."""

# ruff: noqa: ARG002 - the contract names the arguments

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.target import Target
from workloads.contract.workload import Workload

SIZE = 256


@dataclass(frozen=True, kw_only=True)
class Flipping(Workload[int, dict[str, torch.Tensor]]):
    """`first` is the number, from 1, of the build that is wrong, counted over all processes.

    They count in the file `counter`. `always`: all that follow are wrong too, each in another
    element. `has_form` False: an operator without a deterministic form is called.
    """

    summary: ClassVar[str] = "Flips a bit when the libraries are deterministic"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    is_timed: ClassVar[bool] = False

    counter: str = ""
    first: int = 0
    always: bool = False
    has_form: bool = True

    def work(self) -> Work:
        return Work()

    def build(self, target: Target, seed: int) -> int:
        """Number of this build, 0 in the default mode."""
        if not torch.are_deterministic_algorithms_enabled():
            return 0
        path = Path(self.counter)
        with path.open("a") as file:
            file.write(".")
        return path.stat().st_size

    def step(self, state: int) -> dict[str, torch.Tensor]:
        output = {"same": torch.ones(3), "value": torch.ones(SIZE)}
        if not self.has_form:
            output["value"].put_(torch.tensor([0]), torch.tensor([1.0]))
        is_wrong = state >= self.first if self.always else state == self.first
        if self.first and state and is_wrong:
            output["value"].view(torch.int32)[state % SIZE] ^= 1 << 30
        return output

    def check(self, before: object, state: int, output: dict[str, torch.Tensor]) -> Iterator[Check]:
        yield Check(name="is there", error=0.0, bound=0.0)


WORKLOAD = Flipping
