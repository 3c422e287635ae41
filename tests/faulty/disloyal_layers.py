"""Tuning over ranks whose drawn layers alone are followed, and of which rank 1 goes wrong."""

from dataclasses import dataclass

from faulty.disloyal import CULPRIT, HOOKS, _forget_the_mean

from workloads.contract.target import Target
from workloads.llm_lora import LlmLora
from workloads.parts.training.state import Training


@dataclass(frozen=True, kw_only=True)
class DisloyalLayers(LlmLora):
    """Faults of rank 1: triples and skips; "sums" is of all ranks."""

    fault: str = "none"

    def build(self, target: Target, seed: int) -> Training:
        state = super().build(target, seed)
        assert state.peers is not None
        if self.fault == "sums":
            state.peers.runner.register_comm_hook(None, _forget_the_mean)
        elif self.fault in HOOKS and state.peers.ranks.rank == CULPRIT:
            state.peers.runner.register_comm_hook(None, HOOKS[self.fault])
        return state


WORKLOAD = DisloyalLayers
