"""Reductions one by one: sum, mean, maximum, log of a sum of exponentials, running sum.

One step calls each once, into poisoned outputs: along rows and columns, of odd lengths, strided
and transposed views, one row, no terms at all, and rows with zeros, subnormals, a large range,
infinities and NaN. Sums, means and logarithms are held to the error that the same call makes on
the host in the same format, every element to four times that over the terms that it sums. Maxima
and their places are exact, among neighbouring numbers that any lower precision confuses. Running
sums are of integers so small that every partial sum is held exactly: in whatever order a
device adds, one answer is right, and one wrong element shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.workload import Bound
from workloads.parts.numerics.precision import unit_roundoff
from workloads.parts.operators.catalog import (
    Arrays,
    Exact,
    Input,
    Operator,
    Tensors,
    into_poison,
    root_of_squares,
)
from workloads.parts.operators.family import OperatorFamily
from workloads.parts.operators.inputs import Fill, distinct, normal, special, whole

RUN = 517  # terms of a running sum
DEVIATIONS = 8  # of a sum, which the format must hold exactly


@dataclass(frozen=True, kw_only=True)
class OpReductions(OperatorFamily):
    summary: ClassVar[str] = "Sums, means, maxima, log-sum-exp and running sums, against float64"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"

    def operators(self) -> tuple[Operator, ...]:
        size, length = self.size, 16 * self.size + 5
        return (
            total("sum", (size, length)),
            total("sum over columns", (length, size), axis=0),
            total("sum of a strided view", (size, 2 * length), view=lambda x: x[:, ::2]),
            total("sum of one row", (1, length)),
            total("sum of no terms", (size, 0)),
            total("sum of special values", (11, length), fill=special),
            mean("mean", (size, length)),
            mean("mean of a transposed view", (length, size), view=lambda x: x.swapaxes(0, 1)),
            mean("mean of special values", (11, length), fill=special),
            maximum("maximum", (size, 16 * 8 + 5)),
            maximum_of_special((11, length)),
            log_sum_exp("log-sum-exp", (size, length)),
            log_sum_exp("log-sum-exp of one row", (1, length)),
            log_sum_exp("log-sum-exp of special values", (11, length), fill=special),
            running_sum("running sum", (size, RUN), self.format),
            running_sum("running sum over columns", (RUN, size), self.format, axis=0),
        )


def total(
    name: str,
    shape: tuple[int, int],
    *,
    axis: int = -1,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda rows: rows,
) -> Operator:
    """Sum along one axis; an element is measured by the root of the sum of its squared terms."""

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = inputs["rows"]
        size = root_of_squares(rows, axis).squeeze(axis)
        return {"": Exact(value=rows.sum(axis=axis), size=size)}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=fill, view=view)},
        apply=lambda inputs: {"": into_poison(torch.sum, inputs["rows"], dim=axis)},
        exact=exact,
        is_special=fill is special,
    )


def mean(
    name: str,
    shape: tuple[int, int],
    *,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda rows: rows,
) -> Operator:
    """Mean of each row of the view."""

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = inputs["rows"]
        size = root_of_squares(rows).squeeze(-1) / rows.shape[-1]
        return {"": Exact(value=rows.mean(axis=-1), size=size)}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=fill, view=view)},
        apply=lambda inputs: {"": into_poison(torch.mean, inputs["rows"], dim=-1)},
        exact=exact,
        is_special=fill is special,
    )


def maximum(name: str, shape: tuple[int, int]) -> Operator:
    """Largest number of each row and its place, among numbers that differ in the last bit."""

    def apply(inputs: Tensors) -> Tensors:
        values, places = into_poison(torch.max, inputs["rows"], dim=-1)
        return {"": values, "places": places}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = inputs["rows"]
        return {
            "": Exact(value=rows.max(axis=-1)),
            "places": Exact(value=rows.argmax(axis=-1)),
        }

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=distinct)},
        apply=apply,
        exact=exact,
        rule="exact",
    )


def maximum_of_special(shape: tuple[int, int]) -> Operator:
    """Largest number of each row, NaN where there is one; which zero is larger is undefined."""
    return Operator(
        name="maximum of special values",
        inputs={"rows": Input(shape=shape, fill=special)},
        apply=lambda inputs: {"": into_poison(torch.amax, inputs["rows"], dim=-1)},
        exact=lambda inputs: {"": Exact(value=inputs["rows"].max(axis=-1))},
        is_special=True,
    )


def log_sum_exp(name: str, shape: tuple[int, int], *, fill: Fill = normal) -> Operator:
    """Logarithm of the sum of the exponentials of each row."""

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = inputs["rows"]
        most = rows.max(axis=-1, keepdims=True)
        most = np.where(np.isinf(most), 0.0, most)
        return {"": Exact(value=np.log(np.exp(rows - most).sum(axis=-1)) + most[..., 0])}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=fill)},
        apply=lambda inputs: {"": into_poison(torch.logsumexp, inputs["rows"], dim=-1)},
        exact=exact,
        is_special=fill is special,
    )


def running_sum(
    name: str, shape: tuple[int, int], dtype: torch.dtype, *, axis: int = -1
) -> Operator:
    """Running sum of integers, as large as leaves every partial sum exact."""
    spread = 1 / unit_roundoff(dtype) / DEVIATIONS / shape[axis] ** 0.5
    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=whole(max(1, int(3**0.5 * spread))))},
        apply=lambda inputs: {"": into_poison(torch.cumsum, inputs["rows"], dim=axis)},
        exact=lambda inputs: {"": Exact(value=inputs["rows"].cumsum(axis=axis))},
        rule="exact",
    )


WORKLOAD = OpReductions
