"""How the output of an operator is compared with float64: three rules, and what each would catch.

exact: moved, counted or ordered values and sums of integers have one right answer; the bits
that differ are counted.

product: the relative error of the whole, in the Frobenius norm, is concentrated, so that a gate
just above what the format earns shows any lower precision: storing in 16 bits with unit roundoff
u earns 0.42 u at any inner dimension K, and 0.60 u is allowed (u itself for few elements);
float32 may err by 1e-5 for each 4096 of K, which a truncating accumulator needs and TF32 (2.9e-4)
exceeds. Below 0.30 u the output was never rounded to the format that it claims. Each element may
err by one rounding and 2**-24 (16 + K/16) of the sum of the sizes of its products: twice and more
what any accumulator was seen to need, and local damage exceeds it.

ratio: the root mean square error is at most m times that of the same call in the same format on
the host, plus a tenth of the format's tolerance; m is 2, for 16 bits 3, for at most 500 elements
8 and at most 10 elements 10 (the rule of PyTorch's own compiler tests). The host's error counts up
to what the format explains (MOST roundings), so that a host that errs widens nothing. One element
may err four times as much, relative to the terms that it adds up.

Special inputs are judged element by element: infinities and NaN must be where arithmetic puts
them and nowhere else, all other elements are held to the element's gate. Some devices take
subnormal numbers for zero; that is named, not counted as an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from appliance.records.journal import Check
from workloads.parts.numerics.bits import num_differing
from workloads.parts.numerics.precision import unit_roundoff
from workloads.parts.operators.catalog import (
    Array,
    Exact,
    Operator,
    Rule,
    Tensors,
    classes,
    root_of_squares,
)

ALLOWANCE = {  # a tenth of the tolerance
    torch.float64: 1e-14,
    torch.float32: 1e-6,
    torch.float16: 1e-4,
    torch.bfloat16: 1e-3,
}
MOST = {torch.float64: 16.0, torch.float32: 16.0, torch.float16: 1.25, torch.bfloat16: 1.25}
"""Roundings that the error of the host's call is taken for at most."""
ELEMENT = 4.0  # times what the whole may err; the worst of 10**8 normal deviates is 5.7
ACCUMULATED = {torch.float32: 1e-5, torch.float64: 1e-13}  # per 4096 of the inner dimension
LEAST_ROUNDING, MOST_ROUNDING = 0.30, 0.60  # of the unit roundoff, in 16 bits; 0.42 is earned
FEW = 10
MANY = 1024  # elements from which on their roundings average, to 3 %


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One output as it should be, on the host.

    `exact` are float64 values or integers, `others` what they are for a device that takes
    subnormal inputs, outputs, or both for zero. `host_error` is the relative error of the same
    call in the same format on the host.
    """

    exact: Array
    size: Array
    dtype: torch.dtype
    rule: Rule
    others: tuple[Array, ...] = ()
    host_error: float = 0.0


# ------------------------------------------------------------------ references


def refer(operator: Operator, inputs: Tensors, dtype: torch.dtype) -> dict[str, Reference]:
    """References of every output of an operator, by their full names."""
    arrays = operator.viewed({name: to_array(value) for name, value in inputs.items()})
    with np.errstate(all="ignore"):
        exact = _named(operator, operator.exact(arrays))
        if operator.is_special:
            return _of_special(operator, arrays, exact, dtype)
    is_compared = operator.rule == "ratio"
    outputs = operator.run(inputs) if is_compared else {}
    return {
        name: _reference(operator, item, dtype, outputs.get(name)) for name, item in exact.items()
    }


def to_array(tensor: torch.Tensor) -> Array:
    """Values on the host: floating-point ones in float64, others as they are."""
    host = tensor.detach().cpu()
    array: Array = (host.double() if host.is_floating_point() else host).numpy()
    return array


def _named(operator: Operator, outputs: Mapping[str, Exact]) -> dict[str, Exact]:
    return {operator.named(key): item for key, item in outputs.items()}


def _reference(
    operator: Operator, item: Exact, dtype: torch.dtype, host: torch.Tensor | None = None
) -> Reference:
    exact = np.asarray(item.value)
    if exact.dtype != np.float64:
        whole = torch.from_numpy(exact).dtype
        return Reference(exact=exact, size=np.zeros(()), dtype=whole, rule="exact")
    return Reference(
        exact=exact,
        size=_size(item),
        dtype=item.dtype or dtype,
        rule=item.rule or operator.rule,
        host_error=0.0 if host is None else relative_error(to_array(host), exact, _size(item)),
    )


def _size(item: Exact) -> Array:
    """Sizes of the terms; else the element's own size and the root mean square of its row."""
    if item.size is not None:
        return np.asarray(item.size)
    value = np.where(np.isfinite(item.value), item.value, 0.0)
    axis = -1 if value.ndim > 1 else None
    count = value.shape[-1] if value.ndim > 1 else max(value.size, 1)
    size: Array = np.abs(value) + root_of_squares(value, axis) / count**0.5
    return size


