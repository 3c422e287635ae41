"""Memory bandwidth of the host: the triad of STREAM on all of its processors, whatever the device.

One step is c = a + s b in float32 over arrays larger than any cache, on as many threads as this
process may use, or `threads`. The bytes are those that STREAM counts, without the reads that a
cache makes before it writes. Each page is first written by the thread that works on it later, so
it lies in the memory next to that thread's processor as long as the thread stays there. Threads are
torch's own, which split an array in the same way at every step; they are not bound.

Each result is one rounding of an exact value, so the check compares all bits of all elements with
numpy's result in float64, of inputs that it draws anew, piece by piece. It would catch one flipped
bit, a thread that did not run (the output holds what another input set left), an input that was
spoilt in memory, and a narrower dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.generator.drawing import Drawn
from appliance.generator.maps import NORMAL
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws
from workloads.parts.memory.stream import ARRAYS, ITEM, compare_drawn, run
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.threads import on_threads, usable_processors


@dataclass(kw_only=True)
class State:
    first: list[torch.Tensor]
    second: list[torch.Tensor]
    drawn: list[tuple[Drawn, Drawn]]
    result: torch.Tensor
    threads: int
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class HostStream(Workload[State, torch.Tensor]):
    """`array_bytes`: size of one array; `threads`: 0 for all processors that may be used."""

    summary: ClassVar[str] = "Host memory bandwidth: triad on all processors"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "memory"
    small: ClassVar[Parameters] = {"array_bytes": 64 * 2**20}
    alone: ClassVar[bool] = True
    bound_by: ClassVar[Bound] = "memory"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "standard normal numbers"

    array_bytes: int = 2**30
    threads: int = 0
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "array_bytes", "num_inputs")
        if self.array_bytes % ITEM:
            raise ParameterError(f"array_bytes is {self.array_bytes}: give a multiple of {ITEM}")
        if self.threads < 0:
            raise ParameterError(f"threads is {self.threads}: give a number of 0 or more")

    def work(self) -> Work:
        return Work(units=float(ARRAYS["triad"] * self.array_bytes), unit="bytes")

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        threads, count = self.threads or usable_processors(), self.array_bytes // ITEM

        def spread_out() -> torch.Tensor:
            with on_threads(threads):
                return torch.empty(count).fill_(torch.nan)

        def described(which: str) -> list[Drawn]:
            names = [f"{which} {number}" for number in range(self.num_inputs)]
            return [draws.described(name, NORMAL, torch.float32, (count,)) for name in names]

        first, second = described("first"), described("second")
        return State(
            first=[draws.into(one, spread_out()) for one in first],
            second=[draws.into(one, spread_out()) for one in second],
            drawn=list(zip(first, second, strict=True)),
            result=spread_out(),
            threads=threads,
            cycle=InputCycle(of=self.num_inputs),
        )

    def step(self, state: State) -> torch.Tensor:
        index = state.cycle.advance()
        with on_threads(state.threads):
            run("triad", state.first[index], state.second[index], state.result)
        return state.result

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        yield from compare_drawn(*state.drawn[state.cycle.index], {"triad": output})


WORKLOAD = HostStream
