"""What the matrix products share: the dtypes that they run in, and the work of one product."""

from __future__ import annotations

import torch

from appliance.records.workload import Work

FLOATS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def accumulator_bits(dtype: torch.dtype) -> int:
    """Significand bits in which products of this dtype are summed: float32's at least."""
    return 53 if dtype == torch.float64 else 24


def product_work(m: int, n: int, k: int, dtype: str) -> Work:
    """Work of one product of m x k by k x n: each operand read and the result written once."""
    elements = m * k + k * n + m * n
    return Work(
        unit="products",
        flops=2 * m * n * k,
        bytes=elements * FLOATS[dtype].itemsize,
        precision=dtype,
    )
