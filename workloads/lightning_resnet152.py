"""ResNet-152 trained by Lightning: its loop, hooks, callbacks and precision around each step.

One step is one turn of `Trainer.fit` (`parts/vision/lightning_loop.py`): the loop takes a batch
from the loader, and what it does until it asks for the next is the step. The network, its inputs
and its optimiser are those of resnet152, so that the difference between the two is what Lightning
adds.

The checks are those of resnet152 too: float64 follows the step that the loop was asked for. A hook
that runs twice or not at all, a batch that the loop took out of turn, gradients that it kept or
scaled, an update that it skipped and a precision plugin that is not the one asked for would each
be seen.

Loss, logits, gradients and statistics have the bits of resnet152 on a processor, in float32 and
in bfloat16, so `ERROR_BOUNDS` is that of resnet152.

Several ranks average their gradients as resnet152's do: what the loop drives is then the wrapped
network, as torch's own launcher and not Lightning started the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from appliance.records.json import Parameters
from workloads.contract.target import Target
from workloads.parts.distributed.ranks import operation
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.optimizers import Tensors
from workloads.parts.training.state import Trained, Training
from workloads.parts.training.step import outputs_of
from workloads.parts.vision.resnet import DEPTHS_152
from workloads.parts.vision.resnet_training import ResnetTraining

ERROR_BOUNDS = ErrorBounds(
    loss=4, logits=64, gradients=32, statistics=20, has_branch_points=True, branch_points=160
)
FORMATS = ("float32", "bfloat16")
"""Float16 is left out: Lightning would scale the loss as it sees fit, and skip steps."""


@dataclass(kw_only=True)
class Driven(Training):
    """A training whose steps `loop` makes: of a batch, it returns loss and logits."""

    loop: Callable[[Tensors], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class LightningResnet152(ResnetTraining):
    summary: ClassVar[str] = "ResNet-152 training by Lightning's loop, images on the device"
    version: ClassVar[int] = 4
    depths: ClassVar[tuple[int, int, int, int]] = DEPTHS_152
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "most_blocks": 3,
        "width": 16,
        "dtype": "float32",
        "channels_last": False,
        "learning_rate": 0.01,
        "num_inputs": 2,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("dtype", self.dtype, FORMATS)

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS

    def build(self, target: Target, seed: int) -> Driven:
        # Seconds to import, which whoever lists the workloads should not wait.
        from workloads.parts.vision.lightning_loop import begin  # noqa: PLC0415

        state = super().build(target, seed)
        network = state.model if state.peers is None else state.peers.runner
        loop = begin(network, state.optimizer, target.device, state.dtype)
        values = {field.name: getattr(state, field.name) for field in fields(state) if field.init}
        return Driven(**values, loop=loop)

    def step(self, state: Training) -> Trained:
        assert isinstance(state, Driven)  # noqa: S101 - what build returned
        index = state.cycle.advance()
        with operation(f"step {state.cycle.number}"):
            loss, logits = state.loop(state.batches[index])
        return outputs_of(state, loss, logits)


WORKLOAD = LightningResnet152
