"""Memory bandwidth: copy, scale, add and triad over arrays larger than any cache.

The four kernels of STREAM (McCalpin 1995), in float32: c = a, c = s b, c = a + b and
c = a + s b. One step is all four one after another, or the one that `operation` names; the
bytes are those that STREAM counts, without the reads that a cache makes before it writes.
Input sets change at each step, and an input is read again only after several whole arrays
have passed, so nothing is served from a cache.

Each result is one rounding of an exact value (s is a power of two, so a fused multiply-add
earns no other bits), hence the same bits on every device: the check compares all bits of
all elements with the host's own result,
of inputs that it draws itself. It would catch one flipped bit, a kernel that did
not run (the outputs hold NaN, or what another input set left), and a narrower dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.generator import maps
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws
from workloads.parts.memory.stream import ARRAYS, ITEM, compare_drawn, run
from workloads.parts.numerics.parameters import require_choice, require_positive


@dataclass(kw_only=True)
class State:
    first: list[torch.Tensor]
    second: list[torch.Tensor]
    drawn: list[tuple[Drawn, Drawn]]
    results: dict[str, torch.Tensor]
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class MemoryBandwidth(Workload[State, dict[str, torch.Tensor]]):
    """`operation`: copy, scale, add, triad or all; `array_bytes`: size of one array."""

    summary: ClassVar[str] = "Device memory bandwidth: copy, scale, add, triad"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "memory"
    small: ClassVar[Parameters] = {"array_bytes": 64 * 2**20}
    bound_by: ClassVar[Bound] = "memory"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "standard normal numbers"

    operation: str = "all"
    array_bytes: int = 2**30
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "array_bytes", "num_inputs")
        require_choice("operation", self.operation, ["all", *ARRAYS])
        if self.array_bytes % ITEM:
            raise ParameterError(f"array_bytes is {self.array_bytes}: give a multiple of {ITEM}")

    @property
    def _operations(self) -> list[str]:
        return list(ARRAYS) if self.operation == "all" else [self.operation]

    def work(self) -> Work:
        moved = float(sum(ARRAYS[name] for name in self._operations) * self.array_bytes)
        return Work(units=moved, unit="bytes", bytes=moved)

    @property
    def _count(self) -> int:
        return self.array_bytes // ITEM

    def _described(self, draws: Draws, name: str) -> Drawn:
        return draws.described(name, maps.NORMAL, torch.float32, (self._count,))

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        drawn = [
            [self._described(draws, f"{which} {number}") for number in range(self.num_inputs)]
            for which in ("first", "second")
        ]
        draws.expect_drawn(one for inputs in drawn for one in inputs)
        first, second = ([draws.of(one) for one in inputs] for inputs in drawn)
        return State(
            first=first,
            second=second,
            drawn=list(zip(*drawn, strict=True)),
            results={
                name: torch.full((self._count,), torch.nan, device=target.device)
                for name in self._operations
            },
            cycle=InputCycle(of=self.num_inputs),
        )

    def step(self, state: State) -> dict[str, torch.Tensor]:
        index = state.cycle.advance()
        for name, out in state.results.items():
            run(name, state.first[index], state.second[index], out)
        return state.results

    def check(
        self, before: object, state: State, output: dict[str, torch.Tensor]
    ) -> Iterator[Check]:
        del before
        yield from compare_drawn(*state.drawn[state.cycle.index], output)


WORKLOAD = MemoryBandwidth
