"""A product in 8-bit integers, as quantised inference makes it: quantise, multiply, scale back.

One step rounds float32 activations and weights to 8-bit integers on the device, multiplies them
with 32-bit sums into poisoned outputs, and scales the sums back to float32: shapes that are no
powers of two, one of few rows, and one whose sums are as large as they get. Integers have one right
answer in any order, and the scales are powers of two, which round nothing: all three outputs are
compared with the host's to the bit. One wrong, lost or swapped element shows, a saturating
accumulator, a quantiser that rounds the wrong way, and any float format in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from appliance.generator.maps import Map, integers
from appliance.records.json import Parameters
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.operators.catalog import Arrays, Exact, Input, Operator, Tensors, into_poison
from workloads.parts.operators.family import OperatorFamily

LARGEST = 127
STEP = 2.0**-5  # activations and weights per integer
PARTS = 2**16  # of a step, by which values are off
UNCERTAIN = 0.4  # how far from an integer a value may lie, so that its rounding is sure


@dataclass(frozen=True, kw_only=True)
class OpInt8(OperatorFamily):
    summary: ClassVar[str] = "Quantised product in 8-bit integers, exact to the bit"
    version: ClassVar[int] = 3
    needs: ClassVar[frozenset[str]] = frozenset({"int8"})
    formats: ClassVar[tuple[str, ...]] = ("float32",)
    small: ClassVar[Parameters] = {"size": 7}
    precision: ClassVar[str] = "int8"
    data_pattern: ClassVar[str] = "uniform 8-bit integers, each off by up to 0.4 before rounding"

    size: int = 125

    def operators(self) -> tuple[Operator, ...]:
        size = 16 * self.size  # the products of some devices take multiples of 16 alone
        return (
            product("int8 product", (size, 2 * size, size + 16)),
            product("int8 product of few rows", (32, size, 2 * size)),
            product("int8 product, largest sums", (48, 2 * size, 32), is_largest=True),
        )


def near_integers(
    drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Multiples of STEP by integers to LARGEST, off by at most UNCERTAIN of it."""
    return _off(drawer, name, integers(-LARGEST, LARGEST), shape, dtype)


def near_largest(
    drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """As `near_integers`, all of one sign and within 7 of the largest."""
    return _off(drawer, name, integers(LARGEST - 7, LARGEST), shape, dtype)


def _off(
    drawer: Drawer, name: str, values: Map, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Integers, each off by a number of PARTS: sums of 24 bits, which float32 holds."""
    most = int(UNCERTAIN * PARTS)
    whole = drawer.tensor(name, values, torch.int32, shape)
    off = drawer.tensor(f"{name}, off", integers(-most, most), torch.int32, shape)
    return (whole * PARTS + off).to(dtype) * (STEP / PARTS)


def product(name: str, shape: tuple[int, int, int], *, is_largest: bool = False) -> Operator:
    """Quantised product of m x k by k x n; the right operand lies by columns, for devices' sake."""
    m, k, n = shape
    fill = near_largest if is_largest else near_integers

    def quantised(values: torch.Tensor) -> torch.Tensor:
        return torch.round(values / STEP).to(torch.int8)

    def apply(inputs: Tensors) -> Tensors:
        left, right = quantised(inputs["left"]), quantised(inputs["right"])
        sums = into_poison(torch._int_mm, left, right.t())  # noqa: SLF001 - torch has no public one
        scaled = sums.float() * STEP**2
        return {"": sums, "quantised": left, "scaled": scaled}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        left, right = (np.rint(inputs[key] / STEP) for key in ("left", "right"))
        sums = left @ right.T  # integers below 2**53: exact in float64
        stored = sums.astype(np.float32).astype(np.float64)
        return {
            "": Exact(value=sums.astype(np.int32)),
            "quantised": Exact(value=left.astype(np.int8)),
            "scaled": Exact(value=stored * STEP**2),
        }

    return Operator(
        name=name,
        inputs={
            "left": Input(shape=(m, k), fill=fill),
            "right": Input(shape=(n, k), fill=fill),
        },
        apply=apply,
        exact=exact,
        rule="exact",
        inner=k,
        flops=2 * m * n * k,
    )


WORKLOAD = OpInt8
