"""Follow a recorded training: the first fifty losses must lie in the band of healthy ones.

A step trains a perceptron of one hidden layer on a batch of scanned digits, with Adam. The weights
that it begins with and the order of the images are those of a recorded trajectory, the same bits on
every machine and in every run. Which of the recorded ones it is, and how pixels, units and the
images of a batch are relabelled (`parts/curves/trajectories.py`: the losses stay the same, the bits
of all else do not), is drawn by the seed of the run. So the curve does not depend on the seed, and
what it is made of does.

Three things are judged. Of the first and the last step loss, activations and gradients of each
layer, by the error of the same dtype on the host's processor: at most three times that, so that
no vendor's rounding is the yardstick. Both steps in float64, with their weights and moments
(`parts/training`). And the whole curve so far by the band of its dtype, which is three times
the largest deviation in a reference set of right runs (`parts/curves/bands.py`).

The curve sees what builds up, or happened once, between the two steps, and what no single step
shows: in float32 a layer scaled by 1 + 1e-5, and one gradient of one weight hit once, of which
the final accuracy shows nothing. In bfloat16 the reference runs themselves part by a thousand
times more, so it sees there only what is as much larger; therefore both dtypes are worth running.
A unit that is stuck is seen in both, by the first check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.curves import bands, trajectories
from workloads.parts.curves.trajectories import BATCH, PIXELS, Pass, Perceptron, Relabelling
from workloads.parts.numerics.classifier import count_training_flops
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import on_host
from workloads.parts.numerics.size import count_parameters
from workloads.parts.training.checks import check_step
from workloads.parts.training.state import Before, Trained, Training, take_snapshot
from workloads.parts.training.step import train_step

MODEL = "digits_mlp"
RATIO = 3.0  # of the device's error over the processor's
ORDER_OF_SUMS = 4 * 2.0**-24
"""Relative error that the order of float32 sums may add; without it, a processor that happens to
be exact would be the bound."""


@dataclass(kw_only=True)
class State:
    training: Training
    model: Perceptron
    losses: torch.Tensor
    curve: bands.RecordedCurve


@dataclass(kw_only=True)
class Followed:
    """`losses` of all steps so far, `activations` of the last one by layer."""

    trained: Trained
    losses: torch.Tensor
    activations: Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Trajectory(Workload[State, Followed]):
    """`width`, `dtype`: of a band in workloads/bands."""

    summary: ClassVar[str] = "Follow the recorded first fifty losses of a training"
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "time to target"
    small: ClassVar[Parameters] = {"width": 256}
    is_timed: ClassVar[bool] = False
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "scanned digits in a recorded order"

    width: int = 1024
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_positive(self, "width")
        require_choice("dtype", self.dtype, tuple(bands.FLOORS))
        bands.load_band(MODEL, self.width, self.dtype)

    @property
    def steps(self) -> int:
        return bands.load_band(MODEL, self.width, self.dtype).num_steps

    def work(self) -> Work:
        with torch.device("meta"):
            flops = count_training_flops(self._model(), torch.empty(BATCH, PIXELS))
        return Work(units=BATCH, unit="images", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> Perceptron:
        return Perceptron(self.width)

    def build(self, target: Target, seed: int) -> State:
        band = bands.load_band(MODEL, self.width, self.dtype)
        curve = band.curves[seed % len(band.curves)]
        trajectory = trajectories.Trajectory(width=self.width, number=curve.number)
        bands.refuse_other_inputs(curve, trajectory.digest(band.num_steps))
        state = trajectory.begin(
            num_steps=band.num_steps,
            dtype=self.dtype,
            device=target.device,
            relabelling=Relabelling.drawn(seed, self.width),
            artifacts=target.artifacts,
        )
        assert isinstance(state.model, Perceptron)  # noqa: S101 - narrows for the type checker
        return State(
            training=state,
            model=state.model,
            losses=torch.full((band.num_steps,), torch.nan, device=target.device),
            curve=curve,
        )

    def step(self, state: State) -> Followed:
        trained = train_step(state.training)
        number = state.training.cycle.number
        state.losses[number] = trained.loss
        return Followed(
            trained=trained,
            losses=state.losses[: number + 1].clone(),
            activations=dict(state.model.activations),
        )

    def snapshot(self, state: State) -> Before:
        return take_snapshot(state.training)

    def check(self, before: object, state: State, output: Followed) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        yield from self._check_curve(before, state, output)
        yield from check_step(before, state.training, output.trained)
        exact = trajectories.pass_on_host(before, self.width, torch.float64)
        processor = trajectories.pass_on_host(before, self.width, state.training.dtype)
        device = Pass(
            loss=output.trained.loss,
            activations=output.activations,
            gradients=output.trained.gradients,
        )
        yield from _check_layers(device, processor, exact)

    def _check_curve(self, before: Before, state: State, output: Followed) -> Iterator[Check]:
        missing = abs(len(output.losses) - before.number - 1)
        yield Check(name="losses not recorded", error=missing, bound=0.0, kind="exact")
        compared = bands.compare(on_host(output.losses).numpy(), state.curve)
        what = f"trajectory {state.curve.number}: {compared.sentence}"
        yield from bands.checks(compared, what)


def _check_layers(device: Pass, processor: Pass, exact: Pass) -> Iterator[Check]:
    """Hold the device's errors against float64 to those of the same dtype on the host."""
    for name, measured, own, true in (
        ("activations", device.activations, processor.activations, exact.activations),
        ("gradients", device.gradients, processor.gradients, exact.gradients),
    ):
        allowed = {key: _error(own[key], true[key]) + ORDER_OF_SUMS for key in true}
        ratios = [_error(measured[key], true[key]) / allowed[key] for key in true]
        yield Check(
            name=f"{name} of each layer, error over the processor's own",
            error=torch.stack(ratios).max().item(),
            bound=RATIO,
            detects=RATIO * max(allowed.values()).item(),
            detects_what=f"relative error of one layer's {name}",
        )
    scale = (on_host(processor.activations["logits"]) - exact.activations["logits"]).norm()
    allowed_loss = scale / exact.activations["logits"].shape[0] ** 0.5 + ORDER_OF_SUMS * exact.loss
    yield Check(
        name="loss, error over that of the processor's logits",
        error=((on_host(device.loss) - exact.loss).abs() / allowed_loss).item(),
        bound=RATIO,
        detects=RATIO * allowed_loss.item(),
        detects_what="error of the loss in nats",
    )


def _error(value: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Norm of the error over the norm of what is right."""
    error: torch.Tensor = (on_host(value) - exact).norm() / exact.norm()
    return error


WORKLOAD = Trajectory
