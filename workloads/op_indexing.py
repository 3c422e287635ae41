"""Operators that move and order: embedding, gather, scatter_add, sort and topk, all exact.

One step calls each once, into poisoned outputs: odd lengths, one row, strided and transposed
views, no indices at all, repeated keys in a stable sort, and rows with zeros of both signs,
subnormals, infinities and NaN. There is one right answer, which numpy gives on the host, and the
elements whose bits differ are counted: one wrong, lost, swapped or unwritten element shows, and so
does a lower precision, which changes the numbers that are moved. scatter_add adds integers,
whose sums are exact in any order, so that atomic additions give one answer too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.workload import Bound
from workloads.parts.operators.catalog import Arrays, Exact, Input, Operator, Tensors, into_poison
from workloads.parts.operators.family import OperatorFamily
from workloads.parts.operators.inputs import (
    Fill,
    distinct,
    indices,
    normal,
    repeated,
    special,
    whole,
)

NUM_LARGEST = 7  # what topk keeps
LARGEST = 8  # of the integers that are added up: a few hundred are exact in any format


@dataclass(frozen=True, kw_only=True)
class OpIndexing(OperatorFamily):
    summary: ClassVar[str] = "Embedding, gather, scatter_add, sort and topk, exact to the bit"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"

    def operators(self) -> tuple[Operator, ...]:
        size, length = self.size, 8 * self.size + 5
        return (
            embedding("embedding", (size, 33), 4 * size + 1),
            embedding("embedding of no tokens", (size, 33), 0),
            gather("gather", (size, length), 3 * size + 2),
            gather("gather of a strided view", (size, 2 * length), 7, view=lambda x: x[:, ::2]),
            gather("gather of special values", (11, length), 4 * size + 1, fill=special),
            scatter_add("scatter_add", (size, length), 2 * size + 1),
            sort("sort", (size, length), fill=repeated),
            sort("sort of one row", (1, length)),
            sort("sort of a transposed view", (length, 31), view=lambda x: x.swapaxes(0, 1)),
            sort("sort of special values", (11, length), fill=special),
            topk("topk", (size, 16 * 8 + 5)),
        )


def embedding(name: str, shape: tuple[int, int], count: int) -> Operator:
    """Rows of a table by token number; torch's embedding takes no output, its selection does."""
    call = torch.nn.functional.embedding

    def apply(inputs: Tensors) -> Tensors:
        looked_up = call(inputs["tokens"], inputs["table"])
        selected = into_poison(torch.index_select, inputs["table"], 0, inputs["tokens"])
        if not count:
            return {"shape": torch.tensor(looked_up.shape)}
        return {"": looked_up, "selected": selected}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = Exact(value=inputs["table"][inputs["tokens"]])
        return {"": rows, "selected": rows} if count else {"shape": Exact(value=np.array([0, 33]))}

    return Operator(
        name=name,
        inputs={
            "table": Input(shape=shape),
            "tokens": Input(shape=(count,), fill=indices(shape[0])),
        },
        apply=apply,
        exact=exact,
        rule="exact",
    )


def gather(
    name: str,
    shape: tuple[int, int],
    count: int,
    *,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda rows: rows,
) -> Operator:
    """From each row of the view `count` numbers by their places."""
    most = shape[1] // 2 if fill is normal else shape[1]
    return Operator(
        name=name,
        inputs={
            "rows": Input(shape=shape, fill=fill, view=view),
            "places": Input(shape=(shape[0], count), fill=indices(most)),
        },
        apply=lambda inputs: {
            "": into_poison(torch.gather, inputs["rows"], 1, inputs["places"]),
        },
        exact=lambda inputs: {
            "": Exact(value=np.take_along_axis(inputs["rows"], inputs["places"], axis=1))
        },
        rule="exact",
        is_special=fill is special,
    )


def scatter_add(name: str, shape: tuple[int, int], count: int) -> Operator:
    """Adds integers at places that repeat; what is left out keeps what was there."""

    def apply(inputs: Tensors) -> Tensors:
        out = into_poison(torch.scatter_add, inputs["rows"], 1, inputs["places"], inputs["terms"])
        return {"": out}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        sums = inputs["rows"].copy()
        lines = np.arange(len(sums))[:, None]
        np.add.at(sums, (lines, inputs["places"]), inputs["terms"])
        return {"": Exact(value=sums)}

    return Operator(
        name=name,
        inputs={
            "rows": Input(shape=shape, fill=whole(LARGEST)),
            "places": Input(shape=(shape[0], count), fill=indices(shape[1])),
            "terms": Input(shape=(shape[0], count), fill=whole(LARGEST)),
        },
        apply=apply,
        exact=exact,
        rule="exact",
    )


def sort(
    name: str,
    shape: tuple[int, int],
    *,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda rows: rows,
) -> Operator:
    """Stable sort of each row of the view, NaN last, and the order that it found."""

    def apply(inputs: Tensors) -> Tensors:
        values, order = into_poison(torch.sort, inputs["rows"], dim=-1, stable=True)
        return {"": values, "order": order}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        order = np.argsort(inputs["rows"], axis=-1, kind="stable")
        values = np.take_along_axis(inputs["rows"], order, axis=-1)
        return {"": Exact(value=values), "order": Exact(value=order)}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=fill, view=view)},
        apply=apply,
        exact=exact,
        rule="exact",
        is_special=fill is special,
    )


def topk(name: str, shape: tuple[int, int]) -> Operator:
    """The largest numbers of each row and their places, among numbers that are all distinct."""

    def apply(inputs: Tensors) -> Tensors:
        values, places = into_poison(torch.topk, inputs["rows"], k=NUM_LARGEST, dim=-1)
        return {"": values, "places": places}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        places = np.argsort(-inputs["rows"], axis=-1, kind="stable")[:, :NUM_LARGEST]
        values = np.take_along_axis(inputs["rows"], places, axis=-1)
        return {"": Exact(value=values), "places": Exact(value=places)}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=distinct)},
        apply=apply,
        exact=exact,
        rule="exact",
    )


WORKLOAD = OpIndexing
