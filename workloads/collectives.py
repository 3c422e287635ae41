"""Every operation among ranks on integers: one right answer, the same bits on every link.

A launch is several processes, joined by torch.distributed with the backend of the device's vendor.
A step makes each operation once at each size: all_reduce (sum, max), reduce_scatter and
all_gather (out of place and in place), broadcast from one rank after the other, all_to_all, a
ring of sends and receives, an all_reduce within every two ranks, and a barrier. torch has
all_reduce and broadcast in place only, and all_to_all and the ring out of place only. The sizes
run from 8 bytes to `count` elements; all but the smallest are odd, and so is each rank's share.

Each rank's input is integers from a generator that every rank can run, so small that all
sums in any order are integers that the dtype holds exactly. So each rank knows what it must
receive, in 64-bit integers on the host, and one wrong bit is an error. Receive buffers hold NaN
before a step that is checked, so what was not written shows. It would catch a rank that sends
something else than it was given or nothing, a block in a wrong place, a lost tail of an odd
count, a sum made in a narrower dtype, and an old result. A rank must be told from its results
alone: results that all ranks must share have one digest, which the ranks exchange and compare
with the host's. A barrier is judged by a table on the host: nobody may leave before all came.

The bytes of a step are those of bus bandwidth, whose rate does not depend on the number of ranks n:
the buffer's size times 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter, all_gather and
all_to_all, and 1 for broadcast and the ring (the convention of nccl-tests, PERFORMANCE.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist

from appliance.generator import maps
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.distributed.ranks import Ranks, join, operation
from workloads.parts.drawing.drawn import Draws, described, on_host
from workloads.parts.matmul.products import FLOATS
from workloads.parts.numerics.bits import num_differing, weighted_digest
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import unit_roundoff

SMALLEST_BYTES = 8
_builds = itertools.count()
# Torch 2.8 has the two under their former names alone, which later versions warn of.
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operation at one size: `count` elements, or `block` elements of each rank."""

    operation: str
    count: int
    block: int
    ranks: Ranks

    @property
    def name(self) -> str:
        return f"{self.operation}/{self.count}"

    @property
    def whole(self) -> int:
        """Elements of all ranks' blocks."""
        return self.ranks.size * self.block

    def share(self, buffer: torch.Tensor, rank: int | None = None) -> torch.Tensor:
        """The block of a rank, this one's if none is named."""
        begin = self.block * (self.ranks.rank if rank is None else rank)
        return buffer[begin : begin + self.block]


@dataclass(kw_only=True)
class State:
    ranks: Ranks
    calls: list[Call]
    inputs: list[torch.Tensor]
    buffers: dict[str, torch.Tensor]
    cycle: InputCycle
    seed: int
    build: int

    @property
    def root(self) -> int:
        """The rank that broadcasts in this step."""
        return self.cycle.number % self.ranks.size


# ------------------------------------------------------------------ the operations

Run = Callable[[State, Call, torch.Tensor, torch.Tensor], None]
"""Makes one operation from this rank's input into the buffer, whose size `_length` gives."""


