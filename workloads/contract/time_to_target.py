"""Workloads that train until they are good enough, with no more steps than they were given."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from workloads.contract.workload import Workload

State = TypeVar("State")
Output = TypeVar("Output")


@dataclass(frozen=True, kw_only=True)
class TimeToTarget(Workload[State, Output]):
    """A launch ends at the first hit; without one, after `steps`, and its target check fails."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """The most steps that a launch makes."""

    @property
    @abstractmethod
    def evaluate_every(self) -> int:
        """Steps between two evaluations."""

    @abstractmethod
    def has_reached(self, state: State) -> bool:
        """Whether the state is as good as the target wants; asked with the clock stopped."""