def _of_special(
    operator: Operator, arrays: dict[str, Array], exact: dict[str, Exact], dtype: torch.dtype
) -> dict[str, Reference]:
    smallest = torch.finfo(dtype).smallest_normal

    def flushed(array: Array) -> Array:
        is_tiny = (np.abs(array) < smallest) if array.dtype == np.float64 else np.zeros(1, bool)
        result: Array = np.where(is_tiny, np.zeros((), array.dtype), array)
        return result

    other = operator.exact({name: flushed(array) for name, array in arrays.items()})
    flushed_inputs = _named(operator, other)
    references: dict[str, Reference] = {}
    for name, item in exact.items():
        value = np.asarray(item.value)
        if value.dtype != np.float64:
            references[name] = _reference(operator, item, dtype)
            continue
        stored = torch.from_numpy(value).to(dtype)
        kinds = classes(stored).numpy()
        alike = [value, flushed(value), flushed_inputs[name].value]
        alike.append(flushed(alike[-1]))
        finite, *others = (np.where(kinds == 0, each, 0.0) for each in alike)
        sizes = np.where(kinds == 0, _size(item), 0.0)
        references[name] = Reference(
            exact=finite, size=sizes, dtype=dtype, rule=operator.rule, others=tuple(others)
        )
        references[f"{name} (classes)"] = _reference(operator, Exact(value=kinds), dtype)
    return references


# ------------------------------------------------------------------ the judgement


def judge(
    operator: Operator, name: str, output: torch.Tensor | None, reference: Reference
) -> Iterator[Check]:
    """Checks of one output; a missing one, or one of another shape or format, is refused."""
    shape = reference.exact.shape
    if output is None or tuple(output.shape) != shape or output.dtype != reference.dtype:
        yield Check(name=f"{name}: shape and format", error=1.0, bound=0.0, kind="exact")
    elif reference.rule == "exact":
        yield _check_exact(name, output, reference)
    elif operator.is_special:
        yield _check_special(operator, name, to_array(output), reference)
    elif reference.rule == "product":
        yield from _check_product(operator, name, output, reference)
    else:
        yield from _check_ratio(operator, name, to_array(output), reference)


def _check_exact(name: str, output: torch.Tensor, reference: Reference) -> Check:
    exact = torch.from_numpy(np.ascontiguousarray(reference.exact))
    if output.is_floating_point():
        differing = num_differing(output, exact.to(output.dtype))
    else:
        differing = int((output.detach().cpu().long() != exact.long()).sum())
    return Check(
        name=f"{name}: elements that differ",
        error=differing,
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what=f"wrong elements among {exact.numel()}",
    )


def _check_product(
    operator: Operator, name: str, output: torch.Tensor, reference: Reference
) -> Iterator[Check]:
    dtype, values = output.dtype, to_array(output)
    error = relative_error(values, reference.exact, reference.size)
    bound = product_gate(dtype, operator.inner, values.size) + operator.extra
    yield Check(
        name=f"{name}: relative error",
        error=error,
        bound=bound,
        detects=bound + _or_zero(error),
        detects_what="error of the whole, over its norm",
    )
    if dtype not in ACCUMULATED and values.size >= MANY:
        least = LEAST_ROUNDING * unit_roundoff(dtype)
        yield Check(
            name=f"{name}: rounded to {str(dtype).removeprefix('torch.')}",
            error=least / error if error else math.inf,
            bound=1.0,
            detects=least,
            detects_what="relative error of an output that was never rounded to its format",
        )
    yield _check_elements(
        name,
        _beyond_rounding(np.abs(values - reference.exact), reference, dtype),
        accumulated(dtype, operator.inner) + operator.extra,
        reference,
    )


def product_gate(dtype: torch.dtype, inner: int, count: int) -> float:
    """Largest relative error of a whole product of `count` elements."""
    if dtype in ACCUMULATED:
        return ACCUMULATED[dtype] * max(1.0, inner / 4096)
    return (MOST_ROUNDING if count >= MANY else 1.0) * unit_roundoff(dtype)


def accumulated(dtype: torch.dtype, inner: int) -> float:
    """Largest error of one element before it is stored, over the sum of its products' sizes."""
    accumulator = 2.0**-52 if dtype is torch.float64 else 2.0**-24
    return accumulator * (16 + inner / 16)


