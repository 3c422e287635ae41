"""The matrix product as the base of faults in an output: right at first, then wrong."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from appliance.records.json import Parameters
from workloads.contract.target import Target
from workloads.gemm import Gemm
from workloads.parts.matmul.dense import Operands as State
from workloads.parts.numerics.bits import bits


@dataclass(kw_only=True)
class History(State):
    """The state of a product, and outputs of earlier steps."""

    outputs: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CorruptedGemm(Gemm):
    """`after`: steps of a launch that are right before the fault begins."""

    small: ClassVar[Parameters] = {
        "m": 128,
        "n": 128,
        "k": 1024,
        "dtype": "float32",
    }

    after: int = 0

    def build(self, target: Target, seed: int) -> History:
        return History(**vars(super().build(target, seed)))

    def step(self, state: State) -> torch.Tensor:
        output = super().step(state)
        assert isinstance(state, History)  # noqa: S101 - narrows for the type checker
        return output if state.cycle.number < self.after else self.corrupt(state, output)

    @abstractmethod
    def corrupt(self, state: History, output: torch.Tensor) -> torch.Tensor:
        """What the faulty device hands out in the place of `output`."""


def flip(output: torch.Tensor, bit: int) -> torch.Tensor:
    """The same output with one bit of its largest element flipped; bit 0 is the lowest."""
    words = bits(output).clone()
    width = 8 * words.element_size()
    value = 1 << bit
    flipped = value - (1 << width) if bit == width - 1 else value
    words.view(-1)[int(output.detach().cpu().float().abs().argmax())] ^= flipped
    return words.view(output.dtype).to(output.device)
