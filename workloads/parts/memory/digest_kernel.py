"""The two digests of a matrix in one launch: a Triton kernel, where Triton and a compiler are.

Each program takes a block of rows, reads their words once, and adds its share of the sums to
the two numbers that come out, by atomic additions: integers modulo 2**64, so that the order in
which programs end changes nothing. Their bits equal those of `digests`, which tries them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Takes words (m, w), weights of rows (2, m) and columns (2, w), and adds to the digests (2,)."""

_ROWS, _WORDS = 16, 256
"""Rows and words of a block."""
_SIGN = 0x80

tl: Any = None
"""Triton's language, once it was looked for: Triton reads the names of a kernel's module."""


def find(device: torch.device) -> Kernel | None:
    """The kernel for a device, or None where there is no Triton or a processor computes.

    TRITON_INTERPRET=1, Triton's own switch, lets a processor interpret it.
    """
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    return _kernel()


@cache
def _kernel() -> Kernel | None:
    global tl  # noqa: PLW0603 - see there
    try:
        triton: Any = importlib.import_module("triton")  # torch brings it, where it has one
        tl = importlib.import_module("triton.language")
    except ImportError:
        return None
    program = triton.jit(_digest)

    def kernel(
        words: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, out: torch.Tensor
    ) -> None:
        num_rows, num_words = words.shape
        sign = sum(_SIGN << (8 * byte) for byte in range(words.element_size()))
        program[(-(-num_rows // _ROWS),)](
            words,
            rows,
            columns,
            out,
            num_rows,
            num_words,
            words.stride(0),
            SIGN=sign,
            MASK=(1 << (8 * words.element_size())) - 1,
            ROWS=_ROWS,
            WORDS=_WORDS,
        )

    return kernel


def _digest(  # noqa: PLR0917 - a kernel has no other way in
    words_at: Any,
    rows_at: Any,
    columns_at: Any,
    out_at: Any,
    num_rows: Any,
    num_words: Any,
    stride: Any,
    SIGN: tl.constexpr,  # noqa: N803 - constants of the compiled kernel
    MASK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    WORDS: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    begin = words_at + row.to(tl.int64)[:, None] * stride
    first = tl.zeros((ROWS, WORDS), dtype=tl.int64)
    second = tl.zeros((ROWS, WORDS), dtype=tl.int64)
    for start in range(0, num_words, WORDS):
        column = start + tl.arange(0, WORDS)
        is_in = (row[:, None] < num_rows) & (column[None, :] < num_words)
        word = tl.load(begin + column[None, :], mask=is_in, other=0).to(tl.int64)
        number = ((word ^ SIGN) & MASK) - SIGN
        weight = tl.load(columns_at + column, mask=column < num_words, other=0)
        first += number * weight[None, :]
        weight = tl.load(columns_at + num_words + column, mask=column < num_words, other=0)
        second += number * weight[None, :]
    weight = tl.load(rows_at + row, mask=row < num_rows, other=0)
    tl.atomic_add(out_at, tl.sum(tl.sum(first, 1) * weight, 0))
    weight = tl.load(rows_at + num_rows + row, mask=row < num_rows, other=0)
    tl.atomic_add(out_at + 1, tl.sum(tl.sum(second, 1) * weight, 0))
