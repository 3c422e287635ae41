"""What is the same in every workload that answers requests: its next step can ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from workloads.contract.input_cycle import InputCycle
from workloads.contract.workload import Workload


class InCycle(Protocol):
    """A state whose steps cycle through input sets."""

    cycle: InputCycle


Answering = TypeVar("Answering", bound=InCycle)
Output = TypeVar("Output")


@dataclass(frozen=True, kw_only=True)
class Inference(Workload[Answering, Output]):
    """Training has no such hook: the same input gives another step there, as weights have moved."""

    def repeat_input(self, state: Answering) -> bool:
        return state.cycle.repeat_input()
