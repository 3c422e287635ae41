"""Stress of the host: patterns over a part of its memory, and exact products on its cores.

A turn tests one part of the memory by the next test (`parts.memory.memory_tests`; those that rest
are left out, as the other tests keep a part's words for longer than they do), then multiplies exact
operands in float64 and in 8-bit integers: their right product is made from a few rows and columns
(`parts.burning.exact_pair`), and every bit of every word is compared with it. Addresses count
within a part, so an address line that is stuck above 64 MB shows in the other tests alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from workloads.parts.burning.exact_pair import ExactPair
from workloads.parts.burning.formats import FORMATS
from workloads.parts.burning.mismatches import REPEATS, Event, investigate_word
from workloads.parts.memory import memory_tests
from workloads.parts.memory.memory_tests import TESTS, WORD_BYTES, Memory, Patterns, Wrong
from workloads.parts.stress.turns import Independent, Turn, again, difference

PART_BYTES = 2**26
SIDE = 512
PRODUCTS = 4
"""Of each format in a turn."""
AWAKE = tuple(name for name, passes in TESTS.items() if not any(one.rest for one in passes))
_HOST = torch.device("cpu")


@dataclass(kw_only=True)
class Host(Independent):
    """Memory under test (1-D, int64), and a pair of operands of each format with its product."""

    words: torch.Tensor
    patterns: Patterns
    pairs: list[tuple[ExactPair, torch.Tensor]]
    threads: int
    share: float = 1.0
    rate: float | None = None
    number: int = 0
    asked: str = field(init=False)

    def __post_init__(self) -> None:
        self.asked = (
            f"{self.threads} thread{'s' * (self.threads > 1)} all of the time over "
            f"{len(self.words) * WORD_BYTES:,} bytes, products of {SIDE} in float64 and int8"
        )

    @classmethod
    def make(cls, *, seed: int, num_bytes: int, threads: int) -> Host:
        """Take so many bytes; the threads are those of this process."""
        torch.set_num_threads(threads)
        rng = torch.Generator().manual_seed(seed)
        pairs = [ExactPair.draw(SIDE, FORMATS[name], rng) for name in ("float64", "int8")]
        return cls(
            words=torch.empty(max(1, num_bytes // WORD_BYTES), dtype=torch.int64),
            patterns=Patterns.make(_HOST, seed),
            pairs=[(pair, pair.product(SIDE, SIDE, SIDE)) for pair in pairs],
            threads=threads,
        )

    def turn(self) -> Turn:
        """One test over one part of the memory, then products."""
        wrong: list[Event] = []
        proven, moved = self._test(wrong)
        products = 0
        for pair, expected in self.pairs:
            for _ in range(PRODUCTS):
                wrong += self._product(pair, expected)
                proven += expected.nbytes
                products += 1
        self.number += 1
        return Turn(proven=proven, moved=moved, products=products, wrong=wrong)

    def _test(self, wrong: list[Event]) -> tuple[int, int]:
        """Bytes that were compared, and that were written and read."""
        parts = torch.split(self.words, PART_BYTES // WORD_BYTES)
        part, lap = self.number % len(parts), self.number // len(parts)
        test = AWAKE[(lap + part) % len(AWAKE)]
        memory = self.memory(parts[part])
        seen = Wrong.make(_HOST)
        memory_tests.run(test, memory, self.patterns, seen)
        if int(seen.count):
            event = investigate_word(memory, self.patterns, seen.first.tolist())
            place = f"host memory, part {part + 1} of {len(parts)}, {event.where}"
            wrong.append(Event(where=place, num_again=event.num_again))
        writes, reads = memory_tests.passes_of(test)
        size = len(memory.words) * WORD_BYTES
        return reads * size, (writes + reads) * size

    def memory(self, words: torch.Tensor) -> Memory:
        """Memory under test."""
        return Memory(words=words)

    def multiply(self, pair: ExactPair) -> torch.Tensor:
        """One product of all of the operands."""
        left, right = pair.pair
        out = torch.empty((SIDE, SIDE), dtype=pair.format.result)
        pair.format.multiply(left, pair.format.laid(right), out)
        return out

    def _product(self, pair: ExactPair, expected: torch.Tensor) -> Iterator[Event]:
        made = self.multiply(pair)
        place = first_difference(made, expected)
        if place is None:
            return
        repeats = (self.multiply(pair) for _ in range(REPEATS))
        times = sum(first_difference(one, expected) is not None for one in repeats)
        name = f"host product {SIDE} x {SIDE} in {pair.format.name}, {place}"
        yield again(name, times, REPEATS)


def first_difference(made: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Where two matrices differ first, by their bits; None where they do not."""
    bits = {4: torch.int32, 8: torch.int64}[made.element_size()]
    one, two = made.view(bits), expected.view(bits)
    if torch.equal(one, two):
        return None
    apart = (one != two).nonzero()
    row, column = apart[0].tolist()
    words = difference(int(one[row, column]), int(two[row, column]))
    return f"{len(apart):,} words: {words} at row {row}, column {column}"
