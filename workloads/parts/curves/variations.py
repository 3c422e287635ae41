"""Right ways to run one training that do not give the same bits: what a band is made of.

Devices add in other orders, in other groups and with other rounding, and all of them are right.
A `Variation` is one such way on the host: relabelled, first weights moved by one unit in the last
place, another number of threads, without oneDNN, with products added as matrix units do, or with
gathered terms added in another order, as atomic operations do.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch

from workloads.parts.curves.any_order import AnyOrder

Sums = Literal["library", "blocks of 16", "blocks of 16, truncated"]
GROUP = 16
_CUT = ~((1 << 29) - 1)  # bits of a float64 that float32 has not


@dataclass(frozen=True, kw_only=True)
class Variation:
    """`perturbed`, `relabelled`, `order` (of gathered terms): seeds, or None to leave it out."""

    perturbed: int | None = None
    relabelled: int | None = None
    threads: int = 1
    has_onednn: bool = True
    sums: Sums = "library"
    order: int | None = None


def perturb(weights: Iterable[torch.Tensor], seed: int) -> None:
    """Move a third of all float32 weights up and a third down by one unit in the last place."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            if weight.dtype is torch.float32:
                way = torch.randint(-1, 2, weight.shape, generator=rng).to(weight.device)
                weight.copy_(torch.where(way == 0, weight, torch.nextafter(weight, weight + way)))


@contextlib.contextmanager
def engine(models: Sequence[torch.nn.Module], variation: Variation) -> Iterator[None]:
    """While it is entered, these models multiply as the variation says; on the host."""
    threads = torch.get_num_threads()
    torch.set_num_threads(variation.threads)
    if variation.sums != "library":
        for layer in linear_layers(models):
            grouped = _Grouped(layer, variation.sums)
            layer.forward = grouped.multiply  # type: ignore[method-assign, assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings for vendors that this build has not
            seed = variation.order
            order = contextlib.nullcontext() if seed is None else AnyOrder(seed)
            with torch.backends.mkldnn.flags(enabled=variation.has_onednn), order:
                yield
    finally:
        torch.set_num_threads(threads)


def linear_layers(models: Sequence[torch.nn.Module]) -> list[torch.nn.Linear]:
    """Layers whose product can be made in another way: those with torch's own forward pass."""
    return [
        layer
        for model in models
        for layer in model.modules()
        if isinstance(layer, torch.nn.Linear) and type(layer).forward is torch.nn.Linear.forward
    ]


class _Grouped:
    """A linear layer whose products are added in groups of 16 to a float32 sum."""

    def __init__(self, layer: torch.nn.Linear, sums: Sums) -> None:
        self.layer = layer
        self.is_cut = sums == "blocks of 16, truncated"

    def multiply(self, values: torch.Tensor) -> torch.Tensor:
        is_mixed = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if is_mixed else values.dtype
        weight = self.layer.weight.t().to(dtype)
        bias = cast("torch.Tensor | None", self.layer.bias)
        rows = values.to(dtype).reshape(-1, values.shape[-1])
        if bias is None:
            bias = torch.zeros(weight.shape[1])
        result: torch.Tensor = _Product.apply(  # type: ignore[no-untyped-call]
            rows, weight, self.is_cut, bias
        )
        return result.view(*values.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """[m, k] times [k, n] plus a bias [n], forward and backward."""

    @staticmethod
    def forward(
        context: Any,
        left: torch.Tensor,
        right: torch.Tensor,
        is_cut: bool,  # noqa: FBT001 - autograd passes by place
        bias: torch.Tensor,
    ) -> torch.Tensor:
        context.save_for_backward(left, right)
        context.is_cut = is_cut
        return (_sum(left, right, is_cut=is_cut) + bias.float()).to(left.dtype)

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> Any:
        left, right = context.saved_tensors
        (slope,) = slopes
        toward_left = _sum(slope, right.t(), is_cut=context.is_cut).to(left.dtype)
        toward_right = _sum(left.t(), slope, is_cut=context.is_cut).to(right.dtype)
        return toward_left, toward_right, None, slope.float().sum(0).to(slope.dtype).float()


def _sum(left: torch.Tensor, right: torch.Tensor, *, is_cut: bool) -> torch.Tensor:
    left, right = left.double(), right.double()
    total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.float64)
    for first in range(0, left.shape[1], GROUP):
        some = slice(first, first + GROUP)
        total += left[:, some] @ right[some]
        if is_cut:
            total = (total.view(torch.int64) & _CUT).view(torch.float64)
        else:
            total = total.float().double()
    return total.float()
