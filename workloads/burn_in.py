"""Burn-in: sustained products in most of the memory, every one of them digested on the device.

A step is `rounds` rounds. A round reads back a memory pattern, multiplies matrices of six shapes,
each of random mantissas and of integers in turn, writes a pattern where the next round will
work, and makes one link of a chain of products, each with inputs that derive from the digest of
the one before. Results go over the whole pool of memory, a set further in each round, and lie
elsewhere in their set at each pass, so what an earlier round left there is never right.

Every product is digested where it lies, in every round (`parts.digests`); a mismatch is counted
and its first wrong row kept, without waiting for the device. Integers are held to the host's
exact product; random ones to the first round's, which is itself held to float64. In turn by steps
the device is hot (products back to back), cool (waiting before each), and loaded in jumps: it
waits on additions of one number, each of which needs the one before, so that almost all of it
idles. The work of a step is the same in all phases.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from workloads.parts.memory.memory_patterns import PATTERNS
from workloads.parts.memory.mismatches import REPEATS, Event, Operands, Slot
from workloads.parts.numerics.parameters import require_choice, require_positive, require_share
from workloads.parts.numerics.precision import on_host, unit_roundoff

PHASES = ("hot", "hot", "hot", "cool", "hot", "hot", "hot", "load in jumps")
KINDS = ("random numbers", "integers")
MOST_EVENTS = 8
"""Mismatches that are looked at; all are counted."""
NUM_KEYS = 4096
STORED_ROUNDING = 0.6  # of the unit roundoff; 0.42 is earned
ACCUMULATED = {torch.float32: 1e-5}  # per 4096 of the inner dimension
PROJECTION = 6.0  # a projected row errs by a normal deviate of the row's rounding
ALIGNED = 64  # words of 8 bytes
WORD = 8
SMALLEST = 16
EXTENSION = 3
"""Times the length of a block that is added to it where a mismatch was seen."""
JUMP = 4  # products between two waits, where load comes in jumps


@dataclass(frozen=True, kw_only=True)
class Window:
    """A stretch of the pool that holds a pattern."""

    pattern: str
    start: int
    stop: int


@dataclass(kw_only=True)
class State:
    """Operands, memory and counts.

    `wrong` counts, on the device, the rounds in which each product was wrong, and last the
    windows of memory that were; `mailbox` is its copy on the host, there when the device is done;
    `seen` what of it has been looked at.
    """

    operands: Mapping[str, Operands]
    slots: list[Slot]
    pool: torch.Tensor
    num_sets: int
    free_bytes: int
    total_bytes: int
    chain: Chain
    key: torch.Tensor
    keys: torch.Tensor
    wrong: torch.Tensor
    mailbox: torch.Tensor
    first_bad_word: torch.Tensor
    idle: torch.Tensor
    signs: torch.Tensor
    rows: torch.Tensor
    draw: int
    seen: list[int]
    events: list[Event] = field(default_factory=list)
    window: Window | None = None
    num_steps: int = 0
    num_rounds: int = 0
    num_windows: int = 0
    phases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))


@dataclass(kw_only=True)
class Output:
    """What the last round of a step made: products, their digests, the chain's link and key."""

    products: list[torch.Tensor]
    digests: torch.Tensor
    link: torch.Tensor
    key: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class BurnIn(Workload[State, Output]):
    """`size`: side of the largest product; `chain_size`: of the chain's.

    `memory_fraction` of the free memory is used, `memory_bytes` at most. `rounds`: in a step;
    `phase_steps`: steps of a phase; `idle_length`: additions of one wait; `pattern_parts`: rounds
    in which the patterns pass one set, so that a round spends little on them.
    """

    summary: ClassVar[str] = "Burn-in: products in most of the memory, every one digested"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "burn-in"
    small: ClassVar[Parameters] = {
        "size": 128,
        "chain_size": 32,
        "memory_bytes": 64 * 2**20,
        "phase_steps": 2,
        "idle_length": 20,
    }
    data_pattern: ClassVar[str] = "standard normal numbers and integers in turn"

    size: int = 8192
    chain_size: int = 1024
    dtype: str = "bfloat16"
    memory_fraction: float = 0.9
    memory_bytes: int = 2**42
    rounds: int = 1
    phase_steps: int = 1000
    idle_length: int = 2000
    pattern_parts: int = 4
    num_checked_rows: int = 16
    num_checked_links: int = 4

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("size", "chain_size", "memory_bytes", "rounds", "phase_steps", "idle_length"),
            *("pattern_parts", "num_checked_rows", "num_checked_links"),
        )
        require_choice("dtype", self.dtype, [name for name in FLOATS if name != "float64"])
        require_share("memory_fraction", self.memory_fraction)
        if self.size < SMALLEST or self.size % SMALLEST:
            raise ParameterError(f"size is {self.size}: give a multiple of {SMALLEST}")
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
        """Number of sets and words of a window that this many bytes hold beside the operands.

        Raises ParameterError where there is no room for two sets.
        """
        item = FLOATS[self.dtype].itemsize
        fixed = 5 * self.size**2 * item + 64 * self.chain_size**2
        words = (budget - min(2**27, budget // 8) - fixed) // WORD
        num_sets = words // (self._set_words + self.pattern_parts)
        if num_sets < 2:  # noqa: PLR2004 - one to work in while the other holds a pattern
            least = (fixed + 2 * WORD * (self._set_words + self.pattern_parts)) * 8 // 7 + 2**10
            raise ParameterError(
                f"{budget:,} bytes of memory are too few for size {self.size}: "
                f"give {least:,}, or a smaller size"
            )
        return num_sets, words // (num_sets * self.pattern_parts)

    def work(self) -> Work:
        products = sum(2 * m * n * k for m, n, k in self._shapes) * len(KINDS)
        return Work(
            units=self.rounds * (len(KINDS) * len(self._shapes) + 1),
            unit="products",
            flops=self.rounds * (products + 2 * self.chain_size**3),
            precision=self.dtype,
        )

    # -------------------------------------------------------------- build

    def build(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        device, dtype = target.device, FLOATS[self.dtype]
        free, total = _memory(device)
        num_sets, window = self._room(min(self.memory_bytes, int(self.memory_fraction * free)))
        host = self._operands(rng)
        weights = digests.make_weights((self.size, self.size), dtype, rng, device)
        slots = [
            Slot.make(kind, shape, dtype, rng, device) for shape in self._shapes for kind in KINDS
        ]
        self._set_golden(target, host["integers"], slots)
        chain_seed = int(torch.randint(2**62, (1,), generator=rng))
        keys = torch.zeros(NUM_KEYS, dtype=torch.int64)
        keys[0] = first_key(chain_seed)
        return State(
            operands={kind: Operands.make(pair, weights, device) for kind, pair in host.items()},
            slots=slots,
            pool=torch.zeros(
                num_sets * self.pattern_parts * window, dtype=torch.int64, device=device
            ),
            num_sets=num_sets,
            free_bytes=free,
            total_bytes=total,
            chain=Chain.make(self.chain_size, self.dtype, chain_seed, device),
            key=keys[:1].to(device),
            keys=keys.to(device),
            wrong=torch.zeros(len(slots) + 1, dtype=torch.int64, device=device),
            mailbox=torch.zeros(len(slots) + 1, dtype=torch.int64, pin_memory=device.type != "cpu"),
            first_bad_word=torch.zeros(3, dtype=torch.int64, device=device),
            idle=torch.zeros(1, device=device),
            signs=torch.randint(0, 2, (self.size,), generator=rng).double() * 2 - 1,
            rows=torch.randperm(self.size // 4, generator=rng)[: self.num_checked_rows],
            draw=chain_seed,
            seen=[0] * (len(slots) + 1),
        )

    def _operands(self, rng: torch.Generator) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """One pair of each kind, on the host; every shape takes its upper left corner."""
        dtype, shape = FLOATS[self.dtype], (self.size, self.size)
        magnitude = largest_magnitude(dtype, self.size)

        def normal() -> torch.Tensor:
            return torch.randn(shape, generator=rng).to(dtype)

        def integers() -> torch.Tensor:
            drawn = torch.randint(
                -magnitude, magnitude + 1, shape, generator=rng, dtype=torch.int32
            )
            return drawn.to(dtype)

        return {"random numbers": (normal(), normal()), "integers": (integers(), integers())}

    def _set_golden(
        self, target: Target, pair: tuple[torch.Tensor, torch.Tensor], slots: Sequence[Slot]
    ) -> None:
        """Row checksums of the exact products, which the host makes once per run."""
        golden = [slot for slot in slots if slot.kind == "integers"]

        def make(path: Path) -> None:
            left, right = map(on_host, pair)
            sums = [
                digests.row_checksums(
                    (left[: slot.m, : slot.k] @ right[: slot.k, : slot.n]).to(FLOATS[self.dtype]),
                    digests.on_host(slot.weights),
                )
                for slot in golden
            ]
            np.save(path, torch.cat(sums).numpy())

        checksums = torch.from_numpy(np.load(target.artifacts.once("golden_checksums.npy", make)))
        for slot, sums in zip(
            golden, checksums.split_with_sizes([slot.m for slot in golden]), strict=True
        ):
            slot.expected.copy_(sums)

    # -------------------------------------------------------------- a step

    def extra_steps(self, state: State, num_steps: int) -> int:
        return EXTENSION * num_steps if int(state.wrong.sum()) > 0 else 0

    def step(self, state: State) -> Output:
        self._look_back(state)
        for _ in range(self.rounds):
            output = self._round(state)
        state.num_steps += 1
        state.mailbox.copy_(state.wrong, non_blocking=True)
        return output

    def _round(self, state: State) -> Output:
        """One round: pattern back, link, products and their digests, pattern out."""
        self._read_back(state)
        link, state.key = state.chain.link(state.key)
        place = (state.num_rounds + 1) % NUM_KEYS
        state.keys[place : place + 1] = state.key
        phase = PHASES[state.num_steps // self.phase_steps % len(PHASES)]
        state.phases[phase] += 1
        outs = self._places(state, state.num_rounds)
        digests = []
        for number, (index, slot) in enumerate(self._ordered(state, state.num_rounds)):
            if phase == "cool" or (phase == "load in jumps" and number % JUMP == 0):
                self._wait(state)
            left, right = state.operands[slot.kind].corner(slot.m, slot.n, slot.k)
            self.multiply(left, right, outs[index])
            is_first = state.num_rounds == 0 and slot.kind == "random numbers"
            digest = slot.compare(outs[index], state.wrong[index], is_first=is_first)
            digests.append((index, digest))
        state.num_rounds += 1
        self._write_pattern(state)
        return Output(
            products=outs,
            digests=torch.stack([pair for _, pair in sorted(digests, key=lambda one: one[0])]),
            link=link,
            key=state.key,
        )

    def multiply(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """One product, written where it is wanted."""
        torch.mm(left, right, out=out)

    def _wait(self, state: State) -> None:
        """Leave almost all of the device idle: each addition needs the one before."""
        for _ in range(self.idle_length):
            state.idle.add_(1.0)

    def _ordered(self, state: State, number: int) -> list[tuple[int, Slot]]:
        """The products in the order of this pass, which moves on with every pass of the pool."""
        slots = list(enumerate(state.slots))
        first = number // state.num_sets % len(slots)
        return slots[first:] + slots[:first]

    def _places(self, state: State, number: int) -> list[torch.Tensor]:
        """Where round `number` puts each product, in the order of the slots."""
        ordered = self._ordered(state, number)
        sizes = [self._words(slot.m, slot.n) for _, slot in ordered]
        begin = number % state.num_sets * (len(state.pool) // state.num_sets)
        starts = accumulate([begin, *sizes[:-1]])
        by_index = {
            index: state.pool[start : start + size]
            .view(FLOATS[self.dtype])[: slot.m * slot.n]
            .view(slot.m, slot.n)
            for (index, slot), start, size in zip(ordered, starts, sizes, strict=True)
        }
        return [by_index[index] for index in range(len(by_index))]

    # -------------------------------------------------------------- memory patterns

    def _write_pattern(self, state: State) -> None:
        """Fill a part of the set in which the next round works."""
        size = len(state.pool) // (state.num_sets * self.pattern_parts)
        visit = state.num_windows // state.num_sets
        part = visit % self.pattern_parts
        pattern = PATTERNS[visit // self.pattern_parts % len(PATTERNS)]
        place = state.num_rounds % state.num_sets * self.pattern_parts + part
        state.window = Window(pattern=pattern, start=place * size, stop=(place + 1) * size)
        memory_patterns.write(
            pattern, state.pool[state.window.start : state.window.stop], state.window.start
        )

    def _read_back(self, state: State) -> None:
        if state.window is None:
            return
        window = state.window
        memory = state.pool[window.start : window.stop]
        mismatch = memory_patterns.read_back(window.pattern, memory, window.start)
        mismatches.keep_first(mismatch, window.pattern, state.wrong[-1], state.first_bad_word)
        state.num_windows += 1

    # -------------------------------------------------------------- mismatches

    def _look_back(self, state: State) -> None:
        """Look at the mismatches of the step before; the worker has waited for the device."""
        counts = state.mailbox.tolist()
        if counts != state.seen:
            state.events += self._investigated(state, counts)
            state.seen = counts

    def _investigated(self, state: State, counts: Sequence[int]) -> list[Event]:
        """The mismatches that are new in `counts`, each with its repeats; state stays as it is."""
        new = [
            i for i, (now, seen) in enumerate(zip(counts, state.seen, strict=True)) if now > seen
        ]
        room = max(0, MOST_EVENTS - len(state.events))
        return [self._look_at(state, index) for index in new[:room]]

    def _look_at(self, state: State, index: int) -> Event:
        if index == len(state.slots):
            address, word, pattern = state.first_bad_word.tolist()
            return mismatches.investigate_word(state.pool, address, word, PATTERNS[pattern])
        slot = state.slots[index]
        product = self._places(state, state.num_rounds - 1)[index]
        return slot.investigate(state.operands[slot.kind], self.multiply, product)

    # -------------------------------------------------------------- checks

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        del before
        yield self._check_host_digests(state, output)
        yield from self._check_random(state, output)
        counts = state.wrong.tolist()
        links, num_links = self._wrong_links(state)
        unhealthy = [
            Event(where=f"{one} of {kind}", num_again=REPEATS)
            for kind, operands in state.operands.items()
            for one in operands.unhealthy()
        ]
        events = [*state.events, *self._investigated(state, counts), *links, *unhealthy]
        total = sum(counts) + len(links) + len(unhealthy)
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
                state.slots, output.products, output.digests, strict=True
            )
        )
        key = state.chain.on_host().next_key(output.link.cpu())
        now = state.keys[state.num_rounds % NUM_KEYS].cpu()
        wrong += not (int(key) == int(output.key) == int(now))
        return Check(
            name="the device's digests, recomputed by the host",
            error=wrong,
            bound=0,
            kind="exact",
            detects=1,
            detects_what=f"wrong elements in {len(state.slots) + 1} products of the last round",
        )

    def _check_random(self, state: State, output: Output) -> Iterator[Check]:
        """Float64 for the products of random numbers, which no golden digest exists for.

        One whose digest is not the first round's has been counted as a mismatch.
        """
        left, right = map(on_host, state.operands["random numbers"].pair)
        sampled, projected = [], []
        for slot, product, digest in zip(state.slots, output.products, output.digests, strict=True):
            is_as_first = torch.equal(digest, slot.expected_digest)
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
        limit = self._rounding(self.size)
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
            detects=2 * PROJECTION * limit * self.size**0.5,
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
        last = state.num_rounds - 1
        first = max(0, state.num_rounds - NUM_KEYS + 1)
        rng = torch.Generator().manual_seed(state.draw + state.num_rounds)
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
        num_products = state.num_rounds * len(state.slots)
        size = len(state.pool) * WORD
        windows = state.num_sets * self.pattern_parts
        once = _percent(state.num_windows, windows)
        full = _percent(state.num_windows, windows * len(PATTERNS))
        locations = [event.where for event in events]
        rest = total - len(locations)
        if rest > 0 and locations:
            locations.append(f"{rest:,} more")
        places = " | ".join(locations) if locations else "none"
        clauses = {
            "digested blocks": f"{num_products:,} products in {state.num_rounds:,} rounds, "
            f"{len(self._shapes)} shapes, every round",
            "chained blocks": f"{state.num_rounds:,} links, {num_links} recomputed by the host",
            "memory under test": f"{size:,} bytes, {_percent(size, state.free_bytes)} of what was "
            f"free, {_percent(size, state.total_bytes)} of all",
            "memory patterns": f"{state.num_windows:,} windows read back, {once} of the memory "
            f"under test by one pattern at least, {full} by all {len(PATTERNS)}",
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
