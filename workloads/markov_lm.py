"""Train a language model on a source that is made from the seed, to its known entropy.

The source is a Markov chain of order two over 32 symbols, each of its 1024 rows drawn from a
Dirichlet distribution of concentration 0.1. It needs no data set, nobody can have trained on
it before, and its entropy H (about 1.73 nat), which no model can beat, is computed exactly
from its stationary distribution. One step trains an embedding and a perceptron of one hidden
layer, which see four symbols and predict the fifth, on a fresh batch in float32 with AdamW.

The first and the last step are followed in float64: loss, logits, gradients, weights and
moments. With the clock stopped, the device itself takes the held-out loss after every `EVERY`
steps; the launch ends at the first hit, `ROUNDING` nat better than `gap`, so that no rounding
decides, and a hit must come within `num_steps`. The loss that is left, judged on the host in
float64, must lie within `gap` nat of H: a run that did not learn starts 1.7 nat above it. It must
not lie below what the source itself allows: that is a model that sees what it should predict. Both
are taken against the source's own loss on the same symbols, so that the luck of the sample cancels.

What healthy runs reach, far below the gaps that they are held to, is in
`calibration/markov_lm.toml`.
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
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.time_to_target import TimeToTarget
from workloads.parts.datasets.markov import SYMBOLS, Source
from workloads.parts.numerics.classifier import Classifier, count_training_flops, in_float64
from workloads.parts.numerics.inputs import cut
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.size import count_parameters
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Before, Trained, Training, seeded, take_snapshot
from workloads.parts.training.step import train_step

CONTEXT = 4
NUM_HELD_OUT = 16384
EVERY = 10
ROUNDING = 1e-3
TOO_GOOD = 0.1  # nat; the mean of 1000 windows strays 0.03
ERROR_BOUNDS = ErrorBounds(loss=4, logits=24, gradients=16)


@dataclass(kw_only=True)
class State:
    """`held_out` symbols on the host, and on the device that is asked for the loss on them.

    `least_loss` is the source's own on these, `over_at` the step that reached the target.
    """

    training: Training
    source: Source
    held_out: torch.Tensor
    on_device: torch.Tensor
    least_loss: float
    over_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class MarkovLm(TimeToTarget[State, Trained]):
    """`gap`: nat over the source's entropy that the loss may have after `num_steps` at most."""

    summary: ClassVar[str] = "Train a language model on a seeded source to its entropy"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "time to target"
    small: ClassVar[Parameters] = {
        "batch": 1024,
        "num_steps": 200,
        "gap": 0.5,
    }
    bound_by: ClassVar[Bound] = "latency"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "symbols of a Markov chain"

    batch: int = 2048
    embedding: int = 32
    width: int = 512
    num_steps: int = 400
    gap: float = 0.3

    def __post_init__(self) -> None:
        require_positive(self, "batch", "embedding", "width", "num_steps")
        if not 0 < self.gap < 1:
            raise ParameterError(f"gap is {self.gap}: give nats between 0 and 1")

    @property
    def steps(self) -> int:
        return self.num_steps

    @property
    def evaluate_every(self) -> int:
        return EVERY

    def has_reached(self, state: State) -> bool:
        model = state.training.model
        windows = state.on_device
        with torch.no_grad():
            loss = float(model(windows[:, :-1], windows[:, -1]).loss)
        excess = loss - state.least_loss
        is_over = abs(excess) <= self.gap - ROUNDING
        if is_over:
            state.over_at = state.training.cycle.number
        return is_over

    def work(self) -> Work:
        with torch.device("meta"):
            windows = torch.empty(self.batch, CONTEXT, dtype=torch.long)
            flops = count_training_flops(self._model(), windows)
        return Work(units=self.batch, unit="tokens", flops=flops, precision="float32")

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> Classifier:
        return Classifier(
            nn.Embedding(SYMBOLS, self.embedding),
            nn.Flatten(),
            nn.Linear(CONTEXT * self.embedding, self.width),
            nn.GELU(),
            nn.Linear(self.width, SYMBOLS),
        )

    def build(self, target: Target, seed: int) -> State:
        source = Source(seed)
        model = seeded(seed, self._model).to(target.device)
        rule = AdamW(learning_rate=0.02, steps=self.num_steps)
        windows = source.windows(self.num_steps * self.batch, CONTEXT + 1)
        held_out = source.windows(NUM_HELD_OUT, CONTEXT + 1)
        batches = cut(
            [windows],
            self.batch,
            target.device,
            lambda part: {"inputs": part[:, :-1], "labels": part[:, -1]},
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
            source=source,
            held_out=held_out,
            on_device=held_out.to(target.device),
            least_loss=source.loss(held_out).item(),
        )

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
            model = in_float64(state.training.model)
            result = model(state.held_out[:, :-1], state.held_out[:, -1])
        excess = result.loss - state.source.loss(state.held_out)
        yield Check(
            name="held-out loss over the source's entropy",
            error=excess.abs().item(),
            bound=self.gap,
            kind="trajectory",
            detects=self.gap,
            detects_what=f"nat over the entropy of {state.source.entropy:.4f}",
        )
        windows = torch.cat([before.batch["inputs"], before.batch["labels"][:, None]], dim=1)
        lead = state.source.loss(windows) - output.loss.detach().cpu().double()
        yield Check(
            name="loss on the last batch below the source's own",
            error=lead.clamp(min=0).item(),
            bound=TOO_GOOD,
            kind="trajectory",
            detects=TOO_GOOD,
            detects_what="nat below what the source allows",
        )


WORKLOAD = MarkovLm
