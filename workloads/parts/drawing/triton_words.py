"""Philox4x64-10 as one Triton kernel: the words of `device_words`, each block in registers.

Triton has the upper half of a 64-bit product, so ten rounds are some 80 integer operations and one
write of 32 bytes. It comes with torch's builds for accelerators and may fail on a device or with a
compiler that it does not know, so whoever uses it compares its known answers first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from appliance.generator.philox import BLOCK, MULTIPLIERS, ROUNDS, WEYL, Key

BLOCKS = 256
"""Counters of one program."""
_FIRST, _SECOND = (tl.constexpr(one) for one in MULTIPLIERS)
_FIRST_STEP, _SECOND_STEP = (tl.constexpr(one) for one in WEYL)
_ROUNDS = tl.constexpr(ROUNDS)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _kernel(out, first, count, low_key, low_other, high_key, high_other, size: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917 - as Triton calls it
    """Keys come in halves, which no argument's type can lose a bit of."""
    place = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    zero = (place + first).to(tl.uint64)
    one = tl.zeros((size,), dtype=tl.uint64)
    two, three = one, one
    key = (one + high_key.to(tl.uint64)) * 4294967296 + low_key.to(tl.uint64)
    other = (one + high_other.to(tl.uint64)) * 4294967296 + low_other.to(tl.uint64)
    left = tl.full((size,), _FIRST, dtype=tl.uint64)
    right = tl.full((size,), _SECOND, dtype=tl.uint64)
    for _ in tl.static_range(_ROUNDS):
        high_zero, low_zero = tl.umulhi(zero, left), zero * left
        high_two, low_two = tl.umulhi(two, right), two * right
        zero = high_two ^ one ^ key
        two = high_zero ^ three ^ other
        one, three = low_two, low_zero
        key += tl.full((size,), _FIRST_STEP, dtype=tl.uint64)
        other += tl.full((size,), _SECOND_STEP, dtype=tl.uint64)
    is_wanted = place < count
    start = out + place * 4
    tl.store(start, zero.to(tl.int64, bitcast=True), mask=is_wanted)
    tl.store(start + 1, one.to(tl.int64, bitcast=True), mask=is_wanted)
    tl.store(start + 2, two.to(tl.int64, bitcast=True), mask=is_wanted)
    tl.store(start + 3, three.to(tl.int64, bitcast=True), mask=is_wanted)


def words(key: Key, first_block: int, num_blocks: int, device: torch.device) -> torch.Tensor:
    """Words (num_blocks, 4) of a stream from a block on, int64, on the device."""
    out = torch.empty(num_blocks, BLOCK, dtype=torch.int64, device=device)
    low = [word & (2**32 - 1) for word in key]
    high = [word >> 32 for word in key]
    grid = (triton.cdiv(num_blocks, BLOCKS),)
    _kernel[grid](out, first_block, num_blocks, *low, *high, size=BLOCKS)
    return out
