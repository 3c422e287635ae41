"""Products one by one: matrix, batched, convolution, attention, in awkward shapes.

One step calls each of them once: inner dimensions that are no multiple of 16, one row, transposed
and strided operands, no terms and no rows at all, masked and causal attention, grouped and dilated
convolutions, and operands with zeros of both signs, subnormals, a large range, infinities and NaN.
Matrix products are held to two gates each, of the whole and of every element, and 16-bit ones may
not be better than their format either; convolutions and attention to the error that the same call
makes on the host (operator_rules has the figures). A lower precision, a wrong or unwritten
element, a lost row, an infinity too many or too few: each breaks a gate.

`dtype` "tf32" asks for float32 products in TF32, for which the worker sets the device, of operands
cut to its 10 bits: products are exact and sums as in float32, so that the gates of float32 hold.
Convolutions and attention take no output, so they are called after memory of their size was
poisoned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from workloads.parts.matmul.products import FLOATS
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
from workloads.parts.operators.inputs import mask, normal, special

HEADS, DEPTH = 3, 24


@dataclass(frozen=True, kw_only=True)
class OpProducts(OperatorFamily):
    summary: ClassVar[str] = "Matrix products, convolutions and attention, each against float64"
    version: ClassVar[int] = 3
    formats: ClassVar[tuple[str, ...]] = (*FLOATS, "tf32")

    def operators(self) -> tuple[Operator, ...]:
        size = self.size
        inner = 16 * size + 5
        return (
            matmul("matmul", (size, inner, size + 2)),
            matmul("matmul of one row", (1, inner, 8 * size + 3)),
            matmul("matmul of transposed views", (size, size + 6, size + 2), is_transposed=True),
            matmul("matmul of strided views", (size + 2, size + 4, size), step=2),
            matmul("batched matmul", (size, size + 14, size + 2), batch=3),
            matmul("matmul of no terms", (5, 0, 7)),
            matmul("matmul of no rows", (0, 5, 7)),
            special_matmul(size),
            convolution("conv2d, stride 2", (1, 7, 2 * size - 1, size), (size, 7, 3, 3), stride=2),
            convolution("conv2d, 3 groups, dilation 2", (2, 9, size, 19), (15, 3, 3, 3), groups=3),
            attention("attention", size, size + 4),
            attention("masked attention", size, size + 4, is_masked=True),
            attention("causal attention", size, size, is_causal=True),
        )


# ------------------------------------------------------------------ matrix products


def matmul(
    name: str,
    shape: tuple[int, int, int],
    *,
    batch: int = 0,
    is_transposed: bool = False,
    step: int = 1,
) -> Operator:
    """Product of m x k by k x n; `step` takes every so many-th column, and row, of the operands."""
    m, k, n = shape
    lead = (batch,) if batch else ()
    if is_transposed:
        left = Input(shape=(*lead, k, m), view=lambda whole: whole.swapaxes(-1, -2))
        right = Input(shape=(*lead, n, k), view=lambda whole: whole.swapaxes(-1, -2))
    else:
        left = Input(shape=(*lead, m, k * step), view=lambda whole: whole[..., ::step])
        right = Input(shape=(*lead, k * step, n), view=lambda whole: whole[..., ::step, :])
    return Operator(
        name=name,
        inputs={"left": left, "right": right},
        apply=product if m else product_shape,
        exact=exact_product if m else (lambda _: {"shape": Exact(value=np.array([m, n]))}),
        rule="product",
        inner=k,
        flops=2 * max(batch, 1) * m * n * k,
    )


def special_matmul(size: int) -> Operator:
    """Product whose left operand has a row of each kind of special value."""
    inner = 2 * size + 5
    return Operator(
        name="matmul of special values",
        inputs={
            "left": Input(shape=(11, inner), fill=special),
            "right": Input(shape=(inner, 13), fill=normal),
        },
        apply=product,
        exact=exact_product,
        rule="product",
        inner=inner,
        flops=2 * 11 * inner * 13,
        is_special=True,
    )


def product(inputs: Tensors) -> Tensors:
    return {"": into_poison(torch.matmul, inputs["left"], inputs["right"])}


def product_shape(inputs: Tensors) -> Tensors:
    """An output without elements can only have the right shape."""
    output = into_poison(torch.matmul, inputs["left"], inputs["right"])
    return {"shape": torch.tensor(output.shape)}


def exact_product(inputs: Arrays) -> Mapping[str, Exact]:
    left, right = inputs["left"], inputs["right"]
    terms = np.abs(np.nan_to_num(left, posinf=0, neginf=0)) @ np.abs(right)
    return {"": Exact(value=left @ right, size=terms)}


# ------------------------------------------------------------------ convolution


def convolution(
    name: str,
    images: tuple[int, int, int, int],
    kernels: tuple[int, int, int, int],
    *,
    stride: int = 1,
    groups: int = 1,
) -> Operator:
    """Convolution padded by 1, or 2 where it is grouped, which dilates it too."""
    spacing = 1 if groups == 1 else 2
    call: Callable[..., torch.Tensor] = partial(
        torch.nn.functional.conv2d,
        stride=stride,
        padding=spacing,
        dilation=spacing,
        groups=groups,
    )

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        padding = ((0, 0), (0, 0), (spacing, spacing), (spacing, spacing))
        padded = np.pad(inputs["images"], padding)
        parts = zip(
            np.split(padded, groups, axis=1), np.split(inputs["kernels"], groups), strict=True
        )
        outputs = [correlate(image, kernel, stride, spacing) for image, kernel in parts]
        value = np.concatenate(outputs, axis=1) + inputs["shifts"][:, None, None]
        return {"": Exact(value=value)}

    height, width = ((edge - 1) // stride + 1 for edge in images[2:])
    return Operator(
        name=name,
        inputs={
            "images": Input(shape=images),
            "kernels": Input(shape=kernels),
            "shifts": Input(shape=kernels[:1]),
        },
        apply=lambda i: {"": after_poison(call, i["images"], i["kernels"], i["shifts"])},
        exact=exact,
        flops=2 * images[0] * height * width * math.prod(kernels),
        loose=10.0,  # fast algorithms (Winograd 1980) trade rounding for multiplications
    )


def correlate(images: Array, kernels: Array, stride: int, spacing: int) -> Array:
    """Sum over channels and places of windows times kernels, place by place."""
    side = kernels.shape[-1]
    reach = spacing * (side - 1)
    total: Array = np.zeros(())
    for row in range(side):
        for column in range(side):
            rows = slice(row * spacing, images.shape[2] - reach + row * spacing, stride)
            columns = slice(column * spacing, images.shape[3] - reach + column * spacing, stride)
            window = images[:, :, rows, columns]
            total = total + np.einsum("nchw,oc->nohw", window, kernels[:, :, row, column])
    return total


# ------------------------------------------------------------------ attention


def attention(
    name: str, queries: int, keys: int, *, is_masked: bool = False, is_causal: bool = False
) -> Operator:
    """Scaled dot-product attention of one sequence; no row of the mask is empty."""
    inputs = {
        "queries": Input(shape=(1, HEADS, queries, DEPTH)),
        "keys": Input(shape=(1, HEADS, keys, DEPTH)),
        "values": Input(shape=(1, keys, HEADS, DEPTH), view=lambda whole: whole.swapaxes(1, 2)),
    }
    if is_masked:
        inputs["mask"] = Input(shape=(1, 1, queries, keys), fill=mask)

    def apply(tensors: Tensors) -> Tensors:
        call = torch.nn.functional.scaled_dot_product_attention
        operands = (tensors["queries"], tensors["keys"], tensors["values"])
        output = after_poison(call, *operands, attn_mask=tensors.get("mask"), is_causal=is_causal)
        return {"": output}

    def exact(tensors: Arrays) -> Mapping[str, Exact]:
        scores = tensors["queries"] @ tensors["keys"].swapaxes(-1, -2) / math.sqrt(DEPTH)
        is_read = (
            np.tril(np.ones((queries, keys), bool)) if is_causal else tensors.get("mask", True)
        )
        scores = np.where(is_read, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return {"": Exact(value=weights @ tensors["values"])}

    return Operator(
        name=name,
        inputs=inputs,
        apply=apply,
        exact=exact,
        flops=4 * HEADS * queries * keys * DEPTH,
        loose=10.0,  # kernels that work in tiles rescale their sums on the way
    )


WORKLOAD = OpProducts
