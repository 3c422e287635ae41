"""The contract: one frozen dataclass a workload, and its four methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from workloads.contract.facts import Facts
from workloads.contract.hooks import Hooks
from workloads.contract.target import Target

if TYPE_CHECKING:
    from appliance.records.journal import Check
    from appliance.records.workload import Work

State = TypeVar("State")
Output = TypeVar("Output")


@dataclass(frozen=True, kw_only=True)
class Workload(Facts, Hooks[State], ABC, Generic[State, Output]):
    """One thing to measure. Fields of a subclass are its parameters, set by a suite.

    Raise ParameterError from __post_init__ for values that cannot run.
    """

    @abstractmethod
    def work(self) -> Work:
        """Units, floating-point operations and bytes of one step."""

    @abstractmethod
    def build(self, target: Target, seed: int) -> State:
        """Everything that steps need, from a seeded generator on the host.

        Has several input sets, so that consecutive steps take different ones.
        """

    @abstractmethod
    def step(self, state: State) -> Output:
        """The timed thing: no clock, no synchronise, no print.

        The output is a tensor or array, or a dataclass, tuple, list or dict of them: all that
        `check` judges of the step.
        """

    @abstractmethod
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        """Compare the output with an independent reference; yields at least one check.

        `before` is what `snapshot` returned before the step that made `output`; `state` is as that
        step left it. Neither may be changed. Of inference (`scenario`), outputs drawn among those
        that were timed are checked after the block: there `state` may be as later steps left it.
        """
