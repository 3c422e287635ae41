"""A copy from the memory of one device to that of another, over whatever links the two.

With scope "pair" a suite places it on every ordered pair of a node's devices, one launch for each,
in which both are visible; the rates of all pairs together are the node's matrix. One step copies
`num_bytes` from one of several input sets on the first device into a buffer on the second. A launch
that has one device alone copies between two buffers of its own, and its check says so.

The check brings the buffer to the host, draws the words of the set anew from the seed and compares
every bit: it would catch one flipped bit, a copy that did not run or stopped short (the buffer
holds another set's words), and words of another set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws
from workloads.parts.memory.copies import arrival, drawn_words, require_words
from workloads.parts.numerics.parameters import require_positive


@dataclass(kw_only=True)
class State:
    sources: list[torch.Tensor]
    buffer: torch.Tensor
    seed: int
    has_other: bool
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class DeviceCopyPair(Workload[State, torch.Tensor]):
    """`num_bytes`: of one copy."""

    summary: ClassVar[str] = (
        "Copy from one device to another; on one device alone between two buffers of its own"
    )
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "memory"
    small: ClassVar[Parameters] = {"num_bytes": 16 * 2**20}
    alone: ClassVar[bool] = True  # pairs share links
    bound_by: ClassVar[Bound] = "memory"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "random words"
    dtype: ClassVar[str] = "int64"

    num_bytes: int = 2**29
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "num_inputs")
        require_words(self.num_bytes)

    def work(self) -> Work:
        return Work(units=float(self.num_bytes), unit="bytes")

    def build(self, target: Target, seed: int) -> State:
        has_other = len(target.devices) > 1
        first, second = target.devices[:2] if has_other else (target.device, target.device)
        draws = Draws(target=target, seed=seed)
        sets = [draws.of(drawn_words(seed, n, self.num_bytes)) for n in range(self.num_inputs)]
        return State(
            sources=[one.to(first) for one in sets],
            buffer=torch.zeros_like(sets[0], device=second),
            seed=seed,
            has_other=has_other,
            cycle=InputCycle(of=self.num_inputs),
        )

    def step(self, state: State) -> torch.Tensor:
        # Ordered after what either device does, on the stream of the first, which is the timed one.
        return state.buffer.copy_(state.sources[state.cycle.advance()], non_blocking=True)

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        where = "on the second device" if state.has_other else "on the one device that there is"
        yield arrival(where, output, drawn_words(state.seed, state.cycle.index, self.num_bytes))


WORKLOAD = DeviceCopyPair
