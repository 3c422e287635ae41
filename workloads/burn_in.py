"""Burn-in: sustained products in most of the memory, every one of them digested on the device.

A step is so many rounds in each of `lanes` lanes, which work at the same time, each from a thread
of its own with memory of its own (`parts.memory.lanes`). A round reads back a memory pattern,
multiplies matrices of six shapes, each of random numbers and of exact ones in turn, and writes a
pattern where the next round will work; each step makes one link of a chain of products, whose
inputs derive from the digest of the one before. Results go over the whole pool of memory, a set
further in each round, and lie elsewhere in their set at each pass, so what an earlier round left
there is never right. One shape of six, 8 % of the operations, is odd; the others fit tiles.

Exact operands are integers whose every partial sum fits the accumulator, their rows and columns
scaled by powers of two, so that mantissas and exponents vary and every order of sums gives the
same bits. Their rows and columns recur, drawn and scaled anew, so that the host makes the right
product within seconds. Random ones have random mantissas and draw what real work draws.

Every product is digested where it lies, in every round (`parts.memory.digests`), by at most three
kernels that read it once; a step's digests are compared together, without waiting for the
device. Exact products are held to the host's; random ones to the first round's, which is itself
held to float64. In turn, for `phase_seconds` each, the device is hot (products back to back), cool
(a quarter of the time), and loaded in jumps with periods from 1 ms to 10 s. A step takes about a
second where the device sizes it, so that nothing waits for the device more often.

What became of a mismatch is looked at after the step: where it is, whether the operands still
have their digests, and whether it comes again in a hundred repeats. A block that has seen one is
made four times as long, as far as the launch's time limit allows. Two or more, or one that
comes again, fail; a single one that never did is for the buyer to decide. The checks say what
was covered. They catch one flipped bit in any product of any round, a wrong word of memory, a
product in another precision or left unwritten, a first product that is consistently wrong, and a
link of the chain that was skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.matmul.products import FLOATS
from workloads.parts.memory import digests, memory_patterns, mismatches
from workloads.parts.memory.chain import Chain, first_key, largest_magnitude
from workloads.parts.memory.exact_pair import ExactPair
from workloads.parts.memory.lanes import Lane, Pace, Window, in_lanes
from workloads.parts.memory.memory_patterns import PATTERNS
from workloads.parts.memory.mismatches import REPEATS, Event, Operands, Slot
from workloads.parts.numerics.parameters import require_choice, require_positive, require_share
from workloads.parts.numerics.precision import on_host, unit_roundoff

PHASES = ("hot", "hot", "hot", "cool", "hot", "hot", "hot", "load in jumps")
KINDS = ("random numbers", "exact numbers")
PERIODS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""Seconds of a jump, half of them loaded; each step of a phase of jumps takes the next."""
COOL = 4
"""A cool phase works this part of the time."""
STEP_SECONDS = 1.0
MOST_EVENTS = 8
"""Mismatches that are looked at; all are counted."""
NUM_KEYS = 4096
STORED_ROUNDING = 0.6  # of the unit roundoff; 0.42 is earned
ACCUMULATED = {torch.float32: 1e-5}  # per 4096 of the inner dimension
PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding
ALIGNED = 64  # words of 8 bytes
WORD = 8
SMALLEST = 16
SIZES = {
    "accelerators": {"size": 8192, "chain_size": 1024},
    "processors": {"size": 1024, "chain_size": 256},
}
"""Sides that suit the device."""
_WAYS = {
    "kernel": "by one kernel",
    "bytes": "by three kernels, read once",
    "plain": "in 64-bit integers",
}
EXTENSION = 3
"""Times the length of a block that is added to it where a mismatch was seen."""


