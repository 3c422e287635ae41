"""One workload after its first step, for tests that spoil what it made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload

SEED = 5
PROVIDER = "CPUExecutionProvider"


@dataclass
class Subject:
    """A workload after its first step on the processor."""

    workload: Workload[Any, Any]
    folder: Path
    state: Any = field(init=False)
    before: object = field(init=False)
    output: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.build()
        self.before = self.workload.snapshot(self.state)
        self.output = self.workload.step(self.state)

    def build(self, seed: int = SEED) -> Any:
        target = Target(
            device=torch.device("cpu"),
            artifacts=Artifacts(self.folder / str(seed)),
            onnx_providers=(PROVIDER,),
        )
        return self.workload.build(target, seed)

    def checks(self, output: Any = None) -> list[Check]:
        given = self.output if output is None else output
        return list(self.workload.check(self.before, self.state, given))

    def outside(self, output: Any = None) -> set[str]:
        return {check.name for check in self.checks(output) if not check.is_within}
