"""The time that launching a kernel takes: many additions to a few numbers, one after the other.

One step adds one of several input sets to the same counters `launches` times, each addition a
kernel of its own that has next to nothing to do, so a step takes as long as launching them: on the
host, or on the device where that lags behind. Each addition needs the one before it, so none can
run beside another.

The counters are 64-bit integers, for which there is one right result: what they held before
the step and `launches` times the set, which the host draws itself. The check would catch a launch
that was lost or made twice, one flipped bit, an old result, and the numbers of another set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.generator.drawing import Drawn
from appliance.generator.maps import integers
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws, on_host
from workloads.parts.numerics.bits import num_differing
from workloads.parts.numerics.parameters import require_positive

LARGEST = 2**20  # a step adds less than 2**20 of them for each launch: no run comes near 2**63


@dataclass(kw_only=True)
class State:
    """What is added: on the device, and as it is drawn."""

    added: list[torch.Tensor]
    drawn: list[Drawn]
    counters: torch.Tensor
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class LaunchLatency(Workload[State, torch.Tensor]):
    """`launches`: kernels of one step; `elements`: numbers that each of them adds."""

    summary: ClassVar[str] = "Launches of a kernel with next to nothing to do, one after another"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "operators"
    small: ClassVar[Parameters] = {"launches": 200}
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "small integers"
    dtype: ClassVar[str] = "int64"

    launches: int = 1000
    elements: int = 16
    num_inputs: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "launches", "elements", "num_inputs")

    def work(self) -> Work:
        return Work(units=float(self.launches), unit="launches")

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        drawn = [self._described(draws, f"added {number}") for number in range(self.num_inputs)]
        return State(
            added=[draws.of(one) for one in drawn],
            drawn=drawn,
            counters=draws.of(self._described(draws, "counters")),
            cycle=InputCycle(of=self.num_inputs),
        )

    def _described(self, draws: Draws, name: str) -> Drawn:
        return draws.described(name, integers(1, LARGEST - 1), torch.int64, (self.elements,))

    def step(self, state: State) -> torch.Tensor:
        added = state.added[state.cycle.advance()]
        for _ in range(self.launches):
            state.counters.add_(added)
        return state.counters

    def snapshot(self, state: State) -> torch.Tensor:
        return state.counters.to("cpu", copy=True)

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        assert isinstance(before, torch.Tensor)  # noqa: S101 - what `snapshot` kept
        exact = before + self.launches * on_host(state.drawn[state.cycle.index])
        yield Check(
            name="counters that differ",
            error=num_differing(output, exact),
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong counters among {self.elements}",
        )


WORKLOAD = LaunchLatency
