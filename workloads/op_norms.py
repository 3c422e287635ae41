"""Normalisations one by one: layer norm, batch norm and softmax, in awkward shapes.

One step calls each once: odd lengths, one row, transposed and strided views, training and
inference, masked rows, and rows with zeros, subnormals, a large range, infinities and NaN. Each
output is held to the error that the same call makes on the host, in the same format, and each of
its elements to four times that: a lower precision, a scale, a wrong element, an unwritten row or
a NaN where none belongs breaks it. Softmax takes an output, which is poisoned; the norms make
their own, so memory of its size is poisoned before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.workload import Bound
from workloads.parts.operators.catalog import (
    Array,
    Arrays,
    Exact,
    Input,
    Operator,
    Tensors,
    after_poison,
    into_poison,
)
from workloads.parts.operators.family import OperatorFamily
from workloads.parts.operators.inputs import Fill, normal, positive, special

EPSILON, MOMENTUM = 1e-3, 0.25


@dataclass(frozen=True, kw_only=True)
class OpNorms(OperatorFamily):
    summary: ClassVar[str] = "Layer norm, batch norm and softmax, each against float64"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"

    def operators(self) -> tuple[Operator, ...]:
        size, length = self.size, 8 * self.size + 5
        return (
            layer_norm("layer norm", (size, length)),
            layer_norm("layer norm of one row", (1, length)),
            layer_norm("layer norm of a transposed view", (length, size), view=transposed),
            layer_norm("layer norm of special values", (11, length), fill=special),
            batch_norm("batch norm, training", (5, size, 13, 3), is_training=True),
            batch_norm("batch norm, inference", (5, size, 13, 3), is_training=False),
            softmax("softmax", (size, length)),
            softmax("softmax of one row", (1, length)),
            softmax("softmax of a strided view", (size, 2 * length), view=lambda x: x[:, ::2]),
            softmax("softmax over columns", (length, size), axis=0),
            softmax("softmax of special values", (11, length), fill=special),
        )


def transposed(whole: Any) -> Any:
    return whole.swapaxes(-1, -2)


def layer_norm(
    name: str,
    shape: tuple[int, int],
    *,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda whole: whole,
) -> Operator:
    """Layer norm over the last dimension of the view, with gains and shifts."""
    length = shape[0] if view is transposed else shape[1]
    call: Callable[..., torch.Tensor] = partial(
        torch.nn.functional.layer_norm, normalized_shape=(length,), eps=EPSILON
    )

    def apply(inputs: Tensors) -> Tensors:
        output = after_poison(call, inputs["rows"], weight=inputs["gains"], bias=inputs["shifts"])
        return {"": output}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        return {"": standardised(inputs["rows"], inputs["gains"], inputs["shifts"])}

    return Operator(
        name=name,
        inputs={
            "rows": Input(shape=shape, fill=fill, view=view),
            "gains": Input(shape=(length,), fill=positive),
            "shifts": Input(shape=(length,)),
        },
        apply=apply,
        exact=exact,
        is_special=fill is special,
    )


def standardised(rows: Array, gains: Array, shifts: Array) -> Exact:
    distance = rows - rows.mean(axis=-1, keepdims=True)
    variance = np.square(distance).mean(axis=-1, keepdims=True)
    return Exact(value=distance / np.sqrt(variance + EPSILON) * gains + shifts)


def batch_norm(name: str, shape: tuple[int, int, int, int], *, is_training: bool) -> Operator:
    """Batch norm over images and pixels; training also moves the running statistics."""
    channels = shape[1]

    def apply(inputs: Tensors) -> Tensors:
        mean, variance = inputs["mean"].clone(), inputs["variance"].clone()
        after_poison(torch.clone, inputs["images"])
        output = torch.nn.functional.batch_norm(
            inputs["images"],
            mean,
            variance,
            inputs["gains"],
            inputs["shifts"],
            is_training,
            MOMENTUM,
            EPSILON,
        )
        return {"": output, "mean": mean, "variance": variance} if is_training else {"": output}

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        images, mean, variance = inputs["images"], inputs["mean"], inputs["variance"]
        moved: dict[str, Exact] = {}
        if is_training:
            mean, variance = images.mean(axis=(0, 2, 3)), images.var(axis=(0, 2, 3))
            count = images.size // channels
            moved["mean"] = blend(inputs["mean"], mean)
            moved["variance"] = blend(inputs["variance"], variance * count / (count - 1))

        def along(values: Array) -> Array:
            return values[:, None, None]

        scale = inputs["gains"] / np.sqrt(variance + EPSILON)
        output = (images - along(mean)) * along(scale) + along(inputs["shifts"])
        terms = (np.abs(images) + along(np.abs(mean))) * along(scale)
        return {"": Exact(value=output, size=terms + along(np.abs(inputs["shifts"]))), **moved}

    return Operator(
        name=name,
        inputs={
            "images": Input(shape=shape),
            "mean": Input(shape=(channels,)),
            "variance": Input(shape=(channels,), fill=positive),
            "gains": Input(shape=(channels,), fill=positive),
            "shifts": Input(shape=(channels,)),
        },
        apply=apply,
        exact=exact,
    )


def blend(old: Array, new: Array) -> Exact:
    return Exact(value=(1 - MOMENTUM) * old + MOMENTUM * new)


def softmax(
    name: str,
    shape: tuple[int, int],
    *,
    axis: int = -1,
    fill: Fill = normal,
    view: Callable[[Any], Any] = lambda whole: whole,
) -> Operator:
    """Softmax along one axis."""

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        rows = inputs["rows"]
        powers = np.exp(rows - rows.max(axis=axis, keepdims=True))
        return {"": Exact(value=powers / powers.sum(axis=axis, keepdims=True))}

    return Operator(
        name=name,
        inputs={"rows": Input(shape=shape, fill=fill, view=view)},
        apply=lambda inputs: {"": into_poison(torch.softmax, inputs["rows"], dim=axis)},
        exact=exact,
        is_special=fill is special,
    )


WORKLOAD = OpNorms
