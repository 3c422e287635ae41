"""The number formats that a burn-in multiplies in, one after the other, where the device has them.

Each says what its exact operands may be, so that every partial sum fits the accumulator in any
order of sums, and how far a product of random ones may be from float64 (`parts.matmul.floating`,
`parts.matmul.float8`, `parts.matmul.tf32`). Sums of float8 are exact in 13 bits, which the narrow
accumulator of some devices keeps; integers of 8 bits have one right answer whatever they are, in
32 bits, so that their random operands are exact too. TF32 is float32 with operands cut to 11
significant bits, which the exact operands fit. Processors have no TF32 and multiply in float32;
they leave out float16, whose products torch makes there one element at a time where the processor
has no instructions for it: 1 GFLOP/s measured on an AMD EPYC with AVX-512, beside 456 in bfloat16,
109 in float32, 56 in float64, 82 in float8 and 998 in int8, on one core at a side of 1024.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from appliance.vendors.torch_settings import choose_float32_products, float32_products
from workloads.contract.failures import ParameterError
from workloads.parts.matmul.float8 import narrow_error
from workloads.parts.matmul.tf32 import LEAST, MOST
from workloads.parts.memory.chain import largest_magnitude
from workloads.parts.numerics.precision import unit_roundoff

STORED = 0.6  # of the unit roundoff of a 16-bit result; 0.42 is earned
MULTIPLE = 128
"""Sides of which formats of one byte take multiples: some devices want 16 in each quarter."""
NARROW_BITS = 13
LARGEST_INTEGER = 127
TRIAL = 128


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format, of the operands and of the result.

    `accumulated`: relative error of float sums for each 4096 of the inner dimension, where these
    and not the stored result limit it. `in_tf32`: operands are cut to TF32 inside the product.
    """

    name: str
    operands: torch.dtype
    result: torch.dtype
    accumulated: float | None = None
    in_tf32: bool = False

    @property
    def is_float8(self) -> bool:
        return self.operands == torch.float8_e4m3fn

    @property
    def is_integer(self) -> bool:
        return self.operands == torch.int8

    @property
    def by_columns(self) -> bool:
        """Whether the right operand lies by columns, as products of bytes want it."""
        return self.operands.itemsize == 1

    def magnitude(self, inner: int) -> int:
        """Largest integer of the exact operands, before rows and columns are scaled."""
        if self.is_integer:
            return LARGEST_INTEGER // 8  # scaled by 8 at most
        bits = NARROW_BITS if self.is_float8 else None
        most = int(1 / unit_roundoff(torch.float16 if self.in_tf32 else self.operands))
        return min(most, largest_magnitude(self.result, inner, bits=bits))

    def rounding(self, inner: int) -> float:
        """Relative error that is allowed of a row of a product of random operands."""
        if self.is_integer:
            return 0.0
        if self.in_tf32:
            return MOST
        if self.accumulated is not None:
            return self.accumulated * max(1.0, inner / 4096)
        narrow = narrow_error(inner, is_fast=False) if self.is_float8 else 0.0
        return STORED * unit_roundoff(self.result) + narrow

    def least_rounding(self) -> float:
        """Relative error that a product must have at least: TF32 cuts its operands."""
        return LEAST if self.in_tf32 else 0.0

    def draw(self, size: int, rng: torch.Generator) -> torch.Tensor:
        """A square operand of random numbers: normal ones, or integers of all sizes."""
        if self.is_integer:
            low, high = -LARGEST_INTEGER, LARGEST_INTEGER + 1
            return torch.randint(low, high, (size, size), generator=rng, dtype=torch.int8)
        return torch.randn((size, size), generator=rng).to(self.operands)

    def laid(self, right: torch.Tensor) -> torch.Tensor:
        """A right operand as the product wants it in memory."""
        return right.T.contiguous().T if self.by_columns else right.contiguous()

    def multiply(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """One product, written where it is wanted; launched and not waited for."""
        if self.is_integer:
            torch._int_mm(left, right, out=out)  # noqa: SLF001 - none is public
        elif self.is_float8:
            one = torch.ones((), device=left.device)
            torch._scaled_mm(  # noqa: SLF001 - none is public
                left, right, one, one, out_dtype=self.result, use_fast_accum=False, out=out
            )
        else:
            torch.mm(left, right, out=out)


FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format(name="bfloat16", operands=torch.bfloat16, result=torch.bfloat16),
        Format(name="float16", operands=torch.float16, result=torch.float16),
        Format(name="tf32", operands=torch.float32, result=torch.float32, in_tf32=True),
        Format(name="float32", operands=torch.float32, result=torch.float32, accumulated=1e-5),
        Format(name="float8", operands=torch.float8_e4m3fn, result=torch.bfloat16),
        Format(name="float64", operands=torch.float64, result=torch.float64, accumulated=1e-13),
        Format(name="int8", operands=torch.int8, result=torch.int32),
    )
}
OF_PROCESSORS = ("bfloat16", "float32", "float8", "float64", "int8")
OF_ACCELERATORS = ("bfloat16", "float16", "tf32", "float8", "float64", "int8")


def chosen(names: str, device: torch.device, torch_type: str) -> tuple[Format, ...]:
    """The formats that a comma-separated list names; "all" are those that the device has.

    Raises ParameterError where a format that is named, or every one, cannot be multiplied here.
    """
    if names != "all":
        wanted = parsed(names)
        lacking = [one.name for one in wanted if not _works(one, device, torch_type)]
        if lacking:
            raise ParameterError(
                f"formats has {lacking[0]}, which the device does not multiply: leave it out"
            )
        return wanted
    every = OF_PROCESSORS if device.type == "cpu" else OF_ACCELERATORS
    has = tuple(FORMATS[name] for name in every if _works(FORMATS[name], device, torch_type))
    if not has:
        raise ParameterError(f"the device multiplies none of {', '.join(every)}: name formats")
    return has


def parsed(names: str) -> tuple[Format, ...]:
    """The formats of a comma-separated list, or every one for "all".

    Raises ParameterError for a name that is none, or that comes twice.
    """
    if names == "all":
        return tuple(FORMATS.values())
    listed = [name.strip() for name in names.split(",")]
    for name in listed:
        if name not in FORMATS or listed.count(name) > 1:
            raise ParameterError(
                f'formats is {names!r}: give "all" or some of {", ".join(FORMATS)}, each once'
            )
    return tuple(FORMATS[name] for name in listed)


@contextmanager
def switched(one: Format, torch_type: str) -> Iterator[None]:
    """Float32 products in TF32 inside, if the format asks for it, and as they were behind it."""
    if not one.in_tf32:
        yield
        return
    before = float32_products(torch_type)["matmul"] == "tf32"
    choose_float32_products(torch_type, in_tf32=True)
    try:
        yield
    finally:
        choose_float32_products(torch_type, in_tf32=before)


def _works(one: Format, device: torch.device, torch_type: str) -> bool:
    """Whether a small product comes out, and in TF32 if that was asked for."""
    rng = torch.Generator().manual_seed(1)
    left, right = one.draw(TRIAL, rng), one.draw(TRIAL, rng)
    out = torch.empty((TRIAL, TRIAL), dtype=one.result, device=device)
    try:
        with switched(one, torch_type):
            one.multiply(left.to(device), one.laid(right).to(device), out)
            made = out.cpu().double()
    except (RuntimeError, NotImplementedError, ValueError):
        return False
    exact = left.double() @ right.double()
    return float((made - exact).norm() / exact.norm()) >= one.least_rounding()
