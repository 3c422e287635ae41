"""Tensors of drawn values by seed and name: any part of one, whole ones, and what sums one up.

Element i of a tensor, in its logical order, is one of those that random number i // group of the
stream stands for which has the seed and the tensor's name as its key (`philox`), by the tensor's
map (`maps`). So a
check draws the rows that it reads, and makes no tensor. Whole ones are made in pieces that stay in
a cache, on the threads that it is given.

A tensor is summed up where it lies by a number that the host makes of the generator alone:

    s = sum over sampled i of  x_i w_i   modulo 2**63

x_i are the bits of element i, w_i odd pseudo-random weights of i. All of a tensor is sampled up to
65,536 elements, of a larger one as many: 16 runs of 4,096, one from each sixteenth, where the seed
says. One wrong element among them alters the number with certainty, but for the top bit of 64;
more that know nothing of the weights escape with probability 2**-47 (of 16 bits), 2**-31 (of 32).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from appliance.generator import maps, philox
from appliance.generator.formats import Bits, num_bytes
from appliance.generator.maps import Map
from appliance.generator.philox import Key

PIECE = 2**19
"""Values that are worth being made at once, and of which the shortest span of a thread is."""
WORTH_A_THREAD = 2**20
"""Values below which a second thread costs more than it saves."""
AT_ONCE = 2**18
"""Random numbers that are looked up together.

A thread holds the interpreter for some 2 us each time, and wakes another that waits for it. Of two
threads pieces of 2**15 took a fifth longer, which fit a core's own cache, and those of 2**17 a
fortieth (an EPYC with 1 MiB a core and 32 MiB for all).
"""
COMPUTED = 2**16
"""Values that are computed together, in half a dozen operations on what the last one wrote.

