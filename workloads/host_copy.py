"""Copies between the host's memory and the device's: to it, from it, or both ways at once.

One step copies `num_bytes` in each direction that `direction` names, from one of several input
sets, into a buffer that stays. With `pinned` the host's side is page-locked memory, which the
device reads by itself; without, it is ordinary memory, through which most loaders feed a device.
Both ways at once run on two streams where the device has them. A processor is its own device:
there each copy is one between two buffers of the host, and page-locking says nothing.

The check draws the words of the set anew from the seed and compares every bit of the whole buffer:
it would catch one flipped bit, a copy that did not run or stopped short (the buffer holds another
set's words), and one that took another set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Draws, fill
from workloads.parts.memory.copies import WORD, arrival, drawn_words, require_words
from workloads.parts.numerics.parameters import require_choice, require_positive

WAYS: Mapping[str, tuple[str, ...]] = {
    "to_device": ("to_device",),
    "from_device": ("from_device",),
    "both": ("to_device", "from_device"),
}


@dataclass(kw_only=True)
class State:
    """By direction: the sets that are copied, and the buffer that they are copied into."""

    sources: dict[str, list[torch.Tensor]]
    buffers: dict[str, torch.Tensor]
    other: torch.Stream | None
    seed: int
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class HostCopy(Workload[State, dict[str, torch.Tensor]]):
    """`direction`: to_device, from_device or both; `num_bytes`: of one copy."""

    summary: ClassVar[str] = (
        "Copy between host and device; on a processor between two buffers of the host"
    )
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "memory"
    small: ClassVar[Parameters] = {"num_bytes": 16 * 2**20}
    bound_by: ClassVar[Bound] = "memory"
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "random words"
    dtype: ClassVar[str] = "int64"

    direction: str = "to_device"
    pinned: bool = True
    num_bytes: int = 2**29
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "num_inputs")
        require_choice("direction", self.direction, WAYS)
        require_words(self.num_bytes)

    def work(self) -> Work:
        return Work(units=float(len(WAYS[self.direction]) * self.num_bytes), unit="bytes")

    def build(self, target: Target, seed: int) -> State:
        device, ways = target.device, WAYS[self.direction]
        has_streams = device.type != "cpu"
        draws, count = Draws(target=target, seed=seed), self.num_bytes // WORD
        return State(
            sources={
                way: [self._source(draws, way, index) for index in self._indices] for way in ways
            },
            buffers={
                way: torch.zeros(count, dtype=torch.int64, device=device)
                if way == "to_device"
                else self._memory(device).zero_()
                for way in ways
            },
            other=torch.Stream(device) if has_streams and len(ways) > 1 else None,
            seed=seed,
            cycle=InputCycle(of=self.num_inputs),
        )

    @property
    def _indices(self) -> range:
        return range(self.num_inputs)

    def _source(self, draws: Draws, way: str, index: int) -> torch.Tensor:
        """What is copied: drawn on the side where it lies."""
        drawn = drawn_words(draws.seed, self._set(way, index), self.num_bytes)
        if way == "from_device":
            return draws.of(drawn)
        memory = self._memory(draws.target.device)
        fill(drawn, memory)
        return memory

    def _set(self, way: str, index: int) -> int:
        """Number of a set: those of the two directions differ."""
        return index + self.num_inputs * (way == "from_device")

    def _memory(self, device: torch.device) -> torch.Tensor:
        """Room for the words in memory of the host, of the wanted kind from the start."""
        is_locked = self.pinned and device.type != "cpu"
        return torch.empty(self.num_bytes // WORD, dtype=torch.int64, pin_memory=is_locked)

    def step(self, state: State) -> dict[str, torch.Tensor]:
        index = state.cycle.advance()
        if state.other is None:
            for way, buffer in state.buffers.items():
                buffer.copy_(state.sources[way][index], non_blocking=True)
        else:
            _at_once(state, index, state.other)
        return state.buffers

    def check(
        self, before: object, state: State, output: dict[str, torch.Tensor]
    ) -> Iterator[Check]:
        del before
        for way in WAYS[self.direction]:
            number = self._set(way, state.cycle.index)
            yield arrival(way, output[way], drawn_words(state.seed, number, self.num_bytes))


def _at_once(state: State, index: int, other: torch.Stream) -> None:
    """The second direction on a stream of its own, for which the first one's waits at the end."""
    usual = torch.accelerator.current_stream(other.device)
    other.wait_stream(usual)
    first, second = state.buffers
    state.buffers[first].copy_(state.sources[first][index], non_blocking=True)
    with other:
        state.buffers[second].copy_(state.sources[second][index], non_blocking=True)
    usual.wait_stream(other)


WORKLOAD = HostCopy
