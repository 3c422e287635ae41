"""A workload that generates tokens for requests, greedily: its state, and the order of its checks.

What holds of the tokens whatever the model is comes first (`parts/language/generated.py`). Then
logits and choices are compared with those of a float64 model that reads the tokens, which a
subclass makes: once per run of the first step, and of any other step when it is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch

from appliance.records.journal import Check
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts
from workloads.parts.inference.inference import Inference
from workloads.parts.language.generated import (
    Generated,
    Tensors,
    compare_tokens,
    count_missing,
    reference_once,
)


@dataclass(kw_only=True)
class Asked:
    """Requests (input set) on the device, and what answers to them are made and judged with.

    `bar` is added to logits before one is chosen: minus infinity for what ends a sequence, else
    zero.
    """

    requests: list[torch.Tensor]
    bar: torch.Tensor
    cycle: InputCycle
    seed: int
    artifacts: Artifacts


@dataclass(frozen=True, kw_only=True)
class Before:
    """Number of the step that comes, and its request on the host."""

    number: int
    request: torch.Tensor


Generating = TypeVar("Generating", bound=Asked)


@dataclass(frozen=True, kw_only=True)
class Generation(Inference[Generating, Generated]):
    """A subclass says how many tokens of which vocabulary there are, and what is compared.

    `reference_name` is the file with the float64 reference of a run's first step.
    """

    reference_name: ClassVar[str]

    @property
    @abstractmethod
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a sequence."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Sequences, tokens generated of each, and the vocabulary that they are of."""

    @abstractmethod
    def compare(self, before: Before, state: Generating, output: Generated) -> Iterator[Check]:
        """Hold an output of the right shape against float64."""

    def snapshot(self, state: Generating) -> Before:
        number = state.cycle.number + 1
        return Before(number=number, request=self.request(state, number % state.cycle.of))

    def request(self, state: Generating, index: int) -> torch.Tensor:
        """The request of an input set on the host; whoever can draw it reads no device for it."""
        return state.requests[index].cpu().clone()

    def check(self, before: object, state: Generating, output: Generated) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        missing = count_missing(output, self.shape)
        yield missing
        if not missing.is_within:
            return  # nothing else can be compared
        yield from compare_tokens(output, self.ends)
        yield from self.compare(before, state, output)

    def reference(
        self,
        before: Before,
        state: Generating,
        tokens: torch.Tensor,
        make: Callable[[], Tensors],
    ) -> Tensors:
        """What `make` computes for these tokens; of the first step it is made once per run."""
        if before.number > 0:
            return make()
        return reference_once(tokens, state.artifacts, self.reference_name, make)
