"""What a burn-in holds between steps: formats with their operands, lanes, the chain, the counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import torch

from appliance.planning.launch_constants import HOT, PLAIN, PROVEN
from appliance.records.journal import Check
from workloads.parts.burning.formats import Format
from workloads.parts.burning.lanes import Lane
from workloads.parts.burning.mismatches import Event, Operands, Slot
from workloads.parts.memory.chain import Chain
from workloads.parts.memory.memory_tests import TESTS, WHOLE, WORD_BYTES, Patterns, passes_of

PHASES = (HOT, HOT, HOT, "cool", HOT, HOT, HOT, "load in jumps")
RISING = 2
"""Steps in which power rises, and what is read of it late, before a phase counts as hot."""
KINDS = ("random numbers", "exact numbers")
ALIGNED = 64
"""Words of 8 bytes of which a product's memory is a multiple."""
_ODD_STEP = 16
"""What products of bytes want their inner side to be a multiple of."""

Shape = tuple[int, int, int]


class Beside(Protocol):
    """Stress of the host beside the products."""

    def begin(self) -> None:
        """Begin, unless it has."""

    def checks(self) -> Iterator[Check]:
        """End, and say what was proved; nothing of what was not begun."""


def shapes_of(form: Format, size: int) -> tuple[Shape, ...]:
    """(m, n, k): full, narrow, flat, shallow, very flat, and odd ones on no tile's border."""
    half, quarter = size // 2, size // 4
    inner = size - (_ODD_STEP if form.by_columns else 3)
    return (
        (size, size, size),
        (size, half, size),
        (half, size, size),
        (size, size, half),
        (quarter, size, size),
        (half - 1, half, inner),
    )


