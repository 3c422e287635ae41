"""Products whose inputs derive from the digest of the product before: a chain without a short cut.

Nobody can skip a link, make it beforehand or hand it to another machine while it is wanted,
because its inputs are not known until the link before is done. Entries are integers so
small that every sum is exact, so any host recomputes any link bit by bit from the key before it,
and checks the one after: one link in a hundred, drawn by the verifier, or all of them.

The entries are a counter hashed with the key by splitmix64 (Steele, Lea and Flood 2014), in 64-bit
integers modulo 2**64, which are the same on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from workloads.parts.matmul.products import FLOATS, accumulator_bits
from workloads.parts.memory.digests import Weights, digest, make_weights, on_host
from workloads.parts.numerics.precision import on_host as in_float64
from workloads.parts.numerics.precision import unit_roundoff

DEVIATIONS = 8  # standard deviations of a sum that must fit
SHARE = 0.7  # of the accumulator, or of the largest number that the output can hold
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_ENTRY_BITS = 31


def largest_magnitude(dtype: torch.dtype, inner: int, bits: int | None = None) -> int:
    """Largest integer whose products, `inner` of them added in any order, stay exact.

    `bits` are those of the accumulator, by default what products stored in this dtype have.
    """
    width = accumulator_bits(dtype) if bits is None else bits
    holds = min(2.0**width, torch.finfo(dtype).max)
    variance = SHARE * holds / (DEVIATIONS * inner**0.5)
    magnitude = math.floor((math.sqrt(1 + 12 * variance) - 1) / 2)
    return min(magnitude, int(1 / unit_roundoff(dtype)), 255)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Square products of one size and dtype ("bfloat16"), and the weights of their digest."""

    size: int
    dtype: str
    weights: Weights

    @classmethod
    def make(cls, size: int, dtype: str, seed: int, device: torch.device) -> Chain:
        """Make a chain for a device; the same seed makes the same chain on every device."""
        rng = torch.Generator().manual_seed(seed)
        return cls(
            size=size,
            dtype=dtype,
            weights=make_weights((size, size), FLOATS[dtype], rng, device),
        )

    def on_host(self) -> Chain:
        """The same chain for the host, which adds in float64."""
        return Chain(size=self.size, dtype=self.dtype, weights=on_host(self.weights))

    def operands(self, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The two operands that a key of shape (1,) stands for, on the key's device."""
        count = self.size**2
        numbers = torch.arange(1, 2 * count + 1, device=key.device)
        magnitude = largest_magnitude(FLOATS[self.dtype], self.size)
        drawn = _logical_shift(mixed(numbers * _STEP + key), 64 - _ENTRY_BITS)
        entries = (drawn % (2 * magnitude + 1) - magnitude).to(FLOATS[self.dtype])
        left, right = entries.view(2, self.size, self.size)
        return left, right

    def link(self, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product that a key stands for, and the next key; never waits for the device."""
        left, right = self.operands(key)
        product = left @ right
        return product, self.next_key(product)

    def next_key(self, product: torch.Tensor) -> torch.Tensor:
        """The key that a product leads to, shape (1,)."""
        pair = digest(product, self.weights)
        return mixed(pair[:1] ^ mixed(pair[1:]))

    def exact_link(self, key: int) -> tuple[torch.Tensor, int]:
        """The right product and the next key, by the host in float64, where all sums are exact."""
        left, right = self.operands(torch.tensor([key]))
        product = (in_float64(left) @ in_float64(right)).to(FLOATS[self.dtype])
        return product, int(self.next_key(product))


def first_key(seed: int) -> int:
    """The key of the first link."""
    return int(mixed(torch.tensor([seed])))


def recompute(size: int, dtype: str, seed: int, count: int) -> list[int]:
    """The keys before and after each of the first `count` links, by the host alone.

    What a verifier compares a device's keys with: same seed, same keys, on every device.
    """
    chain = Chain.make(size, dtype, seed, torch.device("cpu")).on_host()
    keys = [first_key(seed)]
    while len(keys) <= count:
        keys.append(chain.exact_link(keys[-1])[1])
    return keys


def mixed(numbers: torch.Tensor) -> torch.Tensor:
    """The finaliser of splitmix64 on int64 words, modulo 2**64."""
    numbers = (numbers ^ _logical_shift(numbers, 30)) * _FIRST
    numbers = (numbers ^ _logical_shift(numbers, 27)) * _SECOND
    return numbers ^ _logical_shift(numbers, 31)


def _logical_shift(numbers: torch.Tensor, places: int) -> torch.Tensor:
    """Shift to the right with zeros; torch shifts the sign in."""
    return (numbers >> places) & ((1 << (64 - places)) - 1)