def _all_reduce_sum(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del state
    buffer.copy_(source[: call.count])
    dist.all_reduce(buffer)


def _all_reduce_max(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del state
    buffer.copy_(source[: call.count])
    dist.all_reduce(buffer, op=dist.ReduceOp.MAX)


def _reduce_scatter(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del state
    _reduce_scatter_single(buffer, source[: call.whole])


def _reduce_scatter_in_place(
    state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor
) -> None:
    del state
    buffer.copy_(source[: call.whole])
    _reduce_scatter_single(call.share(buffer), buffer)


def _all_gather(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del state
    _all_gather_single(buffer, source[: call.block])


def _all_gather_in_place(
    state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor
) -> None:
    del state
    own = call.share(buffer)
    own.copy_(source[: call.block])
    _all_gather_single(buffer, own)


def _broadcast(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    if state.ranks.rank == state.root:
        buffer.copy_(source[: call.count])
    dist.broadcast(buffer, state.root)


def _all_to_all(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del state
    dist.all_to_all_single(buffer, source[: call.whole])


def _ring(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    rank, size = state.ranks.rank, state.ranks.size
    moves = [
        dist.P2POp(dist.isend, source[: call.count], (rank + 1) % size),
        dist.P2POp(dist.irecv, buffer, (rank - 1) % size),
    ]
    for move in dist.batch_isend_irecv(moves):
        move.wait()


def _pairs(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    groups = state.ranks.pairs.items()
    for row, (pair, group) in zip(buffer, groups, strict=True):
        with operation(f"all_reduce of the ranks {pair[0]} and {pair[1]}"):
            row.copy_(source[: call.count])
            dist.all_reduce(row, group=group)


def _barrier(state: State, call: Call, source: torch.Tensor, buffer: torch.Tensor) -> None:
    del source
    door = f"{state.build}/{state.cycle.number}/{call.name}"
    state.ranks.arrive(door)
    dist.barrier()
    buffer.fill_(state.ranks.size - state.ranks.arrived(door))


OPERATIONS: Mapping[str, Run] = {
    "all_reduce_sum": _all_reduce_sum,
    "all_reduce_max": _all_reduce_max,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_in_place": _reduce_scatter_in_place,
    "all_gather": _all_gather,
    "all_gather_in_place": _all_gather_in_place,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "ring": _ring,
    "pairs": _pairs,
    "barrier": _barrier,
}
OF_BLOCKS = (
    "reduce_scatter",
    "reduce_scatter_in_place",
    "all_gather",
    "all_gather_in_place",
    "all_to_all",
)
OF_PEERS = ("ring", "pairs")  # nothing for a process that is alone
SHARED = ("all_reduce_sum", "all_reduce_max", "all_gather", "all_gather_in_place", "broadcast")
"""Operations whose results are the same on all ranks."""


def bus_factor(name: str, ranks: int) -> float:
    """Bytes that count for bus bandwidth, as a multiple of the buffer's size."""
    if name == "barrier":
        return 0.0
    if name == "pairs":
        return float(ranks - 1)  # so many all_reduce of two ranks, each with the factor 1
    if name in OF_BLOCKS:
        return (ranks - 1) / ranks
    return 2 * (ranks - 1) / ranks if name.startswith("all_reduce") else 1.0


def _shape(call: Call) -> tuple[int, ...]:
    """Shape of the buffer of a call."""
    if call.operation == "pairs":
        return (len(call.ranks.pairs), call.count)
    if call.operation == "reduce_scatter":
        return (call.block,)
    if call.operation == "barrier":
        return (1,)
    return (call.whole if call.operation in OF_BLOCKS else call.count,)


# ------------------------------------------------------------------ the workload


@dataclass(frozen=True, kw_only=True)
class Collectives(Workload[State, dict[str, torch.Tensor]]):
    """`operation`: one of OPERATIONS or all; `num_sizes`: sizes from 8 bytes to `count` elements.

    A single size is that of `count`. `dtype`: what the elements are and are summed in.
    """

    summary: ClassVar[str] = "Operations among ranks on integers; bytes are of bus bandwidth"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "collectives"
    small: ClassVar[Parameters] = {"count": 1009, "num_sizes": 3}
    alone: ClassVar[bool] = True
    bound_by: ClassVar[Bound] = "collective"
    data_pattern: ClassVar[str] = "integers"

    ranks: int = 2
    operation: str = "all"
    count: int = 2**22 + 1
    num_sizes: int = 1
    dtype: str = "float32"
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "ranks", "count", "num_sizes", "num_inputs")
        require_choice("operation", self.operation, ["all", *OPERATIONS])
        require_choice("dtype", self.dtype, FLOATS)
        if self.ranks < 2:  # noqa: PLR2004 - one alone has nobody to talk to
            raise ParameterError(f"ranks is {self.ranks}: give a number of 2 or more")
        if self.ranks > self._largest:
            raise ParameterError(
                f"ranks is {self.ranks}: {self.dtype} sums the numbers of {self._largest} exactly"
            )
        if self.count < self._smallest:
            raise ParameterError(f"count is {self.count}: give at least {SMALLEST_BYTES} bytes")

    @property
    def _largest(self) -> int:
        """Every integer up to this one is exact in the dtype."""
        return int(1 / unit_roundoff(FLOATS[self.dtype]))

    @property
    def _smallest(self) -> int:
        return SMALLEST_BYTES // FLOATS[self.dtype].itemsize

    @property
    def _operations(self) -> list[str]:
        return list(OPERATIONS) if self.operation == "all" else [self.operation]

    @property
    def _counts(self) -> list[int]:
        """Sizes in elements, each by one factor larger than the one before, odd in between."""
        if self.num_sizes == 1:
            return [self.count]
        factor = (self.count / self._smallest) ** (1 / (self.num_sizes - 1))
        between = [round(self._smallest * factor**n) | 1 for n in range(1, self.num_sizes - 1)]
        return sorted({self._smallest, *(min(count, self.count) for count in between), self.count})

    def _calls(self, ranks: Ranks) -> list[Call]:
        return [
            Call(operation=name, count=count, block=_block(count, ranks.size), ranks=ranks)
            for name in self._operations
            for count in (self._counts if name != "barrier" else [1])
            if ranks.size > 1 or name not in OF_PEERS
        ]

    def work(self) -> Work:
        moved = 0.0
        for name, count in itertools.product(self._operations, self._counts):
            size = self.ranks * _block(count, self.ranks) if name in OF_BLOCKS else count
            moved += bus_factor(name, self.ranks) * size * FLOATS[self.dtype].itemsize
        if not moved:
            return Work(units=1.0, unit="barriers")
        return Work(units=moved, unit="bytes", bytes=moved)

    def build(self, target: Target, seed: int) -> State:
        ranks, draws = join(target), Draws(target=target, seed=seed)
        calls = self._calls(ranks)
        dtype = FLOATS[self.dtype]
        state = State(
            ranks=ranks,
            calls=calls,
            inputs=[
                draws.of(self._described(seed, index, ranks, ranks.rank))
                for index in range(self.num_inputs)
            ],
            buffers={
                call.name: torch.empty(
                    _shape(call),
                    dtype=torch.int64 if call.operation == "barrier" else dtype,
                    device=target.device,
                )
                for call in calls
            },
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
            build=next(_builds),
        )
        _poison(state)
        return state

    def step(self, state: State) -> dict[str, torch.Tensor]:
        source = state.inputs[state.cycle.advance()]
        for call in state.calls:
            with operation(call.name):
                OPERATIONS[call.operation](state, call, source, state.buffers[call.name])
        return {call.name: _result(call, state.buffers[call.name]) for call in state.calls}

    def snapshot(self, state: State) -> object:
        """Poison the receive buffers of the step that will be checked, off the clock."""
        _poison(state)
        return None

    # -------------------------------------------------------------- what must have come

    def _described(self, seed: int, index: int, ranks: Ranks, rank: int) -> Drawn:
        """A rank's input of one set: sums over all ranks in any order are exact in the dtype."""
        largest = min(self._largest // ranks.size, maps.MOST_INTEGERS // 2 - 1)
        length = max(max(count, ranks.size * _block(count, ranks.size)) for count in self._counts)
        numbers = maps.integers(-largest, largest)
        name = f"set {index} of rank {rank}"
        return described(seed, name, numbers, FLOATS[self.dtype], (length,))

    def check(
        self, before: object, state: State, output: dict[str, torch.Tensor]
    ) -> Iterator[Check]:
        del before
        ranks = state.ranks
        inputs = torch.stack(
            [
                on_host(self._described(state.seed, state.cycle.index, ranks, rank)).long()
                for rank in range(ranks.size)
            ]
        )
        wrong = dict.fromkeys((call.operation for call in state.calls), 0)
        judged = dict(wrong)
        golden = digest = 0
        for call in state.calls:
            result = output[call.name]
            exact = _exact(call, inputs, state.root).to(result.dtype)
            wrong[call.operation] += num_differing(result, exact)
            judged[call.operation] += exact.numel()
            if call.operation in SHARED:
                golden += weighted_digest(exact[None], state.seed)
                digest += weighted_digest(result[None], state.seed)
        for name, count in wrong.items():
            yield Check(
                name=f"{name}: elements that differ from the exact result",
                error=count,
                bound=0,
                kind="collective",
                detects=1,
                detects_what=f"wrong elements among {judged[name]} on rank {ranks.rank}",
            )
        if any(call.operation in SHARED for call in state.calls):
            yield self._agreement(state, golden, digest)

    def _agreement(self, state: State, golden: int, digest: int) -> Check:
        """Whether every rank holds, bit for bit, what the host computed."""
        device = state.inputs[0].device
        own = torch.tensor([digest % 2**63], dtype=torch.int64, device=device)
        all_gathered = torch.full((state.ranks.size,), -1, dtype=torch.int64, device=device)
        with operation("exchanging the digests"):
            _all_gather_single(all_gathered, own)
        return Check(
            name="ranks whose digest of all shared results is another",
            error=int((all_gathered.cpu() != golden % 2**63).sum()),
            bound=0,
            kind="collective",
            detects=1,
            detects_what=f"ranks with a wrong element among {state.ranks.size}; golden digest "
            f"{golden % 2**63:016x}, set {state.cycle.index}",
        )


def _block(count: int, ranks: int) -> int:
    """Elements of one rank's share, odd."""
    return max(1, count // ranks) | 1


def _poison(state: State) -> None:
    """Fill all receive buffers with what no operation gives."""
    for buffer in state.buffers.values():
        buffer.fill_(torch.nan if buffer.is_floating_point() else -1)


def _result(call: Call, buffer: torch.Tensor) -> torch.Tensor:
    """What the operation has defined of the buffer."""
    return call.share(buffer) if call.operation == "reduce_scatter_in_place" else buffer


def _exact(call: Call, inputs: torch.Tensor, root: int) -> torch.Tensor:
    """What this rank must have received, from the inputs of all ranks (ranks x length)."""
    counted, whole = inputs[:, : call.count], inputs[:, : call.whole]
    return {
        "all_reduce_sum": lambda: counted.sum(0),
        "all_reduce_max": lambda: counted.amax(0),
        "reduce_scatter": lambda: call.share(whole.sum(0)),
        "all_gather": lambda: inputs[:, : call.block].reshape(-1),
        "broadcast": lambda: counted[root],
        "all_to_all": lambda: torch.cat([call.share(row) for row in whole]),
        "ring": lambda: counted[call.ranks.rank - 1],
        "pairs": lambda: torch.stack([counted[list(pair)].sum(0) for pair in call.ranks.pairs]),
        "barrier": lambda: torch.zeros(1, dtype=torch.int64),  # nobody was late
    }[call.operation.removesuffix("_in_place")]()


WORKLOAD = Collectives
