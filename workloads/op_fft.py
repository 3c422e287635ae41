"""Fourier transforms one by one: complex, real, inverse and in two dimensions.

One step calls each once, into poisoned outputs: lengths that are prime, odd and smooth, one row,
a strided view, and rows with zeros of both signs, subnormals, a large range and NaN. Each output
is held to the error that the same call makes on the host in the same format, and every element to
four times that; the float64 reference is numpy's transform, another code than torch's. A lower
precision, a wrong or unwritten element or a wrong scale breaks it. Transforms exist in float32
and float64 on every device; in 16 bits only for some lengths on some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.json import Parameters
from appliance.records.workload import Bound
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.operators.catalog import (
    Array,
    Arrays,
    Exact,
    Input,
    Operator,
    Tensors,
    into_poison,
    root_of_squares,
)
from workloads.parts.operators.family import OperatorFamily
from workloads.parts.operators.inputs import Fill, normal, special

PRIME, ODD, SMOOTH = 1021, 945, 1024


@dataclass(frozen=True, kw_only=True)
class OpFft(OperatorFamily):
    summary: ClassVar[str] = "Fourier transforms, each against float64"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"
    small: ClassVar[Parameters] = {"size": 5}
    formats: ClassVar[tuple[str, ...]] = ("float64", "float32")

    size: int = 127

    def operators(self) -> tuple[Operator, ...]:
        size = self.size
        return (
            complex_transform("fft of prime length", (size, PRIME)),
            complex_transform("fft of length 1024", (size, SMOOTH)),
            complex_transform("inverse fft", (size, ODD), call=torch.fft.ifft, formula=np.fft.ifft),
            complex_transform("fft of one row", (1, ODD)),
            complex_transform("fft of a strided view", (size, 2 * ODD), view=lambda x: x[:, ::2]),
            complex_transform("fft of special values", (11, ODD), fill=without_infinities),
            real_transform("rfft", (size, ODD)),
            complex_transform("fft2", (3, size, 48), call=torch.fft.fft2, formula=np.fft.fft2),
        )


def without_infinities(
    drawer: Drawer, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """As `special`; what a transform makes of an infinity depends on its algorithm."""
    values = special(drawer, name, shape, dtype)
    return torch.where(values.isinf(), torch.ones_like(values), values)


def as_real(values: Array) -> Exact:
    """Real and imaginary parts side by side, measured by the root mean square of the row."""
    parts = np.stack([values.real, values.imag], axis=-1)
    rows = root_of_squares(parts, (-1, -2)) / values.shape[-1] ** 0.5
    return Exact(value=parts, size=np.broadcast_to(rows, parts.shape))


def complex_transform(
    name: str,
    shape: tuple[int, ...],
    *,
    call: Callable[..., torch.Tensor] = torch.fft.fft,
    formula: Callable[..., Any] = np.fft.fft,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda rows: rows,
) -> Operator:
    """Transform of each row or plane of complex numbers, given as two real inputs."""

    def apply(inputs: Tensors) -> Tensors:
        rows = torch.complex(inputs["real"], inputs["imaginary"])
        return {"": torch.view_as_real(into_poison(call, rows))}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        return {"": as_real(formula(inputs["real"] + 1j * inputs["imaginary"]))}

    return Operator(
        name=name,
        inputs={
            "real": Input(shape=shape, fill=fill, view=view),
            "imaginary": Input(shape=shape, fill=fill, view=view),
        },
        apply=apply,
        exact=exact,
        is_special=fill is not normal,
        loose=10.0,  # prime lengths go by two longer transforms (Bluestein 1970)
    )


def real_transform(name: str, shape: tuple[int, int]) -> Operator:
    """Transform of each row of real numbers: half of the spectrum."""
    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape)},
        apply=lambda inputs: {"": torch.view_as_real(into_poison(torch.fft.rfft, inputs["rows"]))},
        exact=lambda inputs: {"": as_real(np.fft.rfft(inputs["rows"]))},
        loose=10.0,
    )


WORKLOAD = OpFft
