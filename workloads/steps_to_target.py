"""Count the steps that training takes to a stated accuracy, against a recorded distribution.

A step trains the perceptron of `trajectory` on one batch of scanned digits and counts the held-out
images that it reads rightly. A launch makes several trainings one after another, each from first
weights and an order of its own that the run's seed draws, all with the same number of steps. How
many of them each needed until it read `target` of the held-out images is compared with the steps
of recorded trainings: each of them, and their mean, must lie in the two-sided interval that a
healthy device leaves in one of 10,000 launches.

Too slow is what trains on wrong gradients, at a wrong rate or on wrong data. Too fast is no
virtue: it is what was shown the held-out images, began trained, or trained on more than it says.
Both sides are held. The first and the last step are followed in float64 too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.curves import bands, trajectories
from workloads.parts.curves.trajectories import BATCH, PIXELS, Perceptron, Relabelling, raw
from workloads.parts.numerics.classifier import count_training_flops
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_parameters
from workloads.parts.training.checks import check_step
from workloads.parts.training.state import Before, Trained, Training, take_snapshot
from workloads.parts.training.step import train_step

MODEL = "digits_mlp"
RECORDED = 2**32  # numbers below it are those of recorded trajectories
RUNS = 5  # stream of the draw of trainings


@dataclass(kw_only=True)
class State:
    """`right[run, step]`: held-out images read rightly after that step, on the device."""

    trainings: list[Training]
    images: torch.Tensor
    labels: torch.Tensor
    right: torch.Tensor
    cycle: InputCycle
    band: bands.StepsBand


@dataclass(frozen=True, kw_only=True)
class BeforeRun:
    """What the step starts from, and how many steps all trainings made before it."""

    number: int
    training: Before


@dataclass(frozen=True, kw_only=True)
class StepsToTarget(Workload[State, Trained]):
    """`width`, `dtype`: of a band in workloads/bands. `num_runs`: trainings in a launch."""

    summary: ClassVar[str] = "Steps of training to a stated accuracy, against a distribution"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "time to target"
    small: ClassVar[Parameters] = {
        "width": 256,
        "num_runs": 3,
    }
    is_timed: ClassVar[bool] = False
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "scanned digits"

    width: int = 1024
    num_runs: int = 5
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_positive(self, "width", "num_runs")
        require_choice("dtype", self.dtype, tuple(bands.FLOORS))
        bands.load_steps_band(MODEL, self.width, self.dtype)

    @property
    def steps(self) -> int:
        return self.num_runs * bands.load_steps_band(MODEL, self.width, self.dtype).limit

    def work(self) -> Work:
        with torch.device("meta"):
            flops = count_training_flops(self._model(), torch.empty(BATCH, PIXELS))
        return Work(units=BATCH, unit="images", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> Perceptron:
        return Perceptron(self.width)

    def build(self, target: Target, seed: int) -> State:
        band = bands.load_steps_band(MODEL, self.width, self.dtype)
        draws = raw(seed % 2**64, RUNS, self.num_runs)
        images, labels = trajectories.held_out_images()
        return State(
            trainings=[
                trajectories.Trajectory(width=self.width, number=max(RECORDED, int(draw))).begin(
                    num_steps=band.limit,
                    dtype=self.dtype,
                    device=target.device,
                    relabelling=Relabelling.none(self.width),
                    artifacts=target.artifacts,
                )
                for draw in draws
            ],
            images=images.to(target.device),
            labels=labels.to(target.device),
            right=torch.zeros(self.num_runs, band.limit, dtype=torch.long, device=target.device),
            cycle=InputCycle(of=self.num_runs * band.limit),
            band=band,
        )

    def step(self, state: State) -> Trained:
        run, number = divmod(state.cycle.advance(), state.band.limit)
        trained = train_step(state.trainings[run])
        model = state.trainings[run].model
        state.right[run, number] = trajectories.num_right(model, state.images, state.labels)
        return trained

    def snapshot(self, state: State) -> BeforeRun:
        number = state.cycle.number + 1
        run = number % state.cycle.of // state.band.limit
        return BeforeRun(number=number, training=take_snapshot(state.trainings[run]))

    def check(self, before: object, state: State, output: Trained) -> Iterator[Check]:
        assert isinstance(before, BeforeRun)  # noqa: S101 - what snapshot returned
        run = before.number // state.band.limit
        yield from check_step(before.training, state.trainings[run], output)
        if before.number + 1 == state.cycle.of:
            yield from self._check_steps(state)

    def _check_steps(self, state: State) -> Iterator[Check]:
        wanted = trajectories.num_wanted(state.band.target, len(state.labels))
        steps = [trajectories.steps_to(right.tolist(), wanted) for right in state.right]
        logs = np.log(steps)
        allowed = bands.interval(state.band, self.num_runs)
        what = (
            f"share of the steps to {state.band.target:.0%}, in either way; took "
            f"{', '.join(f'{count:.0f}' for count in steps)}, and "
            f"{math.exp(allowed.mean):.1f} in the mean of {len(state.band.steps)} recorded"
        )
        for name, error, half in (
            ("each run", np.abs(logs - allowed.mean).max(), allowed.half_of_one),
            ("mean of the runs", abs(logs.mean() - allowed.mean), allowed.half_of_mean),
        ):
            yield Check(
                name=f"ln(steps to the target) against recorded runs, {name}",
                error=float(error),
                bound=half,
                kind="trajectory",
                detects=math.expm1(half),
                detects_what=what,
            )


WORKLOAD = StepsToTarget
