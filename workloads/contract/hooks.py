"""What a launch asks of a workload beyond its four methods, each with the answer of most.

The worker asks every workload, so the defaults stand here and nowhere else. Who has a target
derives from `TimeToTarget`, who answers requests from `Inference`, who trains one model from
`Supervised`: those bring the hooks that belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from workloads.contract.input_cycle import InputCycle

if TYPE_CHECKING:
    from appliance.records.suite import Scenario

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class LoadPhase:
    """How steps load the device, by the workload's own word for it.

    `units` are the units of work that all steps so far have made, `threads` the threads that
    compute on processors.
    """

    name: str
    units: int
    threads: int


class Hooks(Generic[State]):
    """Hooks of a launch and of its steps; a workload has those of its own that it needs."""

    # ------------------------------------------------------------------ a launch

    @property
    def steps(self) -> int | None:
        """Exact number of steps of a launch, of which the last is checked; None for blocks."""
        return None

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

    @property
    def evaluate_every(self) -> int:
        """Steps between two questions whether the target is reached; 0 where there is no target."""
        return 0

    def num_parameters(self) -> int | None:
        """Size of the model, counted on the meta device; None if there is no model."""
        return None

    # ------------------------------------------------------------------ a step

    def load(self, state: State) -> None:
        """Bring the input of the next step, where a pipeline feeds it; timed, as part of the step.

        Its share of the step's time is reported as the stall of the pipeline.
        """

    def wait(self, state: State) -> None:
        """Return when the step is done, where another library than torch drives the device."""

    def snapshot(self, state: State) -> object:  # noqa: ARG002 - for those that store something
        """Whatever `check` needs of the state before the step that it checks; never timed."""
        return None

    # ------------------------------------------------------------------ between steps, untimed

    def has_reached(self, state: State) -> bool:  # noqa: ARG002 - for those that have a target
        """Whether the state is as good as the target wants."""
        return False

    def extra_steps(self, state: State, made: int) -> int:  # noqa: ARG002 - for those that do
        """Steps that a block of `made` steps shall have beyond them; asked once, at its end.

        What was seen of a device may call for more of them. The launch makes as many as its time
        limit leaves room for.
        """
        return 0

    def phase(self, state: State) -> LoadPhase:  # noqa: ARG002 - for those that have some
        """How the next step loads the device; asked before each step where a workload says it."""
        return LoadPhase(name="", units=0, threads=1)

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

        Of inference: an answer that comes faster for an input that was just seen was cached.
        """
        return False

    def briefly(self, share: float) -> tuple[Self, str]:  # noqa: ARG002 - for those that can
        """The same workload with steps of about this share of the time, and what they are in words.

        They are made of the same state by the same code, for comparing times of repeated inputs
        where a step takes seconds. Itself and no words where a step cannot be shorter.
        """
        return self, ""
