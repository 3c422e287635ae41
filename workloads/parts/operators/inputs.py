"""What operators are fed: drawn from the seed where they are used, the same bits on every device.

Every fill takes its numbers from a drawer (`parts/drawing`), on the device or on the host, already
rounded to the number format, and puts them together by what no device rounds: integers, bits,
powers of two, look-ups. So a reference made of what the host draws judges the device's arithmetic
and its inputs alike. `special` holds what breaks kernels that pass on ordinary numbers, one kind to
a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from appliance.generator.maps import MOST_INTEGERS, NORMAL, UNIFORM, WORDS, integers
from workloads.parts.drawing.drawn import Drawer

Fill = Callable[[Drawer, str, tuple[int, ...], torch.dtype], torch.Tensor]
"""Makes the input of a name, which begins the names of all that is drawn for it."""

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
TF32_DROPPED = 13  # of the 23 bits after the leading one that float32 keeps
FRACTION = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
"""Bits after the leading one."""
BIAS = {torch.float64: 1023, torch.float32: 127}
"""What is added to an exponent where its bits stand."""
SPREAD = {torch.float64: 200, torch.float32: 30, torch.bfloat16: 30, torch.float16: 4}
"""Powers of two, up and down, over which `spread` lies: products and squares stay finite."""
LEAST_ROWS = 9  # of `special`: its eight kinds and a normal one


def normal(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers."""
    return drawer.tensor(name, NORMAL, dtype, shape)


def positive(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers from one half to three halves, as variances and gains are: a sum, rounded once."""
    return drawer.tensor(name, UNIFORM, dtype, shape) + 1.0


def spread(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers times powers of two from the whole range that keeps products finite."""
    most = SPREAD[dtype]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    drawn = drawer.tensor(f"{name}, exponents", integers(-most, most), torch.int32, shape)
    exponents = drawn.to(INTEGERS[wide.itemsize]) + BIAS[wide]
    powers = (exponents << FRACTION[wide]).view(wide)
    return (normal(drawer, name, shape, dtype).to(wide) * powers).to(dtype)


def subnormal(
    drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Numbers below the smallest normal one, of both signs: bits without an exponent."""
    bits, kept = INTEGERS[dtype.itemsize], 1 << FRACTION[dtype]
    values = WORDS if bits is torch.int64 else integers(-kept, kept - 1)
    drawn = drawer.tensor(f"{name}, subnormals", values, bits, shape)
    return (drawn & (torch.iinfo(bits).min | (kept - 1))).view(dtype)


def distinct(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Rows of neighbouring numbers, no two alike, in random order and of random sign.

    Neighbours differ in the last bit only, so that a comparison in any lower precision errs.
    """
    bits = INTEGERS[dtype.itemsize]
    keys = drawer.tensor(f"{name}, order", WORDS, torch.int64, shape)
    first = torch.tensor(0.5, dtype=dtype).view(bits).item()
    size = (keys.argsort(dim=-1, stable=True) + first).to(bits).view(dtype)
    return size * _signs(drawer, name, shape, dtype)


def repeated(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Multiples of a quarter near zero, so that most are there many times, zero in both signs."""
    quarters = drawer.tensor(name, integers(-12, 12), dtype, shape) * 0.25
    return quarters * _signs(drawer, name, shape, dtype)


def _signs(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """One of either sign."""
    return drawer.tensor(f"{name}, signs", integers(0, 1), dtype, shape) * 2 - 1


def whole(magnitude: int) -> Fill:
    """Integers from -magnitude to magnitude, uniform.

    From 2**23 on those that as many bits hold as are below the magnitude and a sign.
    """

    def fill(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if 2 * magnitude < MOST_INTEGERS:
            return drawer.tensor(name, integers(-magnitude, magnitude), dtype, shape)
        num_dropped = torch.int64.itemsize * 8 - magnitude.bit_length()
        return (drawer.tensor(name, WORDS, torch.int64, shape) >> num_dropped).to(dtype)

    return fill


def indices(count: int) -> Fill:
    """Indices below `count`, with repetitions."""

    def fill(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        del dtype
        return drawer.tensor(name, integers(0, count - 1), torch.int64, shape)

    return fill


def mask(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """True for two of three, and for the first of every row, so that no row is empty."""
    del dtype
    is_read = drawer.tensor(name, integers(0, 2), torch.int8, shape) > 0
    is_read[..., 0] = True
    return is_read


def special(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Rows of zeros in both signs, subnormals, large range, infinities and NaN, then normal ones.

    Row 0 is ordinary numbers with zeros of both signs between them, 1 subnormals, 2 a large
    dynamic range, 3 has one +Inf, 4 one -Inf, 5 one NaN, 6 an infinity of each sign; 7 is zeros.
    """
    values = tame(drawer, name, shape, dtype)
    values[3, 1], values[4, 2], values[5, 3] = math.inf, -math.inf, math.nan
    values[6, 1], values[6, 2] = math.inf, -math.inf
    return values


def tame(drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """As `special`, but every number finite."""
    values = normal(drawer, name, shape, dtype)
    values[0, 0::3], values[0, 1::3] = 0.0, -0.0
    values[1] = subnormal(drawer, f"{name}, row 1", shape[1:], dtype)
    values[2] = spread(drawer, f"{name}, row 2", shape[1:], dtype)
    values[7, 0::2], values[7, 1::2] = 0.0, -0.0
    return values


def cut_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """Rounded to the 10 bits after the leading one that TF32 keeps; ties go away from zero."""
    half = 1 << (TF32_DROPPED - 1)
    words = (values.view(torch.int32) + half) & ~((1 << TF32_DROPPED) - 1)
    return torch.where(values.isfinite(), words.view(torch.float32), values)
