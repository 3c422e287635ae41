"""What the narrow accumulator of float8 products may cost, with fast accumulation and without.

Healthy devices add the products of float8 in an accumulator of 14 bits, which was seen to cost 8e-7
of the result for each of the terms that it holds: 3.2e-3 for 4096 of them, 1.3e-2 for 16384 (and in
DeepSeek-V3's report, section 3.3.2, nearly 2e-2 at worst). With fast accumulation it holds all of
the inner dimension. Without, what it holds is added to a sum in float32 every so many terms: 128 in
CUTLASS ("mma_promotion_interval" of 4 products of 32 terms); cuBLAS does not publish its own. Twice
the cost is allowed with, and that of four such intervals, twice, without. One H100 erred by 1.67e-3
at 8192 terms without, of which storing in bfloat16 makes 1.64e-3.
"""

from __future__ import annotations

NARROW = 1.6e-6
"""Relative error that is allowed for each term that the accumulator holds."""
MOST_HELD = 4 * 128
"""Terms that it may hold without fast accumulation."""


def narrow_error(inner: int, *, is_fast: bool) -> float:
    """Relative error that the accumulator may add to products that sum `inner` terms."""
    return NARROW * (inner if is_fast else min(inner, MOST_HELD))
