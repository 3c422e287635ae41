"""What is the same in every workload that answers requests: its next step can ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from workloads.contract.input_cycle import Turn
from workloads.contract.workload import Workload


class InTurn(Protocol):
    """A state whose steps take input sets in turn."""

    turn: Turn


Answering = TypeVar("Answering", bound=InTurn)
Output = TypeVar("Output")


@dataclass(frozen=True, kw_only=True)
class Inference(Workload[Answering, Output]):
    """Training has no such hook: the same input gives another step there, as weights have moved."""

    def hold(self, state: Answering) -> bool:
        return state.turn.hold()
