"""Train a small network on handwritten digits to a stated accuracy, in a stated number of steps.

The data are scikit-learn's 1797 scanned digits of 8 x 8 pixels; every fifth is held out. One
step trains a perceptron of one hidden layer on one batch in float32 with AdamW; order and
first weights come from the seed. The first and the last step are followed in float64: loss,
logits, gradients, weights and moments, so a wrong kernel shows in one step, long before it
would cost accuracy. With the clock stopped, the device itself reads the held-out digits after every
`EVERY` steps; the launch ends at the first hit, one digit better than `target`, so that no
rounding decides, and a hit must come within `num_steps`. The network that is left must read at
least `target` of them rightly, judged on the host in float64: what trains on wrong data, or stops
training on the way, ends below.

The bound of 3 % lies five standard deviations away from what healthy runs misread
(`calibration/digits_mlp.toml`). The activation is smooth, because a ReLU that float32 and float64
see on two sides of its branch point moves a gradient by far more than a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.time_to_target import TimeToTarget
from workloads.parts.datasets.digits import digits
from workloads.parts.numerics.classifier import Classifier, count_training_flops, in_float64
from workloads.parts.numerics.inputs import cut
from workloads.parts.numerics.parameters import require_positive, require_share
from workloads.parts.numerics.size import count_parameters
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Before, Trained, Training, seeded, take_snapshot
from workloads.parts.training.step import train_step

PIXELS, CLASSES, BRIGHTEST = 64, 10, 16
HELD_OUT = 5  # every so many-th image
EVERY = 5
ERROR_BOUNDS = ErrorBounds(loss=4, logits=16, gradients=64)


@dataclass(kw_only=True)
class State:
    training: Training
    images: torch.Tensor
    labels: torch.Tensor
    over_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class DigitsMlp(TimeToTarget[State, Trained]):
    """`target`: least share of the held-out images read rightly within `num_steps`."""

    summary: ClassVar[str] = "Train a perceptron on handwritten digits to a stated accuracy"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "time to target"
    small: ClassVar[Parameters] = {"width": 512}
    bound_by: ClassVar[Bound] = "latency"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "scanned digits"

    batch: int = 256
    width: int = 1024
    num_steps: int = 200
    target: float = 0.97

    def __post_init__(self) -> None:
        require_positive(self, "batch", "width", "num_steps")
        require_share("target", self.target)

    @property
    def steps(self) -> int:
        return self.num_steps

    @property
    def evaluate_every(self) -> int:
        return EVERY

    def has_reached(self, state: State) -> bool:
        model = state.training.model
        device = next(model.parameters()).device
        with torch.no_grad():
            result = model(state.images.to(device), state.labels.to(device))
        wrong = int((result.logits.argmax(1) != state.labels.to(device)).sum())
        is_over = wrong + 1 <= (1 - self.target) * len(state.labels)
        if is_over:
            state.over_at = state.training.cycle.number
        return is_over

    def work(self) -> Work:
        with torch.device("meta"):
            flops = count_training_flops(self._model(), torch.empty(self.batch, PIXELS))
        return Work(units=self.batch, unit="images", flops=flops, precision="float32")

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> Classifier:
        return Classifier(nn.Linear(PIXELS, self.width), nn.GELU(), nn.Linear(self.width, CLASSES))

    def build(self, target: Target, seed: int) -> State:
        pixels, shown = digits()
        images = torch.from_numpy(pixels).float() / BRIGHTEST
        labels = torch.from_numpy(shown)
        is_held_out = torch.arange(len(labels)) % HELD_OUT == 0
        model = seeded(seed, self._model).to(target.device)
        rule = AdamW(learning_rate=0.01, steps=self.num_steps)
        order = self._order(int((~is_held_out).sum()), seed)
        batches = cut(
            [one[~is_held_out][order] for one in (images, labels)],
            self.batch,
            target.device,
            lambda one, other: {"inputs": one, "labels": other},
        )
        return State(
            training=Training(
                model=model,
                rule=rule,
                optimizer=rule.make(model),
                batches=batches.sets,
                checksums=batches.checksums,
                cycle=InputCycle(of=self.num_steps),
                dtype=torch.float32,
                error_bounds=ERROR_BOUNDS,
                artifacts=target.artifacts,
            ),
            images=images[is_held_out],
            labels=labels[is_held_out],
        )

    def _order(self, count: int, seed: int) -> torch.Tensor:
        """Indices of the images of all batches: one random order of all images after another."""
        rng = torch.Generator().manual_seed(seed)
        passes = self.num_steps * self.batch // count + 1
        indices = torch.cat([torch.randperm(count, generator=rng) for _ in range(passes)])
        return indices[: self.num_steps * self.batch]

    def step(self, state: State) -> Trained:
        return train_step(state.training)

    def snapshot(self, state: State) -> Before:
        return take_snapshot(state.training)

    def check(self, before: object, state: State, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - narrows for the type checker
        yield from check_step(before, state.training, output)
        if before.number + 1 < self.num_steps and before.number != state.over_at:
            return
        with torch.no_grad():
            result = in_float64(state.training.model)(state.images.double(), state.labels)
        share = (result.logits.argmax(1) != state.labels).double().mean().item()
        yield Check(
            name="held-out images misread",
            error=share,
            bound=1 - self.target,
            kind="trajectory",
            detects=1 - self.target,
            detects_what=f"share of {len(state.labels)} images",
        )


WORKLOAD = DigitsMlp
