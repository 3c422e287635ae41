"""Random words that depend on a key and a place alone: Philox4x64-10, by NumPy on the host.

The generator of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel Random Numbers: As
Easy as 1, 2, 3" (SC '11, doi:10.1145/2063384.2063405): ten rounds of integer products and exclusive
ors take a counter of four 64-bit words and a key of two to four random words. Integers are the
same on every device, so what one draws every other can draw again, any part of it by itself.

Of the published forms the one with 64-bit words is used, because NumPy has it compiled: 0.6 ns for
16 bits on one core of an EPYC with AVX-512, where the form with 32-bit words took 3 to 5 ns in
whole-array operations. Its raw stream is one of those that NumPy promises not to change (NEP 19),
and `ANSWERS` holds it to that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Key = tuple[int, int]
Counter = tuple[int, int, int, int]
Words = NDArray[np.uint64]

BLOCK = 4
"""Words that one counter gives."""
ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
"""Of the counter's words 0 and 2 in each round."""
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
"""What is added to the key after each round."""
ALL = 2**64 - 1

ANSWERS: tuple[tuple[Counter, Key, Counter], ...] = (
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (ALL, ALL, ALL, ALL),
        (ALL, ALL),
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
)
"""Counter, key and words: the known answers of Random123 (tests/kat_vectors, "philox4x64 10")."""

_DOMAIN = "bench inputs 1"


def key_of(seed: int, name: str) -> Key:
    """The key of the tensor called `name` in a launch with this seed.

    Two words of a SHA-256, so tensors of one launch, and of launches with other seeds, have
    nothing to do with each other.
    """
    digest = hashlib.sha256(f"{_DOMAIN}\0{seed}\0{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def block(counter: Counter, key: Key) -> Counter:
    """The four words of one counter."""
    place = sum(word << (64 * position) for position, word in enumerate(counter))
    drawn = _generator(key, place).random_raw(BLOCK)
    return int(drawn[0]), int(drawn[1]), int(drawn[2]), int(drawn[3])


def words(key: Key, first: int, count: int) -> Words:
    """Words (count,) of a tensor's stream from word `first` on.

    Word i is word i % 4 of the counter (i // 4, 0, 0, 0).
    """
    skipped = first % BLOCK
    drawn = stream(key)(first - skipped, count + skipped)
    return drawn[skipped:] if skipped else drawn


def stream(key: Key) -> Callable[[int, int], Words]:
    """Gives `count` words from word `first` on each time, which begins a counter; for one thread.

    Another thread waits for the interpreter's lock while a generator is begun, which takes 7 us, or
    while one gets ready to draw integers of a range, 3 us; raw words take 0.5 us, and a jump 1 us.
    """
    generator = _generator(key, 0)
    words: Callable[[int], Words] = generator.random_raw
    reached = 0

    def next_words(first: int, count: int) -> Words:
        nonlocal reached
        if first != reached:
            generator.advance((first - -(-reached // BLOCK) * BLOCK) // BLOCK)
        reached = first + count
        return words(count)

    return next_words


def _generator(key: Key, place: int) -> np.random.Philox:
    """NumPy's, which adds one to its counter before it makes a block."""
    return np.random.Philox(counter=(place - 1) % 2**256, key=key[0] | (key[1] << 64))


def num_wrong_answers() -> int:
    """How many of the known answers this machine's NumPy does not give."""
    wrong = [block(counter, key) != answer for counter, key, answer in ANSWERS]
    whole = np.array([block((number, 0, 0, 0), (1, 2)) for number in range(3)], np.uint64).ravel()
    return sum(wrong) + int(not np.array_equal(words((1, 2), 1, 10), whole[1:11]))
