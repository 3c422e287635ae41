"""Models that train alone, or on several ranks that have all weights and a batch each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.distributed.sharding import num_batches, require_parallel
from workloads.parts.training.supervised import Supervised


@dataclass(frozen=True, kw_only=True)
class Replicated(Supervised):
    """`ranks` train together with their gradients averaged; `parallel` is none or ddp."""

    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_parallel(self.ranks, self.parallel)
        if self.parallel not in {"none", "ddp"}:
            raise ParameterError(f"parallel is {self.parallel}: give ddp, or none to train alone")

    def together(self) -> dict[str, Any]:
        return {"ranks": self.ranks, "parallel": self.parallel}

    def on_all_ranks(self, work: Work) -> Work:
        """Work of one rank's batch, as many times as there are batches in a step."""
        times = num_batches(self.ranks, self.parallel)
        flops = None if work.flops is None else times * work.flops
        return replace(work, units=times * work.units, flops=flops)
