"""A product in float8 (e4m3), as quantised training makes it: cast, multiply with scales.

One step casts float32 operands to float8 on the device and multiplies them with one scale each
into poisoned outputs of bfloat16. The casts have one right answer and are compared with the
host's to the bit, but for the sign of zero. The products, of what the host cast, are held to
float64 by the two gates of a product (operator_rules). These are wider than bfloat16's alone by
what a narrow accumulator costs with fast accumulation, and without (`parts/matmul/float8.py`).
Operands cut to fewer bits (e5m2), a wrong scale or layout, a wrong or unwritten element exceed
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from appliance.records.json import Parameters
from workloads.parts.matmul.float8 import narrow_error
from workloads.parts.operators.catalog import (
    Array,
    Arrays,
    Exact,
    Input,
    Operator,
    Tensors,
    into_poison,
)
from workloads.parts.operators.family import OperatorFamily

FORMAT = torch.float8_e4m3fn
MANTISSA_BITS, SMALLEST_EXPONENT = 3, -6
SCALES = (0.5, 0.125)


@dataclass(frozen=True, kw_only=True)
class OpFloat8(OperatorFamily):
    summary: ClassVar[str] = "Scaled product in float8 (e4m3), against float64"
    version: ClassVar[int] = 3
    needs: ClassVar[frozenset[str]] = frozenset({"float8"})
    formats: ClassVar[tuple[str, ...]] = ("float32",)
    small: ClassVar[Parameters] = {"size": 13}
    precision: ClassVar[str] = "float8"
    data_pattern: ClassVar[str] = "standard normal numbers"

    size: int = 127

    def operators(self) -> tuple[Operator, ...]:
        size = 16 * self.size  # the products of some devices take multiples of 16 alone
        return (
            product("float8 product", (size, 16 * self.size, size + 16)),
            product("float8 product of few rows", (16, 2 * size, size)),
            product("float8 product, fast sums", (size, 16 * self.size, 32), is_fast=True),
        )


def product(name: str, shape: tuple[int, int, int], *, is_fast: bool = False) -> Operator:
    """Scaled product of m x k by k x n; the right operand lies by columns, as devices want it.

    `is_fast`: with fast accumulation (`parts/matmul/float8.py`).
    """
    m, k, n = shape

    def apply(inputs: Tensors) -> Tensors:
        left, right = inputs["left"].to(FORMAT), inputs["right"].to(FORMAT)
        scales = [torch.tensor(scale, device=left.device) for scale in SCALES]
        call = torch._scaled_mm  # noqa: SLF001 - torch has no public one
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": is_fast}
        output = into_poison(call, left, right.t(), *scales, **options)
        positive_zero = 0.0  # added, so that a zero has one sign
        return {"": output, "cast": left.float() + positive_zero}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        left, right = cast(inputs["left"]), cast(inputs["right"]).T
        scale = SCALES[0] * SCALES[1]
        value, terms = left @ right * scale, np.abs(left) @ np.abs(right) * scale
        return {
            "": Exact(value=value, size=terms, dtype=torch.bfloat16),
            "cast": Exact(value=left + 0.0, rule="exact"),
        }

    return Operator(
        name=name,
        inputs={"left": Input(shape=(m, k)), "right": Input(shape=(n, k))},
        apply=apply,
        exact=exact,
        rule="product",
        inner=k,
        extra=narrow_error(k, is_fast=is_fast),
        flops=2 * m * n * k,
    )


def cast(values: Array) -> Array:
    """Rounded to nearest, ties to even, in e4m3: 3 bits after the leading one, from 2**-6 on."""
    _, exponents = np.frexp(values)
    steps = np.ldexp(1.0, np.maximum(exponents - 1, SMALLEST_EXPONENT) - MANTISSA_BITS)
    rounded: Array = np.rint(values / steps) * steps
    return rounded


WORKLOAD = OpFloat8
