"""What operators are fed: seeded on the host, rounded to the number format before all else.

Every fill draws from a generator on the host, so that each vendor sees the same bits, and rounds
to the format at once, so that a reference made of the same numbers judges arithmetic alone.
`special` holds what breaks kernels that pass on ordinary numbers, one kind to a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Fill = Callable[[torch.Generator, tuple[int, ...], torch.dtype], torch.Tensor]

WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
TF32_DROPPED = 13  # of the 23 bits after the leading one that float32 keeps
SPREAD = {torch.float64: 200, torch.float32: 30, torch.bfloat16: 30, torch.float16: 4}
"""Powers of two, up and down, over which `spread` lies: products and squares stay finite."""
LEAST_ROWS = 9  # of `special`: its eight kinds and a normal one


def normal(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)


def positive(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers from one half to three halves, as variances and gains are."""
    return (torch.rand(shape, generator=rng, dtype=torch.float64) + 0.5).to(dtype)


def spread(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers times powers of two from the whole range that keeps products finite."""
    most = SPREAD[dtype]
    exponents = torch.randint(-most, most + 1, shape, generator=rng)
    drawn = torch.randn(shape, generator=rng, dtype=torch.float64)
    return torch.ldexp(drawn, exponents).to(dtype)


def subnormal(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers below the smallest normal one, of both signs."""
    smallest = torch.finfo(dtype).smallest_normal
    return ((torch.rand(shape, generator=rng, dtype=torch.float64) * 2 - 1) * smallest).to(dtype)


def distinct(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Rows of neighbouring numbers, no two alike, in random order and of random sign.

    Neighbours differ in the last bit only, so that a comparison in any lower precision errs.
    """
    rows, count = math.prod(shape[:-1]), shape[-1]
    words = torch.stack([torch.randperm(count, generator=rng) for _ in range(rows)])
    first = torch.tensor(0.5, dtype=dtype).view(WORDS[dtype.itemsize]).item()
    size = (words + first).to(WORDS[dtype.itemsize]).view(dtype).reshape(shape)
    return size * (torch.randint(0, 2, shape, generator=rng) * 2 - 1).to(dtype)


def repeated(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Multiples of a quarter near zero, so that most are there many times, zero in both signs."""
    quarters = torch.randint(-12, 13, shape, generator=rng).double() / 4
    signs = torch.randint(0, 2, shape, generator=rng).double() * 2 - 1
    return (quarters * signs).to(dtype)


def whole(magnitude: int) -> Fill:
    """Integers from -magnitude to magnitude, uniform."""

    def fill(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(-magnitude, magnitude + 1, shape, generator=rng).to(dtype)

    return fill


def indices(count: int) -> Fill:
    """Indices below `count`, with repetitions."""

    def fill(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        del dtype
        return torch.randint(0, count, shape, generator=rng)

    return fill


def mask(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """True for about two of three, and for the first of every row, so that no row is empty."""
    del dtype
    is_read = torch.rand(shape, generator=rng) < 2 / 3
    is_read[..., 0] = True
    return is_read


def special(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Rows of zeros in both signs, subnormals, large range, infinities and NaN, then normal ones.

    Row 0 is ordinary numbers with zeros of both signs between them, 1 subnormals, 2 a large
    dynamic range, 3 has one +Inf, 4 one -Inf, 5 one NaN, 6 an infinity of each sign; 7 is zeros.
    """
    values = tame(rng, shape, dtype)
    values[3, 1], values[4, 2], values[5, 3] = math.inf, -math.inf, math.nan
    values[6, 1], values[6, 2] = math.inf, -math.inf
    return values


def tame(rng: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """As `special`, but every number finite."""
    values = normal(rng, shape, dtype)
    values[0, 0::3], values[0, 1::3] = 0.0, -0.0
    values[1] = subnormal(rng, shape[1:], dtype)
    values[2] = spread(rng, shape[1:], dtype)
    values[7, 0::2], values[7, 1::2] = 0.0, -0.0
    return values


def cut_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """Rounded to the 10 bits after the leading one that TF32 keeps; ties go away from zero."""
    half = 1 << (TF32_DROPPED - 1)
    words = (values.view(torch.int32) + half) & ~((1 << TF32_DROPPED) - 1)
    return torch.where(values.isfinite(), words.view(torch.float32), values)