def _beyond_rounding(distance: Array, reference: Reference, dtype: torch.dtype) -> Array:
    """What is left of the error of each element when storing it, rounded once, is taken off."""
    stored = unit_roundoff(dtype) * np.abs(reference.exact) + _quantum(dtype)
    left: Array = np.where(distance <= stored, 0.0, distance - stored)  # NaN stays
    return left


def _check_ratio(
    operator: Operator, name: str, values: Array, reference: Reference
) -> Iterator[Check]:
    dtype = reference.dtype
    error = relative_error(values, reference.exact, reference.size)
    bound = _allowed(operator, reference, times=_times(dtype, values.size))
    yield Check(
        name=f"{name}: root mean square error",
        error=error,
        bound=bound,
        detects=bound + _or_zero(error),
        detects_what="root mean square error, over the root mean square of the output (of few "
        "elements over that of the terms they sum, if it is more)",
    )
    distance = np.abs(values - reference.exact)
    yield _check_elements(name, distance, ELEMENT * bound, reference)


def _check_special(operator: Operator, name: str, values: Array, reference: Reference) -> Check:
    dtype = reference.dtype

    def beyond(exact: Array, slack: float) -> Array:
        distance = np.maximum(np.abs(values - exact) - slack, 0.0)
        if operator.rule == "product":
            return _beyond_rounding(distance, reference, dtype)
        return np.where(distance <= _quantum(dtype), 0.0, distance)

    if operator.rule == "product":
        bound = accumulated(dtype, operator.inner)
    else:
        bound = ELEMENT * _allowed(operator, reference, times=None)
    unflushed = beyond(reference.exact, 0.0)
    flushed = [beyond(other, _flushed_sums(dtype, operator.inner)) for other in reference.others]
    least = np.min(np.stack([unflushed, *flushed]), axis=0)
    is_flushing = bool((least < unflushed).any() and (unflushed > bound * reference.size).any())
    note = "taken for zero, a known difference" if is_flushing else "kept, or too small to matter"
    note = f", but for what is subnormal: that is {note}"
    return _check_elements(name, least, bound, reference, note=note)


def _check_elements(
    name: str, distance: Array, bound: float, reference: Reference, *, note: str = ""
) -> Check:
    """The worst element, over the size of the terms that it sums; infinite where that is zero."""
    with np.errstate(all="ignore"):
        shares = np.where(distance == 0, 0.0, distance / reference.size)
    error = float(np.max(shares, initial=0.0))
    stored = 2 * unit_roundoff(reference.dtype)  # what rounding may hide, both ways
    return Check(
        name=f"{name}: worst element",
        error=error,
        bound=bound,
        detects=bound + _or_zero(error) + stored,
        detects_what=f"error of one element anywhere, over the size of the terms it sums{note}",
    )


def relative_error(values: Array, exact: Array, size: Array) -> float:
    """Norm of the error over the norm of the exact output; infinite where that is zero.

    Terms may all but cancel in one sum, and not in many: of few elements their size counts too.
    """
    with np.errstate(all="ignore"):
        error, norm = np.linalg.norm(values - exact), np.linalg.norm(exact)
        if exact.size <= FEW:
            norm = max(norm, np.linalg.norm(np.broadcast_to(size, exact.shape)))
    if norm == 0:
        return 0.0 if error == 0 else math.inf
    return float(error / norm)


def _allowed(operator: Operator, reference: Reference, times: float | None) -> float:
    """Relative error of the whole; without `times` what the format alone explains."""
    dtype = reference.dtype
    most = MOST[dtype] * unit_roundoff(dtype)
    earned = most if times is None or dtype is torch.float64 else times * reference.host_error
    # in 16 bits what an algorithm costs in float32 vanishes beside storing its result
    times_allowed = operator.loose if dtype in ACCUMULATED else 1.0
    return min(earned, most) + times_allowed * ALLOWANCE[dtype]


def _times(dtype: torch.dtype, count: int) -> float:
    if count <= FEW:
        return 10.0
    if count <= 500:  # noqa: PLR2004 - the rule's own number
        return 8.0
    return 2.0 if dtype in ACCUMULATED else 3.0


def _flushed_sums(dtype: torch.dtype, inner: int) -> float:
    """What a device that takes subnormals for zero may lose of a product, sum by partial sum."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return inner * torch.finfo(wide).smallest_normal


def _quantum(dtype: torch.dtype) -> float:
    """The smallest subnormal number: no result below the normal ones is finer."""
    limits = torch.finfo(dtype)
    return limits.smallest_normal * limits.eps


def _or_zero(error: float) -> float:
    return error if math.isfinite(error) else 0.0
