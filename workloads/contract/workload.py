"""The contract: one frozen dataclass a workload, four methods, and its facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from appliance.records.json import Parameters
from appliance.records.workload import (
    Bound,  # not for types alone: listing the parameters evaluates it
)

if TYPE_CHECKING:
    from appliance.records.journal import Check
    from appliance.records.suite import Scenario
    from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target

State = TypeVar("State")
Output = TypeVar("Output")


@dataclass(frozen=True, kw_only=True)
class Workload(ABC, Generic[State, Output]):
    """One thing to measure. Fields of a subclass are its parameters, set by a suite.

    `needs`: features of the target without which a case is unsupported. `data`: names of data
    sets. `steps`: when set, a launch makes exactly so many steps and checks the last one (time
    to target, trajectories). `small`: parameters for two CPU cores. `alone`: no other device
    works meanwhile. `is_timed`: False for a pure correctness case. `is_repeatable`: the same
    build and first step give the same bits twice in one process; where an operator is not
    proven so, set it False and `spread`, the measured largest relative difference. `bound_by`:
    what limits its speed on a healthy device. `data_pattern`: what its inputs are, as speed may
    depend on them. `injector`: the fault that it injects on purpose; a run with one is never
    accepted. `domain`: the field that the work comes from, for the list of workloads. `variants`:
    changes of parameters by name, at small and at full size alike, of which the run's seed draws
    one; what is right must hold for each. `builds_with`: modules that building imports and
    importing this one does not, as they take long; before it builds, the worker imports them off
    its clock, and a fork server once for all launches.

    Raise ParameterError from __post_init__ for values that cannot run.
    """

    summary: ClassVar[str]
    version: ClassVar[int]
    small: ClassVar[Parameters]
    needs: ClassVar[frozenset[str]] = frozenset()
    data: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False
    is_timed: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = True
    spread: ClassVar[float] = 0.0
    bound_by: ClassVar[Bound] = "compute"
    data_pattern: ClassVar[str] = "random"
    injector: ClassVar[str] = ""
    domain: ClassVar[str] = ""
    builds_with: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[Mapping[str, Parameters]] = {}

    @property
    def steps(self) -> int | None:
        """Exact number of steps of a launch, or None for blocks of the suite's protocol."""
        return None

    @property
    def evaluate_every(self) -> int:
        """Steps between two questions whether the target is reached; 0 where there is no target.

        With a target, `steps` is the most that a launch makes: it ends at the first hit.
        """
        return 0

    def has_reached(self, state: State) -> bool:  # noqa: ARG002 - for those that have a target
        """Whether the state is as good as the target wants; asked with the clock stopped."""
        return False

    def extra_steps(self, state: State, made: int) -> int:  # noqa: ARG002 - for those that do
        """Steps that a block of `made` steps shall have beyond them; asked once, at its end.

        What was seen of a device may call for a longer look at it. The launch makes as many of
        them as its time limit leaves room for.
        """
        return 0

    def returns_to_first(self, state: State, steps: int) -> bool:
        """Whether the last of so many further steps takes the input of the launch's first one.

        Its right answer was given before, so who hands that one out again would be right, and a
        launch makes one more step rather than end so. A state that has input sets has a `cycle`.
        """
        cycle = getattr(state, "cycle", None)
        return (
            isinstance(cycle, InputCycle)
            and cycle.of > 1
            and (cycle.number + steps) % cycle.of == 0
        )

    def repeat_input(self, state: State) -> bool:  # noqa: ARG002 - for those that can
        """Let the next step take the input of the last one again; False where it cannot.

        Of inference: an answer that comes faster for an input that was just seen was kept.
        """
        return False

    @property
    def ranks(self) -> int:
        """Processes of a launch, which torch.distributed joins; 1 for all that need no others."""
        return 1

    @property
    def scenario(self) -> Scenario:
        """How inference is asked for: one query at a time, or all at once; empty for training.

        Of "single_stream" a step is one query, and its latencies are reported by percentile.
        """
        return ""

    @abstractmethod
    def work(self) -> Work:
        """Units, floating-point operations and bytes of one step."""

    def num_parameters(self) -> int | None:
        """Size of the model, counted on the meta device; None if there is no model."""
        return None

    @abstractmethod
    def build(self, target: Target, seed: int) -> State:
        """Everything that steps need, from a seeded generator on the host.

        Keeps several input sets, so that consecutive steps take different ones.
        """

    def load(self, state: State) -> None:
        """Bring the input of the next step, where a pipeline feeds it; timed, as part of the step.

        Its share of the step's time is reported as the stall of the pipeline.
        """

    def wait(self, state: State) -> None:
        """Return when the step is done, where another library than torch drives the device."""

    @abstractmethod
    def step(self, state: State) -> Output:
        """The timed thing: no clock, no synchronise, no print.

        The output is a tensor or array, or a dataclass, tuple, list or dict of them: all that
        `check` judges of the step.
        """

    def snapshot(self, state: State) -> object:  # noqa: ARG002 - for those that keep something
        """Whatever `check` needs of the state before the step that it checks; never timed."""
        return None

    @abstractmethod
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        """Compare the output with an independent reference; yields at least one check.

        `before` is what `snapshot` kept before the step that made `output`; `state` is as that
        step left it. Neither may be changed. Of inference (`scenario`), outputs drawn among those
        that were timed are checked after the block: there `state` may be as later steps left it.
        """