def words_of(form: Format, m: int, n: int) -> int:
    """Words of 8 bytes that a product takes."""
    return -(-m * n * form.result.itemsize // (WORD_BYTES * ALIGNED)) * ALIGNED


def set_words(form: Format, size: int) -> int:
    """Words of 8 bytes that the products of a round take."""
    return sum(words_of(form, m, n) for m, n, _ in shapes_of(form, size)) * len(KINDS)


@dataclass(kw_only=True)
class Burnt:
    """One format of a burn-in: operands by kind, products of a round, and how it is paced.

    `num_sets` rounds fit a lane's memory; `hot_rounds` are the rounds that every lane makes in a
    hot step, `product_seconds` what a product takes, 0 where no clock was given.
    """

    format: Format
    operands: Mapping[str, Operands]
    slots: list[Slot]
    num_sets: int
    hot_rounds: int = 1
    product_seconds: float = 0.0

    def ordered(self, number: int) -> list[tuple[int, Slot]]:
        """The products in the order of this pass, which moves on with every pass of the pool."""
        slots = list(enumerate(self.slots))
        first = number // self.num_sets % len(slots)
        return slots[first:] + slots[:first]

    def places(self, pool: torch.Tensor, number: int) -> list[torch.Tensor]:
        """Where round `number` of a lane puts each product, in the order of the slots."""
        ordered = self.ordered(number)
        sizes = [words_of(self.format, slot.m, slot.n) for _, slot in ordered]
        begin = number % self.num_sets * (len(pool) // self.num_sets // ALIGNED * ALIGNED)
        starts = accumulate([begin, *sizes[:-1]])
        by_index = {
            index: pool[start : start + size]
            .view(self.format.result)[: slot.m * slot.n]
            .view(slot.m, slot.n)
            for (index, slot), start, size in zip(ordered, starts, sizes, strict=True)
        }
        return [by_index[index] for index in range(len(by_index))]

    def of_kind(self, kind: str) -> list[int]:
        """Numbers of the products of a kind."""
        return [index for index, slot in enumerate(self.slots) if slot.kind == kind]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A test of memory over one part of every lane's pool, in words of 8 bytes."""

    test: str
    start: int
    stop: int


@dataclass(kw_only=True)
class Rotation:
    """Which test comes next, over which part: whole memory by addresses first, then all in turn.

    Tests that rest come in cool phases alone, where the device is to rest anyway.
    """

    words: int
    parts: int
    first: int = 0
    num_visits: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def next(self, *, is_cool: bool) -> Visit:
        """The next visit; each kind of phase has a turn of its own."""
        number = self.num_visits[is_cool]
        self.num_visits[is_cool] += 1
        if not is_cool and number == 0:
            return Visit(test=WHOLE[0], start=0, stop=self.words)
        turn = list(self._turn(is_cool=is_cool))
        return turn[(number + self.first) % len(turn)]

    def _turn(self, *, is_cool: bool) -> Iterator[Visit]:
        for test, passes in TESTS.items():
            if any(one.rest for one in passes) != is_cool:
                continue
            parts = 1 if test in WHOLE else self.parts
            size = -(-self.words // parts)
            for start in range(0, self.words, size):
                yield Visit(test=test, start=start, stop=min(self.words, start + size))


def bytes_of(test: str, words: int) -> int:
    """Bytes that a test writes and reads over so many words."""
    return sum(passes_of(test)) * words * WORD_BYTES


@dataclass(kw_only=True)
class State:
    """Formats, lanes and chain.

    `phase_steps` are the steps of a phase, `memory_rate` the bytes a second that a test of memory
    wrote and read in a trial, 0 where no clock was given. `seed` draws operands and patterns again.
    `trial_steps` are those of the plain loop, and of the proven one behind it. `num_products` were
    made so far, of which `num_bare` were held to nothing. `operands_seen` are those that were seen
    to be damaged, by number of the format, kind and side.
    """

    formats: list[Burnt]
    lanes: list[Lane]
    patterns: Patterns
    rotation: Rotation
    free_bytes: int
    total_bytes: int
    chain: Chain
    key: torch.Tensor
    keys: torch.Tensor
    signs: torch.Tensor
    rows: torch.Tensor
    draw: int
    seed: int = 0
    phase_steps: int = 1
    trial_steps: int = 0
    num_products: int = 0
    num_operand_readings: int = 0
    operands_seen: set[tuple[int, str, int]] = field(default_factory=set)
    num_bare: int = 0
    memory_rate: float = 0.0
    events: list[Event] = field(default_factory=list)
    beside: Beside | None = None
    num_steps: int = 0
    phases: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((*PHASES, PLAIN, PROVEN), 0)
    )

    @property
    def device(self) -> torch.device:
        return self.key.device

    @property
    def pool_words(self) -> int:
        """Words of 8 bytes under test."""
        return sum(len(lane.pool) for lane in self.lanes)

    @property
    def num_wrong(self) -> int:
        """Mismatches of all lanes; waits for the device."""
        products = sum(sum(map(sum, counts)) for counts in self.counts(is_waiting=True))
        return products + sum(int(one.wrong.sum()) for one in self.operands)

    @property
    def operands(self) -> list[Operands]:
        """Of every format the two pairs."""
        return [one for burnt in self.formats for one in burnt.operands.values()]

    @property
    def _trial_at(self) -> int:
        """The step that begins the trial: behind the first hot phases, when the device is warm."""
        return max(PHASES.index("cool") * self.phase_steps, len(self.formats))

    @property
    def phase(self) -> str:
        """The phase of the step that comes next."""
        since = self.num_steps - self._trial_at
        if 0 <= since < 2 * self.trial_steps:
            return PLAIN if since < self.trial_steps else PROVEN
        return PHASES[self._cycle_step // self.phase_steps % len(PHASES)]

    @property
    def _cycle_step(self) -> int:
        """The number of the step that comes next, without those of the trial."""
        is_behind = self.num_steps >= self._trial_at
        return self.num_steps - 2 * self.trial_steps * is_behind

    @property
    def load(self) -> str:
        """What the step that comes next is called in the record: hot once power has risen.

        Until then it goes by the name of the phase before.
        """
        if self.num_steps < len(self.formats):
            return "first products"
        if self.phase != HOT or self.phase_steps <= RISING:
            return self.phase
        return PHASES[max(0, self._cycle_step - RISING) // self.phase_steps % len(PHASES)]

    def counts(self, *, is_waiting: bool) -> list[list[list[int]]]:
        """Of every lane the counts of each format's products, and last those of memory.

        `is_waiting` reads the device; else the copies that the last step sent to the host.
        """
        if is_waiting:
            return [
                [
                    *(tally.wrong.tolist() for tally in lane.tallies),
                    lane.memory_wrong.count.tolist(),
                ]
                for lane in self.lanes
            ]
        return [
            [
                *(tally.wrong_on_host.tolist() for tally in lane.tallies),
                lane.memory_wrong_on_host.tolist(),
            ]
            for lane in self.lanes
        ]

    def seen(self) -> list[list[list[int]]]:
        """Of the counts what has been looked at."""
        return [
            [*(tally.seen for tally in lane.tallies), [lane.memory_seen]] for lane in self.lanes
        ]

    def see(self, counts: Sequence[Sequence[Sequence[int]]]) -> None:
        """Note that these counts have been looked at."""
        for lane, one in zip(self.lanes, counts, strict=True):
            for tally, seen in zip(lane.tallies, one[:-1], strict=True):
                tally.seen = list(seen)
            lane.memory_seen = one[-1][0]
