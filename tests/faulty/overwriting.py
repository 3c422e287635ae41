"""A real row whose first output is made wrong in some launches, before steps write over it.

For tests of outputs that are copied and checked after the last block.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from appliance.worker import outputs
from appliance.worker.workload_loader import load_workload
from workloads.contract.target import Target
from workloads.contract.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Overwriting(Workload[Any, Any]):
    """`row` at small size, or with `array_bytes`; launches from number `healthy` on are not.

    `fault`: "element" moves one number of the first output where it lies, "killed" ends the process
    in its second step. Builds are counted in the file `log`.
    """

    summary: ClassVar[str] = "A row whose first output is wrong in some launches"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True

    log: str = ""
    row: str = "memory_bandwidth"
    num_bytes: int = 0
    healthy: int = 1
    fault: str = "none"

    @cached_property
    def _own(self) -> Workload[Any, Any]:
        kind = load_workload(self.row)
        given = {name: self.num_bytes for name in kind.small if name.endswith("_bytes")}
        own: Workload[Any, Any] = kind(**{**kind.small, **(given if self.num_bytes else {})})
        return own

    @property
    def steps(self) -> int | None:
        return self._own.steps

    @property
    def evaluate_every(self) -> int:
        return self._own.evaluate_every

    def has_reached(self, state: Any) -> bool:
        return self._own.has_reached(state)

    def work(self) -> Work:
        return Work(units=1.0, unit="steps")

    def build(self, target: Target, seed: int) -> Any:
        path = Path(self.log)
        number = len(path.read_text()) if path.exists() else 0
        path.write_text("x" * (number + 1))
        state = self._own.build(target, seed)
        state.planted = self.fault if number >= self.healthy else "none"
        state.made = 0
        return state

    def step(self, state: Any) -> Any:
        output = self._own.step(state)
        state.made += 1
        if state.planted == "element" and state.made == 1:
            _move(max(outputs.arrays(output), key=lambda leaf: leaf.numel()))
        if state.planted == "killed" and state.made > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return output

    def snapshot(self, state: Any) -> object:
        return self._own.snapshot(state)

    def check(self, before: object, state: Any, output: Any) -> Iterator[Check]:
        return self._own.check(before, state, output)


def _move(leaf: torch.Tensor) -> None:
    """Add to the largest number, in its own memory."""
    flat = leaf.detach().view(-1)
    flat[int(flat.abs().argmax())] += 1


WORKLOAD = Overwriting
