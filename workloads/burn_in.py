"""Burn-in: sustained products in most of the memory, every one of them digested on the device.

A step is so many rounds in each of `lanes` lanes, which work at the same time, each from a thread
of its own with memory of its own (`parts.burning.lanes`). Steps take the number formats that the
device has in turn (`parts.burning.formats`). A round multiplies matrices of six shapes, each of
random numbers and of exact ones in turn; each step begins with a test of a part of the memory, or
of all of it (`parts.memory.memory_tests`), and makes one link of a chain of products, whose
inputs derive from the digest of the one before. Results go over the whole pool of memory, a set
further in each round, and lie elsewhere in their set at each pass, so what an earlier round left
there is never right. One shape of six, 8 % of the operations, is odd; the others fit tiles.

Exact operands are integers whose every partial sum fits the accumulator, their rows and columns
scaled by powers of two, so that mantissas and exponents vary and every order of sums gives the
same bits. Their rows and columns recur, drawn and scaled anew, so that the host makes the right
product within seconds. Random ones have random mantissas and draw what real work draws.

Every product is digested where it lies, in every round (`parts.memory.digests`), by at most three
kernels that read it once; a step's digests are compared together, without waiting for the
device. Exact products are held to the host's; random ones to the first round's of their format,
which is itself held to float64. In turn, for `phase_seconds` each, the device is hot (products back
to back), cool (a quarter of the time; memory is tested over pauses), and loaded in jumps with
periods from 1 ms to 10 s. A step takes about a second where the device sizes it, so that nothing
waits for the device more often.

What became of a mismatch is looked at after the step: where it is, whether the operands still
have their digests, and whether it comes again in a hundred repeats. A block that has seen one is
made four times as long, as far as the launch's time limit allows. Two or more, or one that
comes again, fail; a single one that never did is for the buyer to decide. The checks say what
was covered. They catch one flipped bit in any product of any round, a wrong word of memory, a
product in another precision or left unwritten, a first product that is consistently wrong, and a
link of the chain that was skipped.

`stress` loads the host beside it, from the second step on: a process for each kind moves and
compares bytes of its own (`parts.stress`), and has checks of its own of the last output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from appliance.planning.launch_constants import HOT, PLAIN, PROVEN
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from appliance.stress import kinds
from appliance.stress.aggregates import LASTING, SINGLE
from workloads.contract.failures import ParameterError
from workloads.contract.hooks import LoadPhase
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.burning import coverage, mismatches, sizing
from workloads.parts.burning.exact_pair import ExactPair
from workloads.parts.burning.formats import MULTIPLE, Format, chosen, parsed, switched
from workloads.parts.burning.lanes import Lane, Pace, in_lanes
from workloads.parts.burning.mismatches import REPEATS, Event, Operands, Slot
from workloads.parts.burning.references import NUM_KEYS, PROJECTION, Float64, largest, wrong_links
from workloads.parts.burning.state import (
    KINDS,
    Burnt,
    Rotation,
    State,
    Visit,
    shapes_of,
)
from workloads.parts.memory import digests, memory_tests
from workloads.parts.memory.chain import Chain, first_key
from workloads.parts.memory.memory_tests import Memory, Patterns
from workloads.parts.numerics.parameters import require_positive, require_share
from workloads.parts.stress import requests
from workloads.parts.stress.stressors import Stress

PERIODS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""Seconds of a jump, half of them loaded; each step of a phase of jumps takes the next."""
COOL = 4
"""A cool phase works this part of the time."""
STEP_SECONDS = 1.0
FEWEST_TRIAL_ROUNDS = 4
"""Of a step of the plain loop, and of the proven one: the last of them is proven in both."""
MEMORY_SHARE = 0.1
"""Of a step's time, what a test of a part of the memory takes where the device sizes it."""
MOST_PARTS = 1024
MOST_EVENTS = 8
"""Mismatches that are looked at; all are counted."""
SMALLEST = 16
SIZES = {
    "accelerators": {"size": 8192, "chain_size": 1024},
    "processors": {"size": 1024, "chain_size": 256},
}
"""Sides that suit the device."""
EXTENSION = 3
"""Times the length of a block that is added to it where a mismatch was seen."""
TRIAL_WORDS = 2**24
"""Words of 8 bytes of each lane over which the rate of memory is tried."""
TRIAL_TEST = "checkerboard"


