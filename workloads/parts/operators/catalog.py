"""What an operator is: its inputs, the call, its float64 formula; and calls into poisoned memory.

Views (transposed, strided) are made on the device, so that the operator meets them as they are.
An operator that takes an output writes into memory filled with NaN; one that makes its own is
called right after memory of that size was filled with NaN and given back, which allocators hand
out again first. What is left unwritten therefore shows.

The formula is numpy's, in float64 on the host, so that no operator is judged by itself. How the
two are compared is in operator_rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.parts.operators.inputs import Fill, normal

Tensors = Mapping[str, torch.Tensor]
Array = NDArray[Any]
Arrays = Mapping[str, Array]
Rule = Literal["product", "ratio", "exact"]

FINITE, POSITIVE, NEGATIVE, NO_NUMBER = range(4)  # classes of an element


# ------------------------------------------------------------------ an operator


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input: its shape, what fills it, and the view of it that the operator is given.

    `view` is applied to the tensor on the device and to the array of the reference alike.
    """

    shape: tuple[int, ...]
    fill: Fill = normal
    view: Callable[[Any], Any] = lambda whole: whole


@dataclass(frozen=True, kw_only=True)
class Exact:
    """One output in float64; `size` are the sizes of the terms that each element adds up.

    The rounding of a sum goes with its terms, also where they cancel. Without `size` an element
    is measured by itself and the root mean square of its row. `rule` and `dtype` are given where
    they are not the operator's and the family's.
    """

    value: Array
    size: Array | None = None
    rule: Rule | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One call: its inputs, the call itself, its float64 formula, the rule that compares them.

    `inner` is the number of products that each element of a product sums. `is_special`: the
    inputs hold zeros, subnormals, infinities and NaN; its outputs leave the step as finite
    values and classes. `loose`: how many times the tolerance of float32 and float64 it is given.
    `extra`: what an accumulator narrower than float32 may add to a product's relative error.
    """

    name: str
    inputs: Mapping[str, Input]
    apply: Callable[[Tensors], Tensors]
    exact: Callable[[Arrays], Mapping[str, Exact]]
    rule: Rule = "ratio"
    inner: int = 0
    flops: int = 0
    is_special: bool = False
    loose: float = 1.0
    extra: float = 0.0

    def viewed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as the operator is given them."""
        return {name: self.inputs[name].view(value) for name, value in inputs.items()}

    def named(self, key: str) -> str:
        """Full name of an output; the main one has no key and the operator's name."""
        return f"{self.name}, {key}" if key else self.name

    def run(self, inputs: Tensors) -> Tensors:
        """Outputs on whatever device the inputs are, under their full names."""
        results = self.apply(self.viewed(inputs))
        outputs = {self.named(key): tensor for key, tensor in results.items()}
        return separated(outputs) if self.is_special else outputs


def separated(outputs: Tensors) -> Tensors:
    """Every floating output as its finite values and the class of each element.

    A NaN has many bit patterns, of which devices may give any; its class is one.
    """
    separate: dict[str, torch.Tensor] = {}
    for name, values in outputs.items():
        if values.is_floating_point():
            separate[name] = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
            separate[f"{name} (classes)"] = classes(values)
        else:
            separate[name] = values
    return separate


def classes(values: torch.Tensor) -> torch.Tensor:
    """FINITE, POSITIVE, NEGATIVE (infinite) or NO_NUMBER, of each element."""
    kinds = torch.isposinf(values).to(torch.uint8) * POSITIVE
    kinds += torch.isneginf(values).to(torch.uint8) * NEGATIVE
    return kinds + torch.isnan(values).to(torch.uint8) * NO_NUMBER


def root_of_squares(values: Array, axis: int | tuple[int, ...] | None = -1) -> Array:
    """Norm of the finite values along an axis, which is kept; the smallest numbers count too."""
    finite = np.where(np.isfinite(values), values, 0.0)
    peak = np.abs(finite).max(axis=axis, keepdims=True, initial=0.0)
    shares = np.divide(finite, peak, out=np.zeros_like(finite), where=peak > 0)
    norm: Array = peak * np.sqrt(np.square(shares).sum(axis=axis, keepdims=True))
    return norm


# ------------------------------------------------------------------ poison


def into_poison(operation: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call an operator that takes `out`, with outputs filled with NaN (integers: the lowest)."""
    device = _device_of(inputs)
    shapes = _on_meta(operation, inputs, options)
    if isinstance(shapes, torch.Tensor):
        return operation(*inputs, out=_poisoned(shapes, device), **options)
    out = tuple(_poisoned(shape, device) for shape in shapes)
    operation(*inputs, out=out, **options)
    return out


def after_poison(operation: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call an operator that makes its own output, after NaN was put where that will likely lie."""
    shapes = _on_meta(operation, inputs, options)
    for shape in (shapes,) if isinstance(shapes, torch.Tensor) else shapes:
        _poisoned(shape, _device_of(inputs))  # given back at once, and handed out again first
    return operation(*inputs, **options)


def _on_meta(operation: Callable[..., Any], inputs: tuple[Any, ...], options: Any) -> Any:
    def moved(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    return operation(*map(moved, inputs), **{key: moved(value) for key, value in options.items()})


def _device_of(inputs: tuple[Any, ...]) -> torch.device:
    return next(value.device for value in inputs if isinstance(value, torch.Tensor))


def _poisoned(shape: torch.Tensor, device: torch.device) -> torch.Tensor:
    is_float = shape.is_floating_point() or shape.is_complex()
    poison = math.nan if is_float else torch.iinfo(shape.dtype).min
    return torch.full(shape.shape, poison, dtype=shape.dtype, device=device)
