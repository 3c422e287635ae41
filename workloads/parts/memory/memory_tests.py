"""Tests of memory: words written over a stretch of it and read back, in passes up and down.

A test is a list of passes, as the march tests of the literature are: each reads what the pass
before left, and writes what the next one reads. Every word is written and read back. What is known
of march tests holds from piece to piece; within a piece (1 MB on processors, 32 MB elsewhere) a
device's threads write in no set order, as in memtestG80 and MemtestCL, so that two words of one
piece disturb each other unseen if the victim is always written last. `alternating words` writes
the even words and the odd ones apart, in both orders, for neighbours.

- march C-: stuck bits, bits that cannot change one way, wrong addresses, words that disturb others
  (van de Goor, "Using march tests to test SRAMs", IEEE Design & Test of Computers, 1993);
- moving inversions: the same, over random words that no short cut fits (memtest86+);
- walking ones and zeros: lines of data that are shorted, as each bit differs from the other seven
  of its byte in turn (memtestG80: Haque and Pande, "Hard Data on Soft Errors", 2010);
- checkerboard: cells that leak to neighbours of the other value (van de Goor, "Testing
  Semiconductor Memories", 1991);
- random: faults that depend on the data, which no regular pattern meets (memtest86+);
- address: lines of the address that are stuck or shorted, so that two addresses share a word
  (memtest86+, "own address");
- alternating words: a word that a neighbour disturbs when that is written later (memtest86+,
  "modulo 20", here modulo 2);
- retention: cells that forget while nobody reads them, for four refresh windows of 64 ms (van de
  Goor 1991; memtest86+, "bit fade", which waits longer).

Words are of 64 bits. A pattern is a block of words, the same in every piece but for one word that
all of a piece are xored with; so a block of an address's lower bits makes all addresses, and one of
Philox words makes other random words in every piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch

from appliance.generator import philox

REFRESH_SECONDS = 0.064
"""In which JEDEC's DRAM has every row refreshed, up to 85 degrees; half of it above."""
PAUSE = 4 * REFRESH_SECONDS
WORD_BYTES = 8
PIECES = {"processors": 2**17, "accelerators": 2**22}
"""Words of a piece: what a core's cache holds, or what a kernel is worth launching for."""

_EVERY_BYTE = 0x0101010101010101
_HALVES = 0x5555555555555555


def _signed(word: int) -> int:
    return word - 2**64 if word >> 63 else word


_CONSTANTS = {"zeros": 0} | {f"ones {bit}": _signed(_EVERY_BYTE << bit) for bit in range(8)}