@dataclass(kw_only=True)
class Output:
    """What the last round of a step made in every lane: products, their digests, link and key.

    `number` is that of the format.
    """

    number: int
    products: list[torch.Tensor]
    digests: torch.Tensor
    link: torch.Tensor
    key: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class BurnIn(Workload[State, Output]):
    """`size`: side of the largest product; `chain_size`: of the chain's.

    `by_device` takes sides that suit the device and as many rounds as take a second, in place of
    `size`, `chain_size` and `rounds` (of every lane in a step), and parts of memory that are tested
    in a tenth of that, in place of `memory_parts`.

    `formats`: number formats in turn, by name and separated by commas, or "all" that the device
    has. `memory_fraction` of the free memory is used, `memory_bytes` at most, shared by `lanes`; on
    processors, whose memory is everybody's, half of what is free or of the control group's limit.
    `stress`: kinds of stress beside the products, by name and separated by commas, or "all";
    `stress_launches`: launches on the node at once, which share its memory, cores and disk.
    `phase_seconds`: length of a phase; `memory_parts`: parts of the memory that are tested one by
    one, a test a step.
    """

    summary: ClassVar[str] = "Burn-in: products in most of the memory, every one digested"
    version: ClassVar[int] = 4
    domain: ClassVar[str] = "burn-in"
    dtype: ClassVar[str] = "bfloat16"  # of the first step, and of the chain
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
    formats: str = "all"
    memory_fraction: float = 0.97
    memory_bytes: int = 2**42
    lanes: int = 2
    rounds: int = 1
    phase_seconds: float = 60.0
    memory_parts: int = 4
    num_checked_rows: int = 16
    num_checked_links: int = 4
    stress: str = ""
    stress_launches: int = 1

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("size", "chain_size", "rounds", "lanes", "phase_seconds", "memory_bytes"),
            *("memory_parts", "num_checked_rows", "num_checked_links", "stress_launches"),
        )
        self._kinds()
        require_share("memory_fraction", self.memory_fraction)
        named = parsed(self.formats)
        multiple = MULTIPLE if any(one.by_columns for one in named) else SMALLEST
        if self.size < multiple or self.size % multiple:
            raise ParameterError(f"size is {self.size}: give a multiple of {multiple}")
        if not self.by_device:
            self._pool_words(named, self.memory_bytes)

    def _kinds(self) -> tuple[str, ...]:
        try:
            return kinds.loaded(self.stress, self.stress_launches)
        except ValueError as error:
            raise ParameterError(str(error)) from None

    def _pool_words(self, formats: Sequence[Format], budget: int) -> int:
        return sizing.pool_words(formats, self.size, self.chain_size, self.lanes, budget)

    def work(self) -> Work:
        """Of a step of given size; one that sizes itself counts steps."""
        if self.by_device:
            return Work()
        named = parsed(self.formats)
        shapes = shapes_of(named[0], self.size)
        products = sum(2 * m * n * k for m, n, k in shapes) * len(KINDS)
        rounds = self.rounds * self.lanes
        return Work(
            units=rounds * len(KINDS) * len(shapes) + 1,
            unit="products",
            flops=rounds * products + 2 * self.chain_size**3,
            precision=named[0].name if len(named) == 1 else "",
        )

    # -------------------------------------------------------------- build

    def build(self, target: Target, seed: int) -> State:
        kind = "processors" if target.device.type == "cpu" else "accelerators"
        sized = replace(self, **SIZES[kind]) if self.by_device else self  # type: ignore[arg-type]
        return sized._built(target, seed)  # noqa: SLF001 - of the same class

    def _built(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        device = target.device
        formats = chosen(self.formats, device, device.type)
        room = sizing.free_memory(device)
        named = self._kinds()
        asked = requests.of(named, target, seed, self.stress_launches, self.lanes)
        usable = room.usable(self.memory_fraction) - requests.device_bytes(named, device)
        budget = min(self.memory_bytes, usable)
        words = self._pool_words(formats, budget)
        made = [self._burnt(form, words, rng, device) for form in formats]
        expected = self._golden(target, made)
        chain_seed = int(torch.randint(2**62, (1,), generator=rng))
        keys = torch.zeros(NUM_KEYS, dtype=torch.int64)
        keys[0] = first_key(chain_seed)
        state = State(
            formats=[burnt for burnt, _ in made],
            lanes=[Lane.make(words, self.size, expected, device) for _ in range(self.lanes)],
            patterns=Patterns.make(device, seed),
            rotation=Rotation(words=words, parts=self.memory_parts),
            free_bytes=room.free,
            total_bytes=room.total,
            chain=Chain.make(self.chain_size, self.dtype, chain_seed, device),
            key=keys[:1].to(device),
            keys=keys.to(device),
            signs=torch.randint(0, 2, (self.size,), generator=rng).double() * 2 - 1,
            rows=torch.randperm(self.size // 4, generator=rng)[: self.num_checked_rows],
            draw=chain_seed,
            seed=seed,
            beside=Stress(requests=asked) if asked else None,
        )
        self._size_steps(target, state)
        return state

    def _burnt(
        self, form: Format, words: int, rng: torch.Generator, device: torch.device
    ) -> tuple[Burnt, ExactPair]:
        """One format, and its exact operands with what makes their products quickly."""
        exact = ExactPair.draw(self.size, form, rng)
        normal = (form.draw(self.size, rng), form.draw(self.size, rng))
        weights = mismatches.operand_weights(form, self.size, rng, device)
        pairs = {"random numbers": normal, "exact numbers": exact.pair}
        slots = [
            Slot.make(form, kind, shape, rng, device)
            for shape in shapes_of(form, self.size)
            for kind in KINDS
        ]
        burnt = Burnt(
            format=form,
            operands={
                kind: Operands.make(form, pair, weights, device) for kind, pair in pairs.items()
            },
            slots=slots,
            num_sets=sizing.num_sets(form, self.size, words),
        )
        return burnt, exact

    def _golden(
        self, target: Target, made: Sequence[tuple[Burnt, ExactPair]]
    ) -> list[torch.Tensor]:
        """Digests (products, 2) of each format's exact products, made by the host once per run."""

        def make(path: Path) -> None:
            every = [
                mismatches.host_digest(exact.product(slot.m, slot.n, slot.k), slot.weights)
                for burnt, exact in made
                for slot in burnt.slots
                if slot.kind == "exact numbers"
            ]
            with path.open("wb") as file:
                np.save(file, torch.stack(every).numpy())

        golden = torch.from_numpy(np.load(target.artifacts.once("golden_digests.npy", make)))
        expected = []
        for (burnt, _), own in zip(made, golden.chunk(len(made)), strict=True):
            digest = torch.zeros(len(burnt.slots), digests.NUM_DIGESTS, dtype=torch.int64)
            digest[burnt.of_kind("exact numbers")] = own
            expected.append(digest)
        return expected

    def _size_steps(self, target: Target, state: State) -> None:
        """Find how long products and tests of memory take, and from it steps, phases and parts.

        Without a clock a step is one round and a phase one step.
        """
        for burnt in state.formats:
            burnt.hot_rounds = 1 if self.by_device else self.rounds
        if target.seconds is not None:
            steps = [
                self._size_format(target, state, number) for number in range(len(state.formats))
            ]
            state.phase_steps = max(1, round(self.phase_seconds * len(steps) / sum(steps)))
            state.trial_steps = len(state.formats)
            self._size_memory(target, state)
        for lane in state.lanes:
            self._touched(state, lane).zero_()  # what a trial left must not pass for a product
            for burnt, tally in zip(state.formats, lane.tallies, strict=True):
                tally.give_rounds(max(FEWEST_TRIAL_ROUNDS, burnt.hot_rounds))

    def _touched(self, state: State, lane: Lane) -> torch.Tensor:
        """What trials write to, of a lane's memory."""
        sets = (len(lane.pool) // burnt.num_sets for burnt in state.formats)
        return lane.pool[: max(TRIAL_WORDS, *sets)]

    def _size_format(self, target: Target, state: State, number: int) -> float:
        """Give a format the rounds of a step, and return how long that is, in seconds."""
        assert target.seconds is not None  # noqa: S101 - asked by the caller
        burnt = state.formats[number]
        seconds = max(1e-6, target.seconds(lambda: self._products_of_a_round(state, burnt)))
        if self.by_device:
            burnt.hot_rounds = max(1, round(STEP_SECONDS / seconds))
        burnt.product_seconds = seconds / len(burnt.slots)
        return burnt.hot_rounds * seconds

    def _size_memory(self, target: Target, state: State) -> None:
        """Find the rate of memory, and parts that suit a step; begin with a test that is drawn.

        Segments of one burn-in have the same seed, so that each would begin with the same test.
        """
        assert target.seconds is not None  # noqa: S101 - asked by the caller
        words = min(TRIAL_WORDS, state.rotation.words)
        seconds = target.seconds(lambda: self._trial_of_memory(state, words))
        total = len(state.lanes) * words
        state.memory_rate = sizing.bytes_of(TRIAL_TEST, total) / max(1e-6, seconds)
        if self.by_device:
            words = max(1, int(MEMORY_SHARE * STEP_SECONDS * state.memory_rate / sizing.MEAN_BYTES))
            state.rotation.parts = min(MOST_PARTS, -(-state.pool_words // words))
        state.rotation.first = random.SystemRandom().randrange(2**31)

    def _trial_of_memory(self, state: State, words: int) -> None:
        def test(number: int, meet: Callable[[], object]) -> None:
            del meet
            memory = Memory(words=state.lanes[number].pool[:words])
            wrong = memory_tests.Wrong.make(state.device)
            memory_tests.run(TRIAL_TEST, memory, state.patterns, wrong)

        in_lanes(state.lanes, test)

    def _products_of_a_round(self, state: State, burnt: Burnt) -> None:
        def products(number: int, meet: Callable[[], object]) -> None:
            del meet
            places = burnt.places(state.lanes[number].pool, 0)
            for slot, out in zip(burnt.slots, places, strict=True):
                pair = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)
                self.multiply(burnt.format, *pair, out)

        with switched(burnt.format, state.device.type):
            in_lanes(state.lanes, products)

    # -------------------------------------------------------------- a step

    def extra_steps(self, state: State, num_steps: int) -> int:
        return EXTENSION * num_steps if state.num_wrong else 0

    def phase(self, state: State) -> LoadPhase:
        return LoadPhase(name=state.load, units=state.num_products, threads=torch.get_num_threads())

    def step(self, state: State) -> Output:
        self._look_back(state)
        if state.beside is not None and state.num_steps:  # no launch of one step needs it
            state.beside.begin()
        place = (state.num_steps + 1) % NUM_KEYS
        link, state.key = state.chain.link(state.key)
        state.keys[place : place + 1] = state.key
        number = state.num_steps % len(state.formats)
        burnt, phase = state.formats[number], state.phase
        pace = self._pace(state, burnt, phase)
        state.phases[phase] += pace.rounds * len(state.lanes)
        is_first = state.num_steps < len(state.formats)  # the first products are proven first
        is_trial = phase in (PLAIN, PROVEN)
        num_bare = pace.rounds - 1 if phase == PLAIN and not is_first else 0
        state.num_products += pace.rounds * len(state.lanes) * len(burnt.slots)
        state.num_bare += num_bare * len(state.lanes) * len(burnt.slots)
        has_no_visit = is_first or is_trial  # the two loops are to differ in digests alone
        visit = None if has_no_visit else state.rotation.next(is_cool=phase == "cool")

        def run(lane: int, meet: Callable[[], object]) -> list[torch.Tensor]:
            if visit is not None:  # lanes do not wait for each other's test
                self._test_memory(state, state.lanes[lane], visit)
            self._bare_rounds(burnt, state.lanes[lane], number, num_bare)
            proven = replace(pace, rounds=pace.rounds - num_bare)
            outs = self._rounds(state, state.lanes[lane], number, proven, meet)
            if lane == 0:
                with state.lanes[lane].streams.digests():
                    for operands in burnt.operands.values():
                        operands.read_again(state.lanes[lane].scratch)
            return outs

        with switched(burnt.format, state.device.type):
            made = in_lanes(state.lanes, run)
        state.num_steps += 1
        state.num_operand_readings += 2 * len(burnt.operands)
        last = pace.rounds - num_bare - 1
        return Output(
            number=number,
            products=[product for products in made for product in products],
            digests=torch.cat([lane.tallies[number].ring[last] for lane in state.lanes]),
            link=link,
            key=state.key,
        )

    def _pace(self, state: State, burnt: Burnt, phase: str) -> Pace:
        """How a step loads the device; a format's first step is one hot round, soon proven."""
        is_first = state.num_steps < len(state.formats)
        rounds = 1 if is_first else burnt.hot_rounds
        seconds = burnt.product_seconds
        if phase in (PLAIN, PROVEN) and not is_first:
            half = rounds // 2 if self.by_device else rounds
            return Pace(rounds=max(FEWEST_TRIAL_ROUNDS, half))
        if phase in (HOT, PLAIN, PROVEN) or not seconds:
            return Pace(rounds=rounds)
        is_free = self.by_device  # to make fewer rounds where the device is to rest
        is_waited_for = state.device.type == "cpu"  # launching a product waits for it
        if phase == "cool":
            count = len(burnt.slots)
            idle = seconds * count * (COOL - 1 if is_waited_for else COOL)
            return Pace(
                rounds=max(1, rounds // COOL) if is_free else rounds, burst=count, pause=idle
            )
        jumps = state.num_steps // len(state.formats)
        period = max(2 * seconds, PERIODS[jumps % len(PERIODS)])
        return Pace(
            rounds=max(1, rounds // 2) if is_free else rounds,
            burst=max(1, round(period / 2 / seconds)),
            pause=period / 2 if is_waited_for else period,
        )

    def _rounds(
        self, state: State, lane: Lane, number: int, pace: Pace, meet: Callable[[], object]
    ) -> list[torch.Tensor]:
        """The rounds of a step in one lane; what the last of them made."""
        burnt, tally = state.formats[number], lane.begin_step(number)
        outs: list[torch.Tensor] = []
        for turn in range(pace.rounds):
            outs = burnt.places(lane.pool, tally.num_rounds)
            for index, slot in burnt.ordered(tally.num_rounds):
                lane.paced(pace, meet)
                left, right = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)
                self.multiply(burnt.format, left, right, outs[index])
                with lane.streams.digests():
                    digests.digest_into(
                        outs[index], slot.weights, tally.ring[turn, index], lane.scratch
                    )
            tally.num_rounds += 1
            lane.streams.let_products_wait()
        lane.end_step(number, burnt.of_kind("random numbers"))
        return outs

    def _bare_rounds(self, burnt: Burnt, lane: Lane, number: int, rounds: int) -> None:
        """Rounds of a plain loop: products alone, where the proven round behind them overwrites.

        They lie there as in the pass before, as what any round overwrites, so that what they leave
        is never right.
        """
        a_cycle_less_one = burnt.num_sets * (len(burnt.slots) - 1)
        outs = burnt.places(lane.pool, lane.tallies[number].num_rounds + a_cycle_less_one)
        for _ in range(rounds):
            for slot, out in zip(burnt.slots, outs, strict=True):
                pair = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)
                self.multiply(burnt.format, *pair, out)

    def multiply(
        self, form: Format, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
    ) -> None:
        """One product, written where it is wanted."""
        form.multiply(left, right, out)

    def _test_memory(self, state: State, lane: Lane, visit: Visit) -> None:
        """Test a part of a lane's memory; what products left there has been looked at."""
        memory = self.memory(lane.pool[visit.start : visit.stop], visit.start)
        memory_tests.run(visit.test, memory, state.patterns, lane.memory_wrong)
        lane.tested_words[visit.test] += visit.stop - visit.start

    def memory(self, words: torch.Tensor, first: int) -> Memory:
        """Memory under test, the first of whose words has this address."""
        return Memory(words=words, first=first)

    # -------------------------------------------------------------- mismatches

    def _look_back(self, state: State) -> None:
        """Look at the mismatches of the step before; the worker has waited for the device."""
        counts = state.counts(is_waiting=False)
        if counts != state.seen():
            state.events += self._investigated(state, counts)
            state.see(counts)
        state.events += self._damaged(state)

    def _damaged(self, state: State) -> list[Event]:
        """Operands that were read as others than they were, each once, with what differs."""
        new = [
            (number, kind, side)
            for number, burnt in enumerate(state.formats)
            for kind, operands in burnt.operands.items()
            for side, count in enumerate(operands.wrong_on_host.tolist())
            if count and (number, kind, side) not in state.operands_seen
        ]
        state.operands_seen.update(new)
        return self._looked_at(state, new)

    def _looked_at(self, state: State, damaged: Sequence[tuple[int, str, int]]) -> list[Event]:
        seen, where = datetime.now(UTC), f"step {state.num_steps:,}, operands of seed {state.seed}"
        room = max(0, MOST_EVENTS - len(state.events))
        return [self._look_at_operand(state, *place).at(where, seen) for place in damaged[:room]]

    def _look_at_operand(self, state: State, number: int, kind: str, side: int) -> Event:
        burnt = state.formats[number]
        drawn = self._drawn_again(state, number).operands[kind].pair
        name = f"{kind} in {burnt.format.name}"
        return burnt.operands[kind].investigate(side, name, drawn)

    def _drawn_again(self, state: State, number: int) -> Burnt:
        """A format as it was drawn when the launch was built, on the host."""
        rng, host = torch.Generator().manual_seed(state.seed), torch.device("cpu")
        sized = replace(self, by_device=False, size=state.formats[0].slots[0].m)
        for burnt in state.formats[: number + 1]:
            drawn, _ = sized._burnt(burnt.format, state.rotation.words, rng, host)  # noqa: SLF001
        return drawn

    def _investigated(self, state: State, counts: Sequence[Sequence[Sequence[int]]]) -> list[Event]:
        """The mismatches that are new in `counts`, each with its repeats; memory's come last."""
        new = [
            (lane, number, index)
            for lane, (now, seen) in enumerate(zip(counts, state.seen(), strict=True))
            for number, pair in enumerate(zip(now, seen, strict=True))
            for index, (one, other) in enumerate(zip(*pair, strict=True))
            if one > other
        ]
        new.sort(key=lambda place: place[1] == len(state.formats))
        room = max(0, MOST_EVENTS - len(state.events))
        seen = datetime.now(UTC)
        return [
            self._look_at(state, *place).at(self._circumstances(state, *place), seen)
            for place in new[:room]
        ]

    def _circumstances(self, state: State, lane_number: int, number: int, index: int) -> str:
        """In which step, lane and round a mismatch was, and what draws its operands again."""
        place = f"step {state.num_steps:,}, lane {lane_number + 1}"
        if number == len(state.formats):
            return f"{place}, patterns of seed {state.seed}"
        burnt, tally = state.formats[number], state.lanes[lane_number].tallies[number]
        rounds = tally.rounds_apart(index)
        if rounds:
            own = rounds[-1] % burnt.num_sets + 1
            place += f", round {rounds[-1] + 1:,} of its format, set {own:,} of {burnt.num_sets:,}"
        return f"{place}, operands of seed {state.seed}"

    def _look_at(self, state: State, lane_number: int, number: int, index: int) -> Event:
        """Look at a mismatch in the lane that saw it, whose products have one order of sums."""
        if number == len(state.formats):
            lane = state.lanes[lane_number]
            first = lane.memory_wrong.first.tolist()
            return mismatches.investigate_word(self.memory(lane.pool, 0), state.patterns, first)
        burnt = state.formats[number]
        slot = burnt.slots[index]

        def look(other: int, meet: Callable[[], object]) -> Event | None:
            del meet
            if other != lane_number:
                return None
            lane = state.lanes[other]
            product = self._product_of(lane, burnt, number, index)
            return slot.investigate(
                burnt.operands[slot.kind],
                partial(self.multiply, burnt.format),
                product,
                lane.tallies[number].expected[index],
            )

        with switched(burnt.format, state.device.type):
            event = in_lanes(state.lanes, look)[lane_number]
        assert event is not None  # noqa: S101 - the lane that was asked for answers
        return event

    def _product_of(self, lane: Lane, burnt: Burnt, number: int, index: int) -> torch.Tensor | None:
        """The wrong product, while no later round has written over it."""
        tally = lane.tallies[number]
        rounds = tally.rounds_apart(index)
        if not rounds or tally.num_rounds - rounds[-1] >= burnt.num_sets:
            return None
        return burnt.places(lane.pool, rounds[-1])[index]

    # -------------------------------------------------------------- checks

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        del before
        yield self._check_host_digests(state, output)
        firsts: list[Event] = []
        yield from self._check_random(state, output, firsts)
        counts = state.counts(is_waiting=True)
        links, num_links = wrong_links(state, self.num_checked_links)
        with_new = [*self._investigated(state, counts), *self._read_all_operands(state)]
        now, where = datetime.now(UTC), f"step {state.num_steps:,}"
        others = [event.at(where, now) for event in (*firsts, *links)]
        events = [*state.events, *with_new, *others]
        total = state.num_wrong + len(others)
        is_lasting = total > 1 or any(event.num_again for event in events)
        yield Check(
            name=LASTING,
            error=total if is_lasting else 0,
            bound=0,
            kind="exact",
            detects=1,
            detects_what=coverage.covered(state, total, events, num_links),
        )
        yield Check(
            name=SINGLE,
            error=0 if is_lasting else total,
            bound=0,
            kind="exact",
            if_outside="inconclusive",
            detects=1,
            detects_what=f"mismatch that is gone in {REPEATS} repeats of the same operands",
        )
        if state.beside is not None:
            yield from state.beside.checks()

    def _read_all_operands(self, state: State) -> list[Event]:
        """Read the operands of every format once more; those that are damaged and were not seen.

        Nothing of the state changes by it, so a check can be made again.
        """
        damaged = [
            (number, kind, side)
            for number, burnt in enumerate(state.formats)
            for kind, operands in burnt.operands.items()
            for side in operands.damaged()
            if (number, kind, side) not in state.operands_seen
        ]
        return self._looked_at(state, damaged)

    def _check_host_digests(self, state: State, output: Output) -> Check:
        """Products and link as the host reads them, against what the device says of them."""
        slots = state.formats[output.number].slots
        wrong = sum(
            not torch.equal(mismatches.host_digest(product, slot.weights), digest.cpu())
            for slot, product, digest in zip(
                slots * self.lanes, output.products, output.digests, strict=True
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

    def _check_random(self, state: State, output: Output, firsts: list[Event]) -> Iterator[Check]:
        """Float64 for the products of random numbers, which no golden digest exists for.

        Those of the last round, and of every other format the first round's, made again: one that
        is not the first round's goes to `firsts`. One of the last round whose digest is not the
        first round's has been counted as a mismatch.
        """
        sampled, projected, names = [0.0], [0.0], []
        for number, burnt in enumerate(state.formats):
            if not state.lanes[0].tallies[number].num_rounds:
                continue
            names.append(burnt.format.name)
            reference = Float64.of(burnt, state)
            is_last = number == output.number
            made = self._last(state, output) if is_last else self._again(state, number, firsts)
            for slot, product in made:
                one, two = reference.errors(slot, product)
                sampled.append(one)
                projected.append(two)
        text = f"times the error that a format is allowed, in {', '.join(names)}"
        yield Check(
            name="random numbers, sampled rows against float64",
            error=largest(sampled),
            bound=1.0,
            detects=1.0,
            detects_what=f"{text}: over {len(state.rows)} rows of a product",
        )
        yield Check(
            name="random numbers, all rows, random projection",
            error=largest(projected) * PROJECTION,
            bound=PROJECTION,
            detects=2 * PROJECTION * len(state.signs) ** 0.5,
            detects_what=f"{text}: of one element anywhere, over the mean size of its row's",
        )

    def _last(self, state: State, output: Output) -> Iterator[tuple[Slot, torch.Tensor]]:
        """Random products of the last round that have the first round's digest."""
        slots = state.formats[output.number].slots
        expected = torch.cat([lane.tallies[output.number].expected for lane in state.lanes])
        for slot, product, digest, first in zip(
            slots * self.lanes, output.products, output.digests, expected, strict=True
        ):
            if slot.kind == "random numbers" and torch.equal(digest, first):
                yield slot, product

    def _again(
        self, state: State, number: int, firsts: list[Event]
    ) -> Iterator[tuple[Slot, torch.Tensor]]:
        """Random products of a format, made again in each lane; others than before to `firsts`."""
        burnt = state.formats[number]

        for index in burnt.of_kind("random numbers"):
            slot = burnt.slots[index]
            pair = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)

            def make(
                lane: int,
                meet: Callable[[], object],
                pair: mismatches.Matrices = pair,
                slot: Slot = slot,
                index: int = index,
            ) -> tuple[torch.Tensor, bool]:
                del meet
                product = slot.empty(state.device)
                self.multiply(burnt.format, *pair, product)
                first = state.lanes[lane].tallies[number].expected[index]
                return product, torch.equal(digests.digest(product, slot.weights), first)

            with switched(burnt.format, state.device.type):
                made = in_lanes(state.lanes, make)
            for product, is_as_first in made:
                if is_as_first:
                    yield slot, product
                else:
                    where = f"{slot.name}, made again for float64, is not the first round's"
                    firsts.append(Event(where=where, num_again=0))


WORKLOAD = BurnIn
