"""What the training workloads of one model and one AdamW step share, written once.

A subclass says what its model is and where its input sets come from, and gives the bounds of its
errors; building, stepping and judging are the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from appliance.records.journal import Check
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.auditing.sampling import Plan, Sampling, beyond, never
from workloads.parts.distributed.sharding import num_batches, require_parallel
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.numerics.size import count_parameters
from workloads.parts.training.audit import Audit
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import Inputs
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import (
    Before,
    Trained,
    Training,
    begin_training,
    loss_and_logits,
    take_snapshot,
)
from workloads.parts.training.step import train_step


@dataclass(frozen=True, kw_only=True)
class Supervised(Workload[Training, Trained]):
    """Trains `model` on batches of `inputs` with AdamW.

    `batch_change` is added to `batch` and `extra_layers` to the number of layers, so that one
    variant serves every size.
    """

    batch: int = 32
    dtype: str = "bfloat16"
    learning_rate: float = 1e-4
    num_inputs: int = 4
    batch_change: int = 0
    extra_layers: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "batch", "num_inputs")
        if self.count < 1:
            message = f"batch_change is {self.batch_change}: leave one of the {self.batch} at least"
            raise ParameterError(message)
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate is {self.learning_rate}: give a value above 0")
        dtype_named(self.dtype)

    @property
    def count(self) -> int:
        """Inputs of one step."""
        return self.batch + self.batch_change

    @abstractmethod
    def model(self) -> torch.nn.Module:
        """Return the model with fresh weights; its forward pass gives `loss` and `logits`."""

    @abstractmethod
    def source(self) -> Inputs:
        """What makes the input sets, which are keyword arguments of the model."""

    @abstractmethod
    def error_bounds(self) -> ErrorBounds:
        """Roundings that a healthy step may be off."""

    @property
    def micro_batches(self) -> int:
        """Passes of one step."""
        return 1

    def result(self, made: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and logits of what the model's forward pass made."""
        return loss_and_logits(made)

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:  # noqa: ARG002 - for weights that are drawn
        """Return the model with its first weights, those of the drawer on the device.

        Torch's own generator has the launch's seed.
        """
        return self.model()

    def audit(self, seed: int) -> Audit | None:  # noqa: ARG002 - None: the whole is followed
        """Which layers float64 follows, of a model too large to be followed whole."""
        return None

    def sampling(self, seed: int) -> Plan:  # noqa: ARG002 - for models that are too large for it
        """Which rows of a step float64 follows, where the whole would take too long."""
        return never

    def together(self) -> dict[str, Any]:
        """How many ranks train, and how they share the training."""
        return {}

    def num_parameters(self) -> int:
        return count_parameters(self.model)

    def build(self, target: Target, seed: int) -> Training:
        return begin_training(
            target,
            seed=seed,
            make=self.fresh,
            rule=AdamW(learning_rate=self.learning_rate),
            inputs=self.source(),
            num_inputs=self.num_inputs,
            dtype=dtype_named(self.dtype),
            error_bounds=self.error_bounds(),
            micro_batches=self.micro_batches,
            result=self.result,
            audit=self.audit(seed),
            sampling=self.sampling(seed),
            **self.together(),
        )

    def step(self, state: Training) -> Trained:
        return train_step(state)

    def snapshot(self, state: Training) -> Before:
        return take_snapshot(state)

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return check_step(before, state, output)


@dataclass(frozen=True, kw_only=True)
class Replicated(Supervised):
    """`ranks` train together with their gradients averaged; `parallel` is none or ddp."""

    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_parallel(self.ranks, self.parallel)
        if self.parallel not in {"none", "ddp"}:
            raise ParameterError(f"parallel is {self.parallel}: give ddp, or none to train alone")

    def sampling(self, seed: int) -> Plan:
        return beyond("products", lambda: self.work().flops, self.sampled(seed))

    def sampled(self, seed: int) -> Sampling:
        """How a step is sampled that is too long."""
        return Sampling(seed=seed, batch=self.count)

    def together(self) -> dict[str, Any]:
        return {"ranks": self.ranks, "parallel": self.parallel}

    def on_all_ranks(self, work: Work) -> Work:
        """Work of one rank's batch, as many times as there are batches in a step."""
        times = num_batches(self.ranks, self.parallel)
        flops = None if work.flops is None else times * work.flops
        return replace(work, units=times * work.units, flops=flops)
