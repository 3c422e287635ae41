"""What the image classifiers in training share, written once: parameters, inputs, step and check.

A row's file gives the network, the roundings that a healthy step of it may be off, and its
defaults. One step is forward, loss, backward and update on a batch of images that have a pattern by
class (`parts/datasets/images.py`) and were drawn on the device.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.auditing.sampling import Plan, Sampling, beyond
from workloads.parts.datasets.images import drawn_images, drawn_patterns, wanted_images
from workloads.parts.distributed.sharding import require_parallel
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.matmul.tf32 import refuse_processor
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.numerics.size import count_parameters, count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import DrawnInputs, Tensors, of_rank
from workloads.parts.training.optimizers import Momentum, Optimizer
from workloads.parts.training.state import Before, Trained, Training, begin_training, take_snapshot
from workloads.parts.training.step import train_step

CLASSES = 1000
RELU, GELU, SILU = "relu", "gelu", "silu"
ACTIVATIONS = (RELU, GELU, SILU)


@dataclass(frozen=True, kw_only=True)
class ImageTraining(Workload[Training, Trained]):
    """Trains `network()` on images of `side` pixels.

    `batch_change` is added to `batch` and `extra_layers` to the third of the four stages, so that
    one variant serves every size. `channels_last`: the layout of images and weights. `tf32`: what
    is multiplied in float32 is cut to TF32 first, for which the worker sets the device. `ranks`,
    `parallel`: how many processes train together, and how (`parts/distributed`); each has a batch
    of its own.
    """

    data_pattern: ClassVar[str] = "generated images with a pattern by class"
    domain: ClassVar[str] = "vision"

    batch: int = 256
    side: int = 224
    dtype: str = "bfloat16"
    tf32: bool = False
    channels_last: bool = True
    learning_rate: float = 0.1
    num_inputs: int = 4
    batch_change: int = 0
    extra_layers: int = 0
    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        require_positive(self, "batch", "side", "num_inputs")
        if self.count < 1:
            message = f"batch_change is {self.batch_change}: leave one of the {self.batch} at least"
            raise ParameterError(message)
        if self.extra_layers < 0:
            raise ParameterError(f"extra_layers is {self.extra_layers}: give 0 or more")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate is {self.learning_rate}: give a value above 0")
        dtype_named(self.dtype)
        require_parallel(self.ranks, self.parallel)
        if self.parallel not in ("none", "ddp"):
            raise ParameterError(
                f"parallel is {self.parallel}: give ddp, or none for a single rank"
            )

    @property
    def count(self) -> int:
        """Images of one step."""
        return self.batch + self.batch_change

    @abstractmethod
    def network(self) -> torch.nn.Module:
        """Return the network with fresh weights; its forward pass gives `loss` and `logits`."""

    @abstractmethod
    def error_bounds(self) -> ErrorBounds:
        """Roundings that a healthy step may be off."""

    def rule(self) -> Optimizer:
        return Momentum(learning_rate=self.learning_rate)

    def work(self) -> Work:
        shapes = {"pixel_values": (self.count, 3, self.side, self.side), "labels": (self.count,)}
        flops = count_training_flops(self.network, shapes)
        return Work(
            units=self.ranks * self.count,
            unit="images",
            flops=self.ranks * flops,
            precision=self.precision,
        )

    @property
    def precision(self) -> str:
        """Format of the step's products."""
        return "tf32" if self.tf32 and self.dtype == "float32" else self.dtype

    def num_parameters(self) -> int:
        return count_parameters(self.network)

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def build(self, target: Target, seed: int) -> Training:
        return begin_training(
            target,
            seed=seed,
            make=self.fresh,
            rule=self.rule(),
            inputs=DrawnInputs(draw=self.inputs, layout=self.layout),
            num_inputs=self.num_inputs,
            ranks=self.ranks,
            parallel=self.parallel,
            layout=self.layout,
            sampling=self.sampling(seed),
            **self.facts(target),
        )

    def sampling(self, seed: int) -> Plan:
        """Which images of a step float64 follows, where the whole would take too long."""
        sampled = Sampling(seed=seed, batch=self.count)
        return beyond("convolutions", lambda: self.work().flops, sampled)

    def facts(self, target: Target) -> dict[str, Any]:
        """Return what a training needs to be judged; raises ParameterError for another target."""
        if self.tf32:
            refuse_processor(target)
        error_bounds = self.error_bounds()
        return {
            "dtype": dtype_named(self.dtype),
            "error_bounds": error_bounds.in_tf32() if self.precision == "tf32" else error_bounds,
        }

    has_drawn_weights: ClassVar[bool] = False
    """Whether the generator draws the first weights; else torch's, as recorded curves begin."""

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        """The network with its first weights, drawn ones on the device."""
        if self.has_drawn_weights:
            return initialized(self.network, drawer, device)
        return self.network()

    def inputs(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have the same patterns."""
        names = [of_rank(str(index), rank) for index in range(self.num_inputs)]
        for name in names:
            drawer.expect(wanted_images(name, CLASSES, count=self.count, side=self.side))
        patterns = drawn_patterns(drawer, CLASSES)

        def batch(index: int) -> Tensors:
            name = of_rank(str(index), rank)
            images, labels = drawn_images(drawer, name, patterns, count=self.count, side=self.side)
            return {"pixel_values": images, "labels": labels}

        return batch

    def step(self, state: Training) -> Trained:
        return train_step(state)

    def snapshot(self, state: Training) -> Before:
        return take_snapshot(state)

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        yield from check_step(before, state, output)
