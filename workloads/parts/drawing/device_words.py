"""Philox4x64-10 on a device, in torch's 64-bit integers: the words of `appliance.generator.philox`.

Integers modulo 2**64 are the same on every device. Both products of a round are made in one tensor,
and so are the words of several streams (`words_of`), each counter with the key of its own: handing
an operation to a device takes a host longer than a small tensor takes the device. The upper half of
a product is put together from products of a 31-bit or 33-bit half and a 32-bit one, with the sums
made inside the multiplication (`addcmul`). Operations and bytes of a block are counted in
docs/explanation/inputs.md. Where Triton is there and works, its kernel (`triton_words`) makes the
words of large tensors in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch

from appliance.generator.philox import ANSWERS, MULTIPLIERS, ROUNDS, WEYL, Counter, Key

Source = Callable[[Key, int, int, torch.device], torch.Tensor]
"""Makes words (blocks, 4) of the key's stream: of so many blocks from a block on, on a device."""
LOW = 2**32 - 1
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
    rows = [[signed(word) for word in pair] for pair in zip(*map(_keys, stretches), strict=True)]
    total = sum(counts)
    counters = torch.zeros(4, total, dtype=torch.int64, device=device)
    if len(stretches) == 1:
        first = stretches[0].first_block
        torch.arange(first, first + total, out=counters[0])
        return rounds(counters, torch.tensor(rows, device=device))
    begins = accumulate(counts, initial=0)
    rows.append([one.first_block - begin for one, begin in zip(stretches, begins, strict=False)])
    spread = spread_out(rows, counts, device)
    torch.add(torch.arange(total, device=device), spread[2], out=counters[0])
    return rounds(counters, spread[:2])


def _keys(stretch: Stretch) -> tuple[int, int]:
    """The key as `rounds` takes it, the second word first."""
    return stretch.key[1], stretch.key[0]


def spread_out(
    rows: Sequence[Sequence[int]], counts: Sequence[int], device: torch.device
) -> torch.Tensor:
    """Columns of signed integers, each as often as its count says: (rows, sum of counts)."""
    packed = torch.tensor([*rows, counts], dtype=torch.int64).to(device)
    return packed[:-1].repeat_interleave(packed[-1], dim=1, output_size=sum(counts))


def rounds(counters: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Words (n, 4) of counters (4, n) by keys (2, n), or (2, 1) of all; the key's word 1 first.

    Of one half are words 0 and 2, which are multiplied, of the other 3 and 1 in that order: then
    each round is `upper xor other xor key`, turned over, and the lower half of the products.
    """
    factors = _factors(counters.device)
    numbers, other = counters[0::2], counters[1::2].flip(0)
    for number in range(ROUNDS):
        keys = keys + factors.step if number else keys
        upper, lower = factors.times(numbers)
        numbers = upper.bitwise_xor_(other).bitwise_xor_(keys).flip(0)
        other = lower
    return torch.stack([numbers[0], other[1], numbers[1], other[0]], dim=1)


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Two 64-bit integers (2, 1) that rows of others are multiplied by, on their device.

    `low` and `high` are halves of `whole`, the signed integer; `step` is what keys grow by.
    """

    whole: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    step: torch.Tensor

    def times(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Upper and lower 64 bits of the products of rows (2, n) of unsigned 64-bit integers.

        With X = h 2**32 + l and M = 2**64 + M', M' = H 2**31 + L < 0, the upper half is X and
        floor(X M' / 2**64) = ((((l L >> 31) + l H >> 1) + h L >> 31) + h H) >> 1. Each sum is
        within 64 bits, with its sign, as 0 <= h, l < 2**32, 0 <= L < 2**31 and -0.84 2**31 <= H.
        """
        low, high = numbers & LOW, (numbers >> 32).bitwise_and_(LOW)
        upper = (low * self.low).bitwise_right_shift_(_SPLIT).addcmul_(low, self.high)
        upper.bitwise_right_shift_(32 - _SPLIT).addcmul_(high, self.low)
        upper.bitwise_right_shift_(_SPLIT).addcmul_(high, self.high)
        return upper.bitwise_right_shift_(32 - _SPLIT).add_(numbers), numbers * self.whole


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> Factors:
    """The generator's own, in one copy to the device; of the steps the second first."""
    wholes = [signed(one) for one in MULTIPLIERS]
    rows = [
        wholes,
        [one & (2**_SPLIT - 1) for one in wholes],
        [one >> _SPLIT for one in wholes],
        [signed(one) for one in reversed(WEYL)],
    ]
    whole, low, high, step = torch.tensor(rows).to(device).unsqueeze(2)
    return Factors(whole=whole, low=low, high=high, step=step)


def answers(device: torch.device) -> list[Counter]:
    """What the device gives for the counters and keys of the known answers."""
    counters = [[signed(word) for word in counter] for counter, _, _ in ANSWERS]
    keys = [[signed(word) for word in reversed(key)] for _, key, _ in ANSWERS]
    start, by = (torch.tensor(rows).t().contiguous().to(device) for rows in (counters, keys))
    given = []
    for zero, one, two, three in rounds(start, by).tolist():
        given.append((zero % 2**64, one % 2**64, two % 2**64, three % 2**64))
    return given
