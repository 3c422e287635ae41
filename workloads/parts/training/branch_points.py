"""Rectifiers and maxima that take the same side in float64 as they took on the device.

A rounding now and then puts one unit on the other side of zero, or makes another pixel the largest,
and the gradient of what lies below then jumps by up to a tenth (ResNet-50 in float32), which no
multiple of a rounding bounds. So the choices are taken from the device's own forward pass and
imposed on the float64 one: between the branch points a network is smooth, and its gradients can be
held to roundings. The choices are not believed: each must be the one that float64 makes itself,
unless float64 is as near to the branch point as a rounding may carry it (`Imposed.worst`).

Every call of a rectifier (`relu`), of `max_pool2d`, of `argmax` and of `segment_reduce` for the
smallest or the largest counts, in the order of the calls; other functions with branch points are
not known here. An `argmax` has no gradient, but what it chooses (the bucket of a hash, say) decides
what is computed after it. Of a segment, equal values have the gradient that torch gives them
(`_Shared`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_RECTIFIERS = {
    functional.relu,
    torch.relu,
    torch.relu_,
    torch.Tensor.relu,
    torch.Tensor.relu_,
}
_MAXIMA = {functional.max_pool2d, torch.max_pool2d}
_INDICES = {torch.argmax, torch.Tensor.argmax}
_SEGMENTS = {torch.segment_reduce}
_EXTREMES = {"amin", "amax", "min", "max"}

Choices = Sequence[torch.Tensor]
"""By call: where a rectifier let pass (bool), the index that a maximum took, or which values of
segments were the extreme ones (uint8)."""

Function = Callable[..., Any]


class Recorded(TorchFunctionMode):
    """While it is entered, notes the choices of every call, on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[torch.Tensor] = []

    def __torch_function__(
        self,
        func: Function,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        options = dict(kwargs or {})
        if func in _MAXIMA:
            options.pop("return_indices", None)
            result, indices = functional.max_pool2d_with_indices(*args, **options)
            self.choices.append(indices.cpu())
            return result
        result = func(*args, **options)
        if func in _RECTIFIERS:
            self.choices.append((result > 0).cpu())
        elif func in _INDICES:
            self.choices.append(result.cpu())
        elif _is_extreme(func, args):
            lengths = options["offsets"].diff()
            spread = result.detach().repeat_interleave(lengths, 0, output_size=len(args[0]))
            self.choices.append((args[0].detach() == spread).cpu().to(torch.uint8))
        return result


class Imposed(TorchFunctionMode):
    """While it is entered, every call takes the given choices, one after the other.

    `worst` is how far the furthest of them lies from the branch point, in units of the root mean
    square of the call's input; infinite where calls and choices do not match.
    """

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self._choices = list(choices)
        self.worst = 0.0

    def __torch_function__(
        self,
        func: Function,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        options = dict(kwargs or {})
        if func in _INDICES:
            return self._index(func(*args, **options), *args, **options)
        if _is_extreme(func, args):
            return self._extreme(func(*args, **options), args[0], options["offsets"])
        if func in _MAXIMA or func in _RECTIFIERS:
            return self._rectified(func, args, options)
        return func(*args, **options)

    def _rectified(self, func: Function, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Let pass what the given side of zero does, or take the given pixel."""
        values = args[0]
        size = _size(values)
        if func in _RECTIFIERS:
            passes = self._next(values.shape, torch.bool)
            if passes is None:
                return func(*args, **options)
            away = values.detach().abs()[passes != (values.detach() > 0)]
            self._note(away / size)
            return values * passes
        options.pop("return_indices", None)
        largest = functional.max_pool2d(*args, **options)
        indices = self._next(largest.shape, torch.int64)
        if indices is None:
            return largest
        chosen = values.flatten(-2).gather(-1, indices.flatten(-2)).view(largest.shape)
        self._note((largest - chosen).detach() / size)
        return chosen

    def _index(
        self, own: torch.Tensor, values: torch.Tensor, dim: int = -1, **options: Any
    ) -> torch.Tensor:
        """Return the given index along a dimension, instead of `own`."""
        del options
        index = self._next(own.shape, torch.int64)
        if index is None:
            return own
        chosen, best = (values.gather(dim, place.unsqueeze(dim)) for place in (index, own))
        self._note((best - chosen).detach() / _size(values))
        return index

    def _extreme(
        self, own: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean of the given values of each segment, instead of `own`."""
        chosen = self._next(values.shape, torch.uint8)
        if chosen is None:
            return own
        total, count = (
            torch.segment_reduce(part, "sum", offsets=offsets, initial=0)
            for part in (values * chosen, chosen.to(values.dtype))
        )
        if not count.all():
            self.worst = float("inf")
            return own
        self._note((own - total / count).detach().abs() / _size(values))
        apply: Function = _Shared.apply  # untyped in torch
        shared: torch.Tensor = apply(values, total / count, chosen, count, offsets)
        return shared

    def close(self) -> float:
        """Return `worst`; infinite if a choice was left over."""
        return float("inf") if self._choices else self.worst

    def _next(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor | None:
        choice = self._choices.pop(0) if self._choices else None
        if choice is None or choice.shape != shape or choice.dtype != dtype:
            self.worst = float("inf")
            return None
        return choice

    def _note(self, distances: torch.Tensor) -> None:
        if distances.numel():
            self.worst = max(self.worst, distances.max().item())


class _Shared(torch.autograd.Function):
    """The extreme of a segment, with the gradient that torch gives to values that are equal.

    Torch 2.13 (aten/src/ATen/native/SegmentReduce.cpp, and the kernel for accelerators beside it)
    divides a gradient among them only where it is positive; a negative one goes whole to each.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        values: torch.Tensor,
        extremes: torch.Tensor,
        chosen: torch.Tensor,
        count: torch.Tensor,
        offsets: torch.Tensor,
    ) -> torch.Tensor:
        del values
        ctx.save_for_backward(chosen, count, offsets)
        return extremes.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        chosen, count, offsets = ctx.saved_tensors
        own = torch.where(gradient > 0, gradient / count, gradient)
        spread = own.repeat_interleave(offsets.diff(), 0, output_size=len(chosen))
        return spread * chosen, None, None, None, None


def go_back(loss: torch.Tensor) -> None:
    """Backward pass of a loss, seen by the modes that are entered where it makes layers anew.

    To torch 2.13 `backward` of a tensor is a call like others, and a mode is off within
    the calls that it is told of: what rectifiers let pass in the backward pass would be neither
    noted nor imposed. An edge of the graph is no tensor, so no mode is told.
    """
    edge = torch.autograd.graph.get_gradient_edge(loss)
    torch.autograd.backward(edge, torch.ones_like(loss))


def _is_extreme(func: Function, args: tuple[Any, ...]) -> bool:
    """Whether this is the smallest or largest of segments, called as PyTorch Geometric does."""
    return func in _SEGMENTS and args[1] in _EXTREMES


def _size(values: torch.Tensor) -> torch.Tensor:
    """Root mean square, and never zero."""
    with torch.no_grad():
        return values.square().mean().sqrt().clamp(min=torch.finfo(values.dtype).tiny)


def digest(choices: Choices) -> str:
    """SHA-256 of all choices: equal where two passes took the same side everywhere."""
    total = hashlib.sha256()
    for choice in choices:
        total.update(repr((tuple(choice.shape), str(choice.dtype))).encode())
        values = choice.contiguous().numpy()
        packed = np.packbits(values) if choice.dtype == torch.bool else values
        total.update(packed.tobytes())
    return total.hexdigest()