Of 2**18, whose memory is taken from the system anew for each operation, two threads took four
times as long.
"""
NUM_IN_WORD = 4
"""Random numbers of 16 bits in a word."""
RUNS, RUN = 16, 4096
"""How many runs of how many elements are sampled of a large tensor."""
STEP, MIX = 0x9E3779B97F4A7C15 - 2**64, 0x2545F4914F6CDD1D
SHIFT = 29
"""Of the weights: w = (i STEP xor (i STEP >> SHIFT)) MIX, made odd, in signed 64-bit integers."""


@dataclass(frozen=True)
class Drawn:
    """A tensor that is drawn: its name in the launch, its map, its format as torch names it."""

    seed: int
    name: str
    values: Map
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def key(self) -> Key:
        """Key of the stream that its bits are of."""
        return philox.key_of(self.seed, self.name)

    @cached_property
    def width(self) -> int:
        """Bits of a random number, which stands for `values.group` elements."""
        return self.values.width(self.dtype)

    @property
    def in_word(self) -> int:
        """Elements that a word of the stream stands for."""
        return self.values.group * (64 // self.width)

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class Summed:
    """A drawn tensor and the number that sums it up as it was read from where it lies."""

    drawn: Drawn
    checksum: int


def part(drawn: Drawn, first: int, count: int) -> Bits:
    """Bits (count,) of the elements from `first` on, in logical order."""
    in_word = drawn.in_word
    skipped = first % in_word
    num_words = -(-(skipped + count) // in_word)
    random = _units(philox.words(drawn.key, first // in_word, num_words), drawn.width)
    made = maps.values(drawn.values, drawn.dtype, random)
    return made[skipped : skipped + count]


def rows(
    drawn: Drawn, first: int, count: int, threads: int = 1, memory: Bits | None = None
) -> Bits:
    """Bits (count, ...) of rows from `first` on, along the first dimension, on so many threads.

    They lie at the beginning of `memory`, flat and of their width, where it is given.
    """
    inner = prod(drawn.shape[1:])
    if memory is None:
        memory = np.empty(count * inner, f"u{num_bytes(drawn.dtype)}")
    out = memory[: count * inner]
    _write(drawn, first * inner, out, threads)
    return out.reshape(count, *drawn.shape[1:])


def fill(drawn: Drawn, out: Bits, threads: int = 1) -> None:
    """Write the bits of all elements into `out`, which is flat, on up to so many threads."""
    _write(drawn, 0, out, threads)


def _write(drawn: Drawn, begin: int, out: Bits, threads: int) -> None:
    """Write the bits of the elements from `begin` on."""
    first = min(-begin % (drawn.in_word * philox.BLOCK), len(out))  # which begins a counter
    stop = len(out) - (len(out) - first) % drawn.values.group
    for edge in (slice(0, first), slice(stop, len(out))):
        if edge.start < edge.stop:
            out[edge] = part(drawn, begin + edge.start, edge.stop - edge.start)
    _write_counters(drawn, begin + first, out[first:stop], threads)


def _write_counters(drawn: Drawn, begin: int, out: Bits, threads: int) -> None:
    """Write the bits of whole groups of elements, of which the first begins a counter."""
    write = _computed
    if drawn.width == 16:  # noqa: PLR2004 - bits
        write = _looked_up
        maps.table(drawn.values, drawn.dtype)  # made before several threads ask for it
    if threads == 1 or len(out) < WORTH_A_THREAD:
        write(drawn, begin, out, iter([slice(0, len(out))]))
        return
    spans = iter(_spans(len(out), threads))  # of which each thread takes the next
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(write, drawn, begin, out, spans) for _ in range(threads - 1)]
        write(drawn, begin, out, spans)
        for other in others:
            other.result()  # so that an error is raised here


def _spans(count: int, threads: int) -> list[slice]:
    """Spans of elements that threads take in turn, each as long as the one before or shorter.

    So a thread that was held up takes fewer, and all end within a shortest one of each other.
    """
    spans, first = [], 0
    while first < count:
        share = -(-(count - first) // (2 * threads * PIECE)) * PIECE
        spans.append(slice(first, min(first + share, count)))
        first += share
    return spans


def whole(drawn: Drawn, threads: int = 1) -> Bits:
    """Bits of the tensor, in its shape."""
    out = np.empty(drawn.count, f"u{num_bytes(drawn.dtype)}")
    fill(drawn, out, threads)
    return out.reshape(drawn.shape)


def _looked_up(drawn: Drawn, begin: int, out: Bits, spans: Iterator[slice]) -> None:
    """Read whole groups from the table into the spans; element `begin` is the first of `out`."""
    table = maps.table(drawn.values, drawn.dtype)
    size = table.shape[1]
    groups = table.view(f"V{size * table.itemsize}").reshape(-1)
    places = np.empty(min(AT_ONCE, len(out)), np.intp)  # as `take` wants them; memory that stays
    next_words = philox.stream(drawn.key)
    for span in spans:
        inside = out[span].view(groups.dtype)
        word = (begin + span.start) // drawn.in_word
        for first in range(0, len(inside), AT_ONCE):
            piece = inside[first : first + AT_ONCE]
            chosen = places[: len(piece)]
            words = next_words(word + first // NUM_IN_WORD, -(-len(piece) // NUM_IN_WORD))
            np.copyto(chosen, _units(words, 16)[: len(piece)])
            groups.take(chosen, out=piece, mode="wrap")


def _computed(drawn: Drawn, begin: int, out: Bits, spans: Iterator[slice]) -> None:
    """Compute the values of the spans; element `begin` is the first of `out`."""
    next_words = philox.stream(drawn.key)
    for span in spans:
        for first in range(span.start, span.stop, COMPUTED):
            piece = out[first : min(first + COMPUTED, span.stop)]
            words = next_words((begin + first) // drawn.in_word, -(-len(piece) // drawn.in_word))
            made = maps.values(drawn.values, drawn.dtype, _units(words, drawn.width))
            piece[:] = made[: len(piece)]


def _units(words: philox.Words, width: int) -> NDArray[np.unsignedinteger]:
    """The random numbers of so many bits that words hold, the lowest bits first."""
    if sys.byteorder != "little":
        words = words.astype("<u8")
    return words.view(f"<u{width // 8}")


# ------------------------------------------------------------------ what sums a tensor up


def sampled_runs(drawn: Drawn) -> Sequence[tuple[int, int]]:
    """First element and number of elements of each run that is summed up."""
    count = drawn.count
    if count <= RUNS * RUN:
        return [(0, count)]
    draws = philox.words(philox.key_of(drawn.seed, f"{drawn.name}: sampled"), 0, RUNS).tolist()
    edges = [count * number // RUNS for number in range(RUNS + 1)]
    return [
        (low + ((high - low - RUN + 1) * draw >> 64), RUN)
        for low, high, draw in zip(edges, edges[1:], draws, strict=False)
    ]


@lru_cache(maxsize=4096)
def checksum(drawn: Drawn) -> int:
    """The number from 0 to 2**63 - 1 that sums the tensor up, of the generator alone."""
    runs = sampled_runs(drawn)
    return sum(weighed(part(drawn, first, count), first) for first, count in runs) % 2**63


def weighed(bits: Bits, first: int) -> int:
    """The sum of one run of elements, from `first` on, by their bits."""
    return int(weighed_runs(bits, [(first, len(bits))]).sum())


def weighed_runs(bits: Bits, runs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Bits of the elements of runs, one run after the other, times their weights."""
    index = np.concatenate(
        [np.arange(first, first + count, dtype=np.int64) for first, count in runs]
    )
    return bits.astype(np.uint64).view(np.int64) * _weights(index)


def _weights(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Weights of the elements that have these numbers."""
    index *= np.int64(STEP)
    return ((index ^ (index >> SHIFT)) * np.int64(MIX)) | 1
