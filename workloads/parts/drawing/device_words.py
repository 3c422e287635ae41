"""Philox4x64-10 on a device, in torch's 64-bit integers: the words of `appliance.generator.philox`.

Integers modulo 2**64 are the same on every device. The upper half of a product is put together from
products of 32-bit halves, with the sums made inside the multiplication (`addcmul`). A block of four
words takes 370 operations that move 6.9 kB, counted by torch's dispatcher: of 201 million normal
numbers (3 x 8192 x 8192, 64 a block) that is 22 GB, 7 ms at 3 TB/s, in 1,200 launches of kernels.
Where Triton is there and works, its kernel (`triton_words`) makes the same words in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from appliance.generator.philox import ANSWERS, MULTIPLIERS, ROUNDS, WEYL, Counter, Key

Source = Callable[[Key, int, int, torch.device], torch.Tensor]
"""Makes words (blocks, 4) of the key's stream: of so many blocks from a block on, on a device."""
LOW = 2**32 - 1


def signed(word: int) -> int:
    """The 64-bit integer that torch has for a word."""
    return word - 2**64 if word >> 63 else word


def words(key: Key, first_block: int, num_blocks: int, device: torch.device) -> torch.Tensor:
    """Words (num_blocks, 4) of a stream from a block on, int64, on the device."""
    end = first_block + num_blocks
    counter = torch.arange(first_block, end, dtype=torch.int64, device=device)
    zeros = torch.zeros_like(counter)
    return torch.stack(rounds([counter, zeros, zeros, zeros], key), dim=1)


def rounds(counter: list[torch.Tensor], key: Key) -> list[torch.Tensor]:
    """The four words of each counter, whose words are tensors of one shape."""
    zero, one, two, three = counter
    keys = list(key)
    first, second = (Factor.of(one, zero.device) for one in MULTIPLIERS)
    for _ in range(ROUNDS):
        high_zero, low_zero = first.times(zero)
        high_two, low_two = second.times(two)
        zero = high_two.bitwise_xor_(one).bitwise_xor_(signed(keys[0]))
        two = high_zero.bitwise_xor_(three).bitwise_xor_(signed(keys[1]))
        one, three = low_two, low_zero
        keys = [(word + step) % 2**64 for word, step in zip(keys, WEYL, strict=True)]
    return [zero, one, two, three]


@dataclass(frozen=True, kw_only=True)
class Factor:
    """A 64-bit integer that many are multiplied by, and its halves on their device."""

    whole: int
    low: torch.Tensor
    high: torch.Tensor

    @classmethod
    def of(cls, whole: int, device: torch.device) -> Factor:
        """Put an unsigned integer on a device."""
        low, high = (torch.tensor(half, device=device) for half in (whole & LOW, whole >> 32))
        return cls(whole=signed(whole), low=low, high=high)

    def times(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Upper and lower 64 bits of the products with unsigned 64-bit integers."""
        low, high = numbers & LOW, _upper(numbers)
        middle = _upper(low * self.low).addcmul_(high, self.low)
        other = (middle & LOW).addcmul_(low, self.high)
        upper = _upper(middle).addcmul_(high, self.high).add_(_upper(other))
        return upper, numbers * self.whole


def _upper(numbers: torch.Tensor) -> torch.Tensor:
    """The upper 32 bits as they are, without a sign."""
    return (numbers >> 32).bitwise_and_(LOW)


def answers(device: torch.device) -> list[Counter]:
    """What the device gives for the counters and keys of the known answers."""
    given = []
    for counter, key, _ in ANSWERS:
        start = [torch.tensor([signed(word)], device=device) for word in counter]
        zero, one, two, three = (int(word) % 2**64 for word in rounds(start, key))
        given.append((zero, one, two, three))
    return given
