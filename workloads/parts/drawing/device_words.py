"""Philox4x64-10 on a device, in torch's 64-bit integers: the words of `appliance.generator.philox`.

Integers modulo 2**64 are the same on every device. Both products of a round are made in one tensor,
and so are the words of several streams (`words_of`), each counter with the key of its own: handing
an operation to a device takes a host longer than a small tensor takes the device. Operations are of
few kinds, as the first of each has its kernel loaded, which takes an H100 some milliseconds. The
upper half of a product is put together from products of halves of 32 bits with those of 31 and 33,
with the sums made inside the multiplication (`addcmul`). Operations and bytes of a block are
counted in docs/explanation/inputs.md. Where Triton is there and works, its kernel (`triton_words`)
makes the words of large tensors in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from appliance.generator.philox import ANSWERS, MULTIPLIERS, ROUNDS, WEYL, Counter, Key

Source = Callable[[Key, int, int, torch.device], torch.Tensor]
"""Makes words (blocks, 4) of the key's stream: of so many blocks from a block on, on a device."""
LOW = 2**32 - 1
COPIED = 2**18
"""Counters that are made by the host and copied, 2 MiB."""
_SPLIT = 31
"""Bits of a multiplier's lower half, so that it times 32 bits is below 2**63."""


@dataclass(frozen=True)
class Stretch:
    """So many blocks of a key's stream from a block on."""

    key: Key
    first_block: int
    num_blocks: int


def signed(word: int) -> int:
    """The 64-bit integer that torch has for a word."""
    return word - 2**64 if word >> 63 else word


def words(key: Key, first_block: int, num_blocks: int, device: torch.device) -> torch.Tensor:
    """Words (num_blocks, 4) of a stream from a block on, int64, on the device."""
    return words_of([Stretch(key, first_block, num_blocks)], device)


def words_of(stretches: Sequence[Stretch], device: torch.device) -> torch.Tensor:
    """Words (blocks, 4) of all blocks of the stretches, one after the other, int64, on the device.

    Their temporaries are some twenty times as long as the counters, which have 8 bytes a block.
    """
    counts = [one.num_blocks for one in stretches]
    total = sum(counts)
    rows = torch.tensor([[signed(one.key[word]) for one in stretches] for word in (0, 1)])
    counters = torch.empty(4, total, dtype=torch.int64, device=device)
    counters.bitwise_and_(0)  # a kernel that is loaded for the rounds, and that of filling is not
    if len(stretches) == 1:
        _count(stretches[0].first_block, counters[0])
        return rounds(counters, rows.to(device))
    begins = np.cumsum([0, *counts[:-1]])
    first = np.array([one.first_block for one in stretches], np.int64) - begins
    of_block = np.repeat(np.arange(len(counts)), counts)
    counters[0].copy_(torch.from_numpy(np.arange(total) + first[of_block]))
    return rounds(counters, rows.to(device)[:, torch.from_numpy(of_block).to(device)])


def _count(first: int, out: torch.Tensor) -> None:
    """Write the integers from `first` on; few are copied, which loads no kernel."""
    if len(out) <= COPIED:
        out.copy_(torch.arange(first, first + len(out)))
    else:
        torch.arange(first, first + len(out), out=out)


def rounds(counters: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Words (n, 4) of counters (4, n) by keys (2, n), or (2, 1) of all.

    Words 0 and 2, which are multiplied, lie together, and change their places in each round; the
    other two lie as they are wanted next: 3 and 1, then 1 and 3. So no round turns anything over.
    """
    numbers, other = counters[0::2], _rows(counters[3], counters[1])
    orders = _rows(keys[1], keys[0]), keys
    for number in range(ROUNDS):
        factors = _factors(counters.device)[number % 2]
        upper, lower = factors.times(numbers)
        by = orders[number % 2] + factors.steps[number] if number else orders[0]
        numbers, other = upper.bitwise_xor_(other).bitwise_xor_(by), lower
    words = torch.empty(counters.shape[1], 4, dtype=torch.int64, device=counters.device)
    for place, row in enumerate((numbers[0], other[1], numbers[1], other[0])):
        words[:, place].copy_(row)
    return words


def _rows(*rows: torch.Tensor) -> torch.Tensor:
    """The rows in memory of their own, by copies: to stack them would load one more kernel."""
    out = torch.empty(len(rows), *rows[0].shape, dtype=torch.int64, device=rows[0].device)
    for place, row in enumerate(rows):
        out[place].copy_(row)
    return out


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Two 64-bit integers (2, 1) that rows of others are multiplied by, on their device.

    `low` and `high` are halves of `whole`, the signed integer; `steps` (rounds, 2, 1) is what keys
    have grown by in each round.
    """

    whole: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    steps: torch.Tensor

    def times(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Upper 64 bits of the products of rows (2, n) of unsigned 64-bit integers, and lower ones.

        The lower ones of the second row come first. With X = h 2**32 + l and M = 2**64 + M',
        M' = H 2**31 + L < 0, the upper half is X and
        floor(X M' / 2**64) = ((((l L >> 31) + l H >> 1) + h L >> 31) + h H) >> 1. Each sum is
        within 64 bits, with its sign, as 0 <= h, l < 2**32, 0 <= L < 2**31 and -0.84 2**31 <= H.
        """
        low, high = numbers & LOW, (numbers >> 32).bitwise_and_(LOW)
        upper = (low * self.low).bitwise_right_shift_(_SPLIT).addcmul_(low, self.high)
        upper.bitwise_right_shift_(32 - _SPLIT).addcmul_(high, self.low)
        upper.bitwise_right_shift_(_SPLIT).addcmul_(high, self.high)
        lower = torch.empty_like(numbers)
        for place in (0, 1):
            torch.mul(numbers[place], self.whole[place], out=lower[1 - place])
        return upper.bitwise_right_shift_(32 - _SPLIT).add_(numbers), lower


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> tuple[Factors, Factors]:
    """The generator's own as even rounds take them, and odd ones, in one copy to the device."""
    wholes = [signed(one) for one in MULTIPLIERS]
    rows = [
        wholes,
        [one & (2**_SPLIT - 1) for one in wholes],
        [one >> _SPLIT for one in wholes],
        *([signed(number * one % 2**64) for one in reversed(WEYL)] for number in range(ROUNDS)),
    ]
    both = torch.tensor([rows, [list(reversed(row)) for row in rows]]).to(device).unsqueeze(3)
    even, odd = (
        Factors(whole=one[0], low=one[1], high=one[2], steps=one[3:]) for one in both.unbind()
    )
    return even, odd


def answers(device: torch.device) -> list[Counter]:
    """What the device gives for the counters and keys of the known answers."""
    counters = [[signed(word) for word in counter] for counter, _, _ in ANSWERS]
    keys = [[signed(word) for word in key] for _, key, _ in ANSWERS]
    start, by = (torch.tensor(rows).t().contiguous().to(device) for rows in (counters, keys))
    given = []
    for zero, one, two, three in rounds(start, by).tolist():
        given.append((zero % 2**64, one % 2**64, two % 2**64, three % 2**64))
    return given
