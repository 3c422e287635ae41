"""Reads of a file on a disk, in its order or at random, past the memory that caches it.

The untimed launch writes a file of `file_bytes` into the run's own folder, which the others read
and which goes with the last of them; into a `folder` that is named each launch writes one of its
own, which has no name and is gone with its process. One step reads the next `blocks` blocks of it,
in order or by a seeded permutation, `threads` at a time. A folder without room for it makes the
case unsupported. Reads bypass the page cache, or drop each block from it where the file system
refuses that (the check's name says which). The reader takes microseconds a block.

The check computes all bits of every block that was read from the seed and its place: a flipped bit,
a block from another place or an earlier step, and a read that stopped short would be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from appliance.generator.words import PAGE
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.memory.disk import Reader, blocks_content, make_file, reader, shared_file
from workloads.parts.numerics.bits import num_differing
from workloads.parts.numerics.parameters import require_choice, require_positive

LARGEST = 2**36  # 64 GiB


@dataclass(kw_only=True)
class State:
    """`order`: offsets in bytes of the file's blocks, in the order in which they are read."""

    reader: Reader
    order: list[int]
    seed: int
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class DiskRead(Workload[State, torch.Tensor]):
    """`pattern`: sequential or random; `blocks`: of one step; `threads`: that read at a time."""

    summary: ClassVar[str] = "Reads of a file on a disk, in order or at random, not from the cache"
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "memory"
    small: ClassVar[Parameters] = {"file_bytes": 2**26, "block_bytes": 2**18, "blocks": 32}
    alone: ClassVar[bool] = True
    bound_by: ClassVar[Bound] = "input"
    data_pattern: ClassVar[str] = "random words"
    dtype: ClassVar[str] = "int64"

    pattern: str = "sequential"
    file_bytes: int = 2**31
    block_bytes: int = 2**20
    blocks: int = 64
    threads: int = 4
    folder: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "file_bytes", "block_bytes", "blocks", "threads")
        require_choice("pattern", self.pattern, ("sequential", "random"))
        if self.block_bytes % PAGE:
            raise ParameterError(f"block_bytes is {self.block_bytes}: give a multiple of {PAGE}")
        least = 2 * self.blocks * self.block_bytes
        if self.file_bytes % self.block_bytes or not least <= self.file_bytes <= LARGEST:
            limits = f"{least} bytes or more and at most {LARGEST}"
            raise ParameterError(f"file_bytes is {self.file_bytes}: give whole blocks, {limits}")

    def work(self) -> Work:
        return Work(units=float(self.blocks * self.block_bytes), unit="bytes")

    def build(self, target: Target, seed: int) -> State:
        if self.folder:
            file = make_file(self.folder, self.file_bytes, seed)
        else:
            file = shared_file(target.artifacts, self.file_bytes, seed)
        total = self.file_bytes // self.block_bytes
        order = np.arange(total)
        if self.pattern == "random":
            np.random.default_rng(seed).shuffle(order)
        return State(
            reader=reader(
                file,
                num_blocks=self.blocks,
                block_bytes=self.block_bytes,
                threads=self.threads,
            ),
            order=(order * self.block_bytes).tolist(),
            seed=seed,
            cycle=InputCycle(of=total // self.blocks),
        )

    def _offsets(self, state: State) -> list[int]:
        """Places of the blocks of the last step."""
        begin = state.cycle.index * self.blocks
        return state.order[begin : begin + self.blocks]

    def step(self, state: State) -> torch.Tensor:
        state.cycle.advance()
        return state.reader.read(self._offsets(state))

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        exact = blocks_content(state.seed, self._offsets(state), self.block_bytes)
        yield Check(
            name=f"words that differ, {state.reader.file.how}",
            error=num_differing(output, exact),
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong words among {exact.numel()}",
        )


WORKLOAD = DiskRead
