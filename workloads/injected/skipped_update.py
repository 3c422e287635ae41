"""A training step leaves its optimiser out: the gradients are right, the weights stand still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from workloads.digits_mlp import DigitsMlp, State
from workloads.parts.training.state import Trained


@dataclass(frozen=True, kw_only=True)
class SkippedUpdate(DigitsMlp):
    """`skipped`: number of the step that is left out, from 0; -1 is the last."""

    summary: ClassVar[str] = "Training with one step of the optimiser left out"
    injector: ClassVar[str] = "skipped optimiser step"

    skipped: int = -1

    @property
    def evaluate_every(self) -> int:
        return 0  # it trains to its last step, whatever it reaches before

    def step(self, state: State) -> Trained:
        number = state.training.cycle.number + 1
        if number != self.skipped % self.num_steps:
            return super().step(state)
        optimizer = state.training.optimizer
        state.training.optimizer = _Idle(optimizer)
        try:
            return super().step(state)
        finally:
            state.training.optimizer = optimizer


class _Idle(torch.optim.Optimizer):
    """The same parameters and moments, and a step that does nothing."""

    def __init__(self, active: torch.optim.Optimizer) -> None:
        super().__init__(active.param_groups, {})
        self.state = active.state

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        del closure


WORKLOAD = SkippedUpdate