@dataclass(kw_only=True)
class State:
    """Operands, lanes and chain.

    `hot_rounds` are the rounds that every lane makes in a hot step, `phase_steps` the steps of a
    phase and `product_seconds` what a product takes, 0 where no clock was given.
    """

    operands: Mapping[str, Operands]
    slots: list[Slot]
    lanes: list[Lane]
    num_sets: int
    free_bytes: int
    total_bytes: int
    chain: Chain
    key: torch.Tensor
    keys: torch.Tensor
    signs: torch.Tensor
    rows: torch.Tensor
    draw: int
    hot_rounds: int = 1
    phase_steps: int = 1
    product_seconds: float = 0.0
    events: list[Event] = field(default_factory=list)
    num_steps: int = 0
    phases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))

    @property
    def pool_words(self) -> int:
        """Words of 8 bytes under test."""
        return sum(len(lane.pool) for lane in self.lanes)

    @property
    def wrong(self) -> torch.Tensor:
        """Counts of all lanes, on the device: each product's, and last the memory's."""
        return torch.stack([lane.wrong for lane in self.lanes]).sum(0)


@dataclass(kw_only=True)
class Output:
    """What the last round of a step made in every lane: products, their digests, link and key."""

    products: list[torch.Tensor]
    digests: torch.Tensor
    link: torch.Tensor
    key: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class BurnIn(Workload[State, Output]):
    """`size`: side of the largest product; `chain_size`: of the chain's.

    `by_device` takes sides that suit the device and as many rounds as take a second, in place of
    `size`, `chain_size` and `rounds` (of every lane in a step).

    `memory_fraction` of the free memory is used, `memory_bytes` at most, shared by `lanes`; on
    processors, whose memory is everybody's, `processor_bytes` at most.
    `phase_seconds`: length of a phase; `pattern_parts`: rounds in which the patterns pass one set,
    so that a round spends little on them.
    """

    summary: ClassVar[str] = "Burn-in: products in most of the memory, every one digested"
    version: ClassVar[int] = 3
    domain: ClassVar[str] = "burn-in"
    small: ClassVar[Parameters] = {
        "size": 128,
        "chain_size": 32,
        "memory_bytes": 64 * 2**20,
        "rounds": 1,
        "phase_seconds": 1.0,
    }
    data_pattern: ClassVar[str] = "standard normal numbers and scaled integers in turn"

    by_device: bool = False
    size: int = 8192
    chain_size: int = 1024
    dtype: str = "bfloat16"
    memory_fraction: float = 0.9
    memory_bytes: int = 2**42
    processor_bytes: int = 2**30
    lanes: int = 2
    rounds: int = 1
    phase_seconds: float = 60.0
    pattern_parts: int = 4
    num_checked_rows: int = 16
    num_checked_links: int = 4

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("size", "chain_size", "rounds", "lanes", "phase_seconds"),
            *("memory_bytes", "processor_bytes"),
            *("pattern_parts", "num_checked_rows", "num_checked_links"),
        )
        require_choice("dtype", self.dtype, [name for name in FLOATS if name != "float64"])
        require_share("memory_fraction", self.memory_fraction)
        if self.size < SMALLEST or self.size % SMALLEST:
            raise ParameterError(f"size is {self.size}: give a multiple of {SMALLEST}")
        if not self.by_device:
            self._room(self.memory_bytes)

    # -------------------------------------------------------------- sizes

    @property
    def _shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(m, n, k): full, narrow, flat, shallow, very flat, and odd ones on no tile's border."""
        size = self.size
        half, quarter = size // 2, size // 4
        return (
            (size, size, size),
            (size, half, size),
            (half, size, size),
            (size, size, half),
            (quarter, size, size),
            (half - 1, half, size - 3),
        )

    @property
    def _set_words(self) -> int:
        """Words of 8 bytes that the products of a round take."""
        return sum(self._words(m, n) for m, n, _ in self._shapes for _ in KINDS)

    def _words(self, m: int, n: int) -> int:
        return -(-m * n * FLOATS[self.dtype].itemsize // (WORD * ALIGNED)) * ALIGNED

    def _room(self, budget: int) -> tuple[int, int]:
        """Number of sets and words of a window of a lane that this many bytes hold for all lanes.

        Raises ParameterError where there is no room for two sets.
        """
        item = FLOATS[self.dtype].itemsize
        fixed = 5 * self.size**2 * item + 64 * self.chain_size**2
        words = (budget - min(2**27, budget // 8) - fixed) // (WORD * self.lanes)
        num_sets = words // (self._set_words + self.pattern_parts)
        if num_sets < 2:  # noqa: PLR2004 - one to work in while the other holds a pattern
            sets = 2 * WORD * (self._set_words + self.pattern_parts) * self.lanes
            least = (fixed + sets) * 8 // 7 + 2**10
            raise ParameterError(
                f"{budget:,} bytes of memory are too few for size {self.size}: "
                f"give {least:,}, or a smaller size"
            )
        return num_sets, words // (num_sets * self.pattern_parts)

    def work(self) -> Work:
        """Of a step of given size; one that sizes itself counts steps."""
        if self.by_device:
            return Work()
        products = sum(2 * m * n * k for m, n, k in self._shapes) * len(KINDS)
        rounds = self.rounds * self.lanes
        return Work(
            units=rounds * len(KINDS) * len(self._shapes) + 1,
            unit="products",
            flops=rounds * products + 2 * self.chain_size**3,
            precision=self.dtype,
        )

    # -------------------------------------------------------------- build

    def build(self, target: Target, seed: int) -> State:
        kind = "processors" if target.device.type == "cpu" else "accelerators"
        sized = replace(self, **SIZES[kind]) if self.by_device else self  # type: ignore[arg-type]
        return sized._built(target, seed)  # noqa: SLF001 - of the same class

    def _built(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        device, dtype = target.device, FLOATS[self.dtype]
        free, total = _memory(device)
        most = self.processor_bytes if device.type == "cpu" else self.memory_bytes
        budget = min(most, self.memory_bytes, int(self.memory_fraction * free))
        num_sets, window = self._room(budget)
        exact = self._exact(rng)
        normal = (self._normal(rng), self._normal(rng))
        weights = digests.make_weights((self.size, self.size), dtype, rng, device)
        slots = [
            Slot.make(kind, shape, dtype, rng, device) for shape in self._shapes for kind in KINDS
        ]
        expected = self._golden(target, exact, slots)
        chain_seed = int(torch.randint(2**62, (1,), generator=rng))
        keys = torch.zeros(NUM_KEYS, dtype=torch.int64)
        keys[0] = first_key(chain_seed)
        pairs = {"random numbers": normal, "exact numbers": exact.pair}
        state = State(
            operands={kind: Operands.make(pair, weights, device) for kind, pair in pairs.items()},
            slots=slots,
            lanes=[
                Lane.make(num_sets * self.pattern_parts * window, self.size, expected, device)
                for _ in range(self.lanes)
            ],
            num_sets=num_sets,
            free_bytes=free,
            total_bytes=total,
            chain=Chain.make(self.chain_size, self.dtype, chain_seed, device),
            key=keys[:1].to(device),
            keys=keys.to(device),
            signs=torch.randint(0, 2, (self.size,), generator=rng).double() * 2 - 1,
            rows=torch.randperm(self.size // 4, generator=rng)[: self.num_checked_rows],
            draw=chain_seed,
        )
        self._size_steps(target, state)
        return state

    def _normal(self, rng: torch.Generator) -> torch.Tensor:
        return torch.randn((self.size, self.size), generator=rng).to(FLOATS[self.dtype])

    def _exact(self, rng: torch.Generator) -> ExactPair:
        dtype = FLOATS[self.dtype]
        magnitude = largest_magnitude(dtype, self.size)
        return ExactPair.draw(self.size, magnitude, dtype, rng)

    def _golden(self, target: Target, exact: ExactPair, slots: Sequence[Slot]) -> torch.Tensor:
        """Digests (products, 2) of the exact products, which the host makes once per run."""

        def make(path: Path) -> None:
            digest = [
                mismatches.host_digest(exact.product(slot.m, slot.n, slot.k), slot.weights)
                for slot in slots
                if slot.kind == "exact numbers"
            ]
            np.save(path, torch.stack(digest).numpy())

        golden = torch.from_numpy(np.load(target.artifacts.once("golden_digests.npy", make)))
        expected = torch.zeros(len(slots), digests.NUM_DIGESTS, dtype=torch.int64)
        expected[KINDS.index("exact numbers") :: len(KINDS)] = golden
        return expected

    def _size_steps(self, target: Target, state: State) -> None:
        """Find how long products take, and from it the rounds of a step and the steps of a phase.

        Without a clock a step is one round and a phase one step.
        """
        state.hot_rounds = 1 if self.by_device else self.rounds
        if target.seconds is not None:
            seconds = max(1e-6, target.seconds(lambda: self._products_of_a_round(state)))
            for lane in state.lanes:
                lane.pool.zero_()  # what the trial left there must not pass for a product
            if self.by_device:
                state.hot_rounds = max(1, round(STEP_SECONDS / seconds))
            step = state.hot_rounds * seconds
            state.phase_steps = max(1, round(self.phase_seconds / step))
            state.product_seconds = seconds / len(state.slots)
        for lane in state.lanes:
            lane.give_rounds(state.hot_rounds)

    def _products_of_a_round(self, state: State) -> None:
        def products(number: int, meet: Callable[[], object]) -> None:
            del meet
            places = self._places(state, state.lanes[number], 0)
            for slot, out in zip(state.slots, places, strict=True):
                self.multiply(*state.operands[slot.kind].corner(slot.m, slot.n, slot.k), out)

        in_lanes(state.lanes, products)

    # -------------------------------------------------------------- a step

    def extra_steps(self, state: State, num_steps: int) -> int:
        return EXTENSION * num_steps if int(state.wrong.sum()) > 0 else 0

    def step(self, state: State) -> Output:
        self._look_back(state)
        place = (state.num_steps + 1) % NUM_KEYS
        link, state.key = state.chain.link(state.key)
        state.keys[place : place + 1] = state.key
        phase = PHASES[state.num_steps // state.phase_steps % len(PHASES)]
        pace = self._pace(state, phase)
        state.phases[phase] += pace.rounds * len(state.lanes)

        def run(number: int, meet: Callable[[], object]) -> list[torch.Tensor]:
            return self._rounds(state, state.lanes[number], pace, meet)

        made = in_lanes(state.lanes, run)
        state.num_steps += 1
        return Output(
            products=[product for products in made for product in products],
            digests=torch.cat([lane.ring[pace.rounds - 1] for lane in state.lanes]),
            link=link,
            key=state.key,
        )

    def _pace(self, state: State, phase: str) -> Pace:
        """How a step loads the device; the launch's first step is one hot round, soon proven."""
        rounds = state.hot_rounds if state.num_steps else 1
        seconds = state.product_seconds
        if phase == "hot" or not seconds:
            return Pace(rounds=rounds)
        is_free = self.by_device  # to make fewer rounds where the device is to rest
        is_waited_for = state.key.device.type == "cpu"  # launching a product waits for it
        if phase == "cool":
            count = len(state.slots)
            idle = seconds * count * (COOL - 1 if is_waited_for else COOL)
            return Pace(
                rounds=max(1, rounds // COOL) if is_free else rounds, burst=count, pause=idle
            )
        period = max(2 * seconds, PERIODS[state.num_steps % len(PERIODS)])
        return Pace(
            rounds=max(1, rounds // 2) if is_free else rounds,
            burst=max(1, round(period / 2 / seconds)),
            pause=period / 2 if is_waited_for else period,
        )

    def _rounds(
        self, state: State, lane: Lane, pace: Pace, meet: Callable[[], object]
    ) -> list[torch.Tensor]:
        """The rounds of a step in one lane; what the last of them made."""
        lane.begin_step()
        outs: list[torch.Tensor] = []
        for number in range(pace.rounds):
            self._read_back(state, lane)
            outs = self._places(state, lane, lane.num_rounds)
            for index, slot in self._ordered(state, lane.num_rounds):
                lane.paced(pace, meet)
                left, right = state.operands[slot.kind].corner(slot.m, slot.n, slot.k)
                self.multiply(left, right, outs[index])
                with lane.streams.digests():
                    digests.digest_into(
                        outs[index], slot.weights, lane.ring[number, index], lane.scratch
                    )
            lane.num_rounds += 1
            lane.streams.let_products_wait()
            self._write_pattern(state, lane)
        lane.end_step([i for i, slot in enumerate(state.slots) if slot.kind == "random numbers"])
        return outs

    def multiply(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """One product, written where it is wanted."""
        torch.mm(left, right, out=out)

    def _ordered(self, state: State, number: int) -> list[tuple[int, Slot]]:
        """The products in the order of this pass, which moves on with every pass of the pool."""
        slots = list(enumerate(state.slots))
        first = number // state.num_sets % len(slots)
        return slots[first:] + slots[:first]

    def _places(self, state: State, lane: Lane, number: int) -> list[torch.Tensor]:
        """Where round `number` of a lane puts each product, in the order of the slots."""
        ordered = self._ordered(state, number)
        sizes = [self._words(slot.m, slot.n) for _, slot in ordered]
        begin = number % state.num_sets * (len(lane.pool) // state.num_sets)
        starts = accumulate([begin, *sizes[:-1]])
        by_index = {
            index: lane.pool[start : start + size]
            .view(FLOATS[self.dtype])[: slot.m * slot.n]
            .view(slot.m, slot.n)
            for (index, slot), start, size in zip(ordered, starts, sizes, strict=True)
        }
        return [by_index[index] for index in range(len(by_index))]

    # -------------------------------------------------------------- memory patterns

    def _write_pattern(self, state: State, lane: Lane) -> None:
        """Fill a part of the set in which the next round works."""
        size = len(lane.pool) // (state.num_sets * self.pattern_parts)
        visit = lane.num_windows // state.num_sets
        part = visit % self.pattern_parts
        pattern = PATTERNS[visit // self.pattern_parts % len(PATTERNS)]
        place = lane.num_rounds % state.num_sets * self.pattern_parts + part
        lane.window = Window(pattern=pattern, start=place * size, stop=(place + 1) * size)
        memory_patterns.write(
            pattern, lane.pool[lane.window.start : lane.window.stop], lane.window.start
        )

    def _read_back(self, state: State, lane: Lane) -> None:
        del state
        if lane.window is None:
            return
        window = lane.window
        memory = lane.pool[window.start : window.stop]
        mismatch = memory_patterns.read_back(window.pattern, memory, window.start)
        mismatches.keep_first(mismatch, window.pattern, lane.wrong[-1], lane.first_bad_word)
        lane.num_windows += 1

    # -------------------------------------------------------------- mismatches

    def _look_back(self, state: State) -> None:
        """Look at the mismatches of the step before; the worker has waited for the device."""
        counts = [lane.wrong_on_host.tolist() for lane in state.lanes]
        if counts != [lane.seen for lane in state.lanes]:
            state.events += self._investigated(state, counts)
            for lane, seen in zip(state.lanes, counts, strict=True):
                lane.seen = seen

    def _investigated(self, state: State, counts: Sequence[Sequence[int]]) -> list[Event]:
        """The mismatches that are new in `counts`, each with its repeats; state stays as it is."""
        new = [
            (number, index)
            for number, lane in enumerate(state.lanes)
            for index, (now, seen) in enumerate(zip(counts[number], lane.seen, strict=True))
            if now > seen
        ]
        room = max(0, MOST_EVENTS - len(state.events))
        return [self._look_at(state, number, index) for number, index in new[:room]]

    def _look_at(self, state: State, number: int, index: int) -> Event:
        """Look at a mismatch in the lane that saw it, whose products have one order of sums."""

        def look(other: int, meet: Callable[[], object]) -> Event | None:
            del meet
            lane = state.lanes[other]
            if other != number:
                return None
            if index == len(state.slots):
                address, word, pattern = lane.first_bad_word.tolist()
                return mismatches.investigate_word(lane.pool, address, word, PATTERNS[pattern])
            slot = state.slots[index]
            product = self._product_of(state, lane, index)
            operands = state.operands[slot.kind]
            return slot.investigate(operands, self.multiply, product, lane.expected[index])

        event = in_lanes(state.lanes, look)[number]
        assert event is not None  # noqa: S101 - the lane that was asked for answers
        return event

    def _product_of(self, state: State, lane: Lane, index: int) -> torch.Tensor | None:
        """The wrong product, while no later round has written over it."""
        rounds = lane.rounds_apart(index)
        if not rounds or lane.num_rounds - rounds[-1] >= state.num_sets:
            return None
        return self._places(state, lane, rounds[-1])[index]

    # -------------------------------------------------------------- checks

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        del before
        yield self._check_host_digests(state, output)
        yield from self._check_random(state, output)
        counts = [lane.wrong.tolist() for lane in state.lanes]
        links, num_links = self._wrong_links(state)
        unhealthy = [
            Event(where=f"{one} of {kind}", num_again=REPEATS)
            for kind, operands in state.operands.items()
            for one in operands.unhealthy()
        ]
        events = [*state.events, *self._investigated(state, counts), *links, *unhealthy]
        total = sum(map(sum, counts)) + len(links) + len(unhealthy)
        is_lasting = total > 1 or any(event.num_again for event in events)
        yield Check(
            name="mismatches, repeated or lasting",
            error=total if is_lasting else 0,
            bound=0,
            kind="exact",
            detects=1,
            detects_what=self._covered(state, total, events, num_links),
        )
        yield Check(
            name="a single mismatch that never came again",
            error=0 if is_lasting else total,
            bound=0,
            kind="exact",
            if_outside="inconclusive",
            detects=1,
            detects_what=f"mismatch that is gone in {REPEATS} repeats of the same operands",
        )

    def _check_host_digests(self, state: State, output: Output) -> Check:
        """Products and link as the host reads them, against what the device says of them."""
        wrong = sum(
            not torch.equal(mismatches.host_digest(product, slot.weights), digest.cpu())
            for slot, product, digest in zip(
                state.slots * self.lanes, output.products, output.digests, strict=True
            )
        )
        key = state.chain.on_host().next_key(output.link.cpu())
        now = state.keys[state.num_steps % NUM_KEYS].cpu()
        wrong += not (int(key) == int(output.key) == int(now))
        return Check(
            name="the device's digests, recomputed by the host",
            error=wrong,
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong elements in {len(output.products) + 1} products of the last round",
        )

    def _check_random(self, state: State, output: Output) -> Iterator[Check]:
        """Float64 for the products of random numbers, which no golden digest exists for.

        One whose digest is not the first round's has been counted as a mismatch.
        """
        left, right = map(on_host, state.operands["random numbers"].pair)
        sampled, projected = [], []
        expected = torch.cat([lane.expected for lane in state.lanes])
        for slot, product, digest, first in zip(
            state.slots * self.lanes, output.products, output.digests, expected, strict=True
        ):
            is_as_first = torch.equal(digest, first)
            if slot.kind != "random numbers" or not is_as_first:
                continue
            one, two = left[: slot.m, : slot.k], right[: slot.k, : slot.n]
            measured = on_host(product)
            rows, signs = state.rows[state.rows < slot.m], state.signs[: slot.n]
            exact = one[rows] @ two
            bound = self._rounding(slot.k)
            sampled.append((measured[rows] - exact).norm() / exact.norm() / bound)
            residual = (measured @ signs - one @ (two @ signs)).abs() / measured.norm(dim=1)
            projected.append(residual.max() / (PROJECTION * bound))
        limit = self._rounding(len(state.signs))
        yield Check(
            name="random numbers, sampled rows against float64",
            error=_largest(sampled) * limit,
            bound=limit,
            detects=limit,
            detects_what=f"relative error over {len(state.rows)} rows of a product",
        )
        yield Check(
            name="random numbers, all rows, random projection",
            error=_largest(projected) * PROJECTION * limit,
            bound=PROJECTION * limit,
            detects=2 * PROJECTION * limit * len(state.signs) ** 0.5,
            detects_what="error of one element anywhere, over the mean size of its row's elements",
        )

    def _rounding(self, inner: int) -> float:
        """Relative error that is allowed of a row, as the workload gemm derives it."""
        dtype = FLOATS[self.dtype]
        if dtype in ACCUMULATED:
            return ACCUMULATED[dtype] * max(1.0, inner / 4096)
        return STORED_ROUNDING * unit_roundoff(dtype)

    def _wrong_links(self, state: State) -> tuple[list[Event], int]:
        """Links that the host finds wrong among those that it recomputes, and how many those are.

        The last one and some of those before, drawn; each is made again on the device.
        """
        last = state.num_steps - 1
        first = max(0, state.num_steps - NUM_KEYS + 1)
        rng = torch.Generator().manual_seed(state.draw + state.num_steps)
        drawn = torch.randint(first, last + 1, (self.num_checked_links - 1,), generator=rng)
        chosen = sorted({last, *drawn.tolist()})
        host, keys = state.chain.on_host(), state.keys.tolist()
        events = []
        for link in chosen:
            key, computed = keys[link % NUM_KEYS], keys[(link + 1) % NUM_KEYS]
            exact = host.exact_link(key)[1]
            if exact == computed:
                continue
            start = torch.tensor([key], device=state.key.device)
            times = sum(int(state.chain.link(start)[1]) != exact for _ in range(REPEATS))
            where = f"link {link:,} of the chain, wrong again in {times} of {REPEATS} repeats"
            events.append(Event(where=where, num_again=times))
        return events, len(chosen)

    def _covered(self, state: State, total: int, events: Sequence[Event], num_links: int) -> str:
        """What was covered, as "heading: value" clauses that the report shows one by one."""
        num_rounds = sum(lane.num_rounds for lane in state.lanes)
        num_windows = sum(lane.num_windows for lane in state.lanes)
        num_products = num_rounds * len(state.slots)
        size = state.pool_words * WORD
        windows = len(state.lanes) * state.num_sets * self.pattern_parts
        once = _percent(num_windows, windows)
        full = _percent(num_windows, windows * len(PATTERNS))
        window_bytes = size // windows * num_windows
        locations = [event.where for event in events]
        rest = total - len(locations)
        if rest > 0 and locations:
            locations.append(f"{rest:,} more")
        places = " | ".join(locations) if locations else "none"
        clauses = {
            "digested blocks": f"{num_products:,} products in {num_rounds:,} rounds, "
            f"{len(state.slots) // len(KINDS)} shapes of at most {len(state.signs):,}, every round",
            "references": f"{num_products // 2:,} products held to the host's exact ones, "
            f"{num_products // 2:,} to the first round's, which float64 confirmed",
            "in flight": f"{len(state.lanes)} products at once, each digested "
            f"{_WAYS[state.slots[0].weights.way]}",
            "number format": self.dtype,
            "chained blocks": f"{state.num_steps:,} links, {num_links} recomputed by the host",
            "memory under test": f"{size:,} bytes, {_percent(size, state.free_bytes)} of what was "
            f"free, {_percent(size, state.total_bytes)} of all",
            "memory patterns": f"{num_windows:,} windows read back, {window_bytes:,} bytes, "
            f"{once} of the memory under test by one pattern at least, "
            f"{full} by all {len(PATTERNS)}",
            "phases": ", ".join(f"{name} {count:,} rounds" for name, count in state.phases.items()),
            "mismatches": f"{total:,}" if not total else f"{total:,}: {places}",
        }
        listed = "; ".join(f"{name}: {value.replace(';', ',')}" for name, value in clauses.items())
        return f"wrong element or word; {listed}"


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes of the device's memory that are free, and all; what its allocator holds is free."""
    module = torch.get_device_module(device.type)
    if not hasattr(module, "mem_get_info"):
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    free, total = module.mem_get_info(device)
    reserve = module.memory_reserved(device) - module.memory_allocated(device)
    return free + reserve, total


def _largest(errors: Sequence[torch.Tensor]) -> float:
    """The largest of the errors; NaN if there is one, which Python's max would hide."""
    return torch.stack(list(errors)).max().item() if errors else 0.0


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that what is not quite covered never reads as covered."""
    tenths = min(1000, 1000 * part // whole)
    return f"{tenths // 10}.{tenths % 10} %"


WORKLOAD = BurnIn