Part = Literal["all", "even", "odd"]
_PARTS: Mapping[Part, slice] = {
    "all": slice(None),
    "even": slice(0, None, 2),
    "odd": slice(1, None, 2),
}


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One way through memory: read, then write, piece by piece; "~" inverts a pattern.

    `rest` waits before the pass for so many seconds.
    """

    read: str = ""
    write: str = ""
    part: Part = "all"
    is_downward: bool = False
    rest: float = 0.0


def _march(pattern: str) -> tuple[Pass, ...]:
    """March C-: {w0; up(r0,w1); up(r1,w0); down(r0,w1); down(r1,w0); r0}."""
    other = "~" + pattern
    return (
        Pass(write=pattern),
        Pass(read=pattern, write=other),
        Pass(read=other, write=pattern),
        Pass(read=pattern, write=other, is_downward=True),
        Pass(read=other, write=pattern, is_downward=True),
        Pass(read=pattern),
    )


def _inversions(pattern: str) -> tuple[Pass, ...]:
    other = "~" + pattern
    return (
        Pass(write=pattern),
        Pass(read=pattern, write=other),
        Pass(read=other, write=pattern, is_downward=True),
        Pass(read=pattern),
    )


def _there_and_back(*patterns: str, rest: float = 0.0) -> tuple[Pass, ...]:
    ways = []
    for pattern in patterns:
        ways += [Pass(write=pattern), Pass(read=pattern, rest=rest)]
    return tuple(ways)


def _by_halves(pattern: str) -> tuple[Pass, ...]:
    """The odd words are written after the even ones, which are read; then the other way round."""
    other = "~" + pattern
    ways: list[Pass] = []
    orders: tuple[tuple[Part, Part], ...] = (("even", "odd"), ("odd", "even"))
    for first, second in orders:
        ways += [
            Pass(write=pattern, part=first),
            Pass(write=other, part=second),
            Pass(read=pattern, part=first),
            Pass(read=other, part=second),
        ]
    return tuple(ways)


TESTS: Mapping[str, tuple[Pass, ...]] = {
    "address": _there_and_back("address", "~address"),
    "march C-": _march("zeros"),
    "random": _there_and_back("random", "~random"),
    "walking ones": _there_and_back(*(f"ones {bit}" for bit in range(8))),
    "walking zeros": _there_and_back(*(f"~ones {bit}" for bit in range(8))),
    "checkerboard": _there_and_back("checkerboard", "~checkerboard"),
    "moving inversions": _inversions("random"),
    "alternating words": _by_halves("zeros"),
    "retention": _there_and_back("checkerboard", "~checkerboard", rest=PAUSE),
}
"""Every test by name, in the order in which they come."""
WHOLE = ("address",)
"""Tests that write all of memory before they read any: a wrong address may lie anywhere."""


def passes_of(test: str) -> tuple[int, int]:
    """How many times a test writes and reads every word."""
    share = {"all": 1.0, "even": 0.5, "odd": 0.5}
    writes = sum(share[one.part] for one in TESTS[test] if one.write)
    reads = sum(share[one.part] for one in TESTS[test] if one.read)
    return round(writes), round(reads)


# -------------------------------------------------------------------- words of a pattern


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Blocks of the patterns on one device, `size` words each, and the key of the random ones."""

    size: int
    key: philox.Key
    blocks: Mapping[str, torch.Tensor]

    @classmethod
    def make(cls, device: torch.device, seed: int) -> Patterns:
        """Make the blocks for a device; the same seed makes the same words on every one."""
        size = PIECES["processors" if device.type == "cpu" else "accelerators"]
        key = philox.key_of(seed, "memory")
        random = torch.from_numpy(philox.words(key, 0, size).view("int64"))
        address = torch.arange(size)
        checkerboard = torch.where(address % 2 == 0, _HALVES, ~_HALVES)
        blocks = {"random": random, "address": address, "checkerboard": checkerboard}
        return cls(size=size, key=key, blocks={k: v.to(device) for k, v in blocks.items()})

    def salt(self, pattern: str, piece: int) -> int:
        """What all words of a piece are xored with."""
        name = pattern.removeprefix("~")
        salt = 0
        if name == "address":
            salt = piece * self.size
        elif name == "random" and piece:
            salt = _signed(philox.block((piece, 1, 0, 0), self.key)[0])
        return ~salt if pattern.startswith("~") else salt

    def constant(self, pattern: str) -> int | None:
        """The word that a pattern has everywhere; None where words differ."""
        word = _CONSTANTS.get(pattern.removeprefix("~"))
        return ~word if word is not None and pattern.startswith("~") else word

    def word(self, pattern: str, address: int) -> int:
        """The word, as a signed 64-bit integer, that a pattern has at an address."""
        constant = self.constant(pattern)
        if constant is not None:
            return constant
        block = self.blocks[pattern.removeprefix("~")]
        return int(block[address % self.size]) ^ self.salt(pattern, address // self.size)


# -------------------------------------------------------------------- memory under test


@dataclass(kw_only=True)
class Memory:
    """Words under test (1-D, int64), the first of which has the address `first`.

    Everything that a test does to memory goes through `store`, `load` and `rest`, where planted
    faults come in.
    """

    words: torch.Tensor
    first: int = 0

    def store(self, place: slice, words: torch.Tensor | int, salt: int = 0) -> None:
        """Write words, each xored with `salt`, to a part of memory."""
        if isinstance(words, int):
            self.words[place].fill_(words)
        else:
            torch.bitwise_xor(words, salt, out=self.words[place])

    def load(self, place: slice) -> torch.Tensor:
        """A part of memory, as it is read."""
        return self.words[place]

    def part(self, start: int, stop: int) -> Memory:
        """The words from address `start` to `stop`, as far as there are."""
        return replace(self, words=self.words[start - self.first : stop - self.first], first=start)

    def rest(self, seconds: float) -> None:
        """Leave memory alone for so long, behind everything that was launched."""
        if self.words.device.type != "cpu":
            torch.get_device_module(self.words.device.type).current_stream().synchronize()
        time.sleep(seconds)


@dataclass(kw_only=True)
class Wrong:
    """Tests that read a wrong word, and the first such word, on the device.

    `first` is (address, word read, code of the pass); it stays what it was when more follow.
    Counting never waits for the device.
    """

    count: torch.Tensor
    first: torch.Tensor

    @classmethod
    def make(cls, device: torch.device) -> Wrong:
        """None so far."""
        return cls(
            count=torch.zeros(1, dtype=torch.int64, device=device),
            first=torch.tensor([-1, 0, 0]).to(device),
        )


_CODE = 64  # passes of a test that a code tells apart


def read_pattern(code: int) -> tuple[str, str]:
    """The test that a code stands for, and the pattern that its pass read."""
    name = list(TESTS)[code // _CODE]
    return name, TESTS[name][code % _CODE].read


def run(test: str, memory: Memory, patterns: Patterns, wrong: Wrong) -> None:
    """Make every pass of a test over memory; one is added to `wrong` if any read a wrong word."""
    first_code = list(TESTS).index(test) * _CODE
    seen = torch.zeros_like(wrong.count)
    for code, one in enumerate(TESTS[test], first_code):
        if one.rest:
            memory.rest(one.rest)
        for piece, place in _pieces(memory, patterns.size, one):
            if one.read:
                number, first = _compared(one, memory, patterns, piece, place)
                if first is not None:
                    is_new = (wrong.count + seen == 0) & (number > 0)
                    found = torch.cat([first, torch.full_like(number, code)])
                    wrong.first.copy_(torch.where(is_new, found, wrong.first))
                    seen += number
            if one.write:
                _write(one, memory, patterns, piece, place)
    wrong.count += seen > 0


def _pieces(memory: Memory, size: int, one: Pass) -> Iterator[tuple[int, slice]]:
    """Number of each piece, counted over all addresses, and its place in this memory."""
    end = memory.first + len(memory.words)
    numbers = range(memory.first // size, -(-end // size))
    for number in reversed(numbers) if one.is_downward else numbers:
        start, stop = max(memory.first, number * size), min(end, (number + 1) * size)
        part = _PARTS[one.part]
        offset = (start - (part.start or 0)) % (part.step or 1)
        yield number, slice(start + offset - memory.first, stop - memory.first, part.step)


def _block(patterns: Patterns, pattern: str, piece: int, first: int, place: slice) -> torch.Tensor:
    """The words of a pattern's block that belong to a place of memory that begins at `first`."""
    shift = first - piece * patterns.size
    block = patterns.blocks[pattern.removeprefix("~")]
    return block[place.start + shift : place.stop + shift : place.step]


def _write(one: Pass, memory: Memory, patterns: Patterns, piece: int, place: slice) -> None:
    constant = patterns.constant(one.write)
    if constant is not None:
        memory.store(place, constant)
        return
    block = _block(patterns, one.write, piece, memory.first, place)
    memory.store(place, block, patterns.salt(one.write, piece))


def _compared(
    one: Pass, memory: Memory, patterns: Patterns, piece: int, place: slice
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Number of wrong words (1,), and (address, word) of the first; None where there is none.

    Only the host's own memory is looked at at once; elsewhere there may be none all the same.
    """
    words = memory.load(place)
    expected: torch.Tensor | int | None = patterns.constant(one.read)
    if expected is None:
        block = _block(patterns, one.read, piece, memory.first, place)
        expected = block ^ patterns.salt(one.read, piece)
    wrong = words != expected
    number = wrong.sum().reshape(1)
    if words.device.type == "cpu" and not int(number):
        return number, None
    index = wrong.to(torch.uint8).argmax().reshape(1)
    address = index * (place.step or 1) + (place.start + memory.first)
    return number, torch.cat([address, words.index_select(0, index)])
