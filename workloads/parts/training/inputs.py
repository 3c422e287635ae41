"""Where the input sets of a training come from: drawn on the device, or generated on the host.

Drawn ones are made on the device by the counter-based generator, and once more on the host for each
step that is checked: the reference of a step takes nothing from the device, so a batch that was
spoilt there gives a wrong result, besides other bits than the host's. Generated ones are made on
the host and moved, each with the checksum that it had before it left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from workloads.contract.target import Target
from workloads.parts.distributed import sharding
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.numerics.inputs import InputSets, placed

Tensors = Mapping[str, torch.Tensor]
Draw = Callable[[Drawer, int], Callable[[int], Tensors]]
"""Of a drawer and a rank: what makes that rank's input set of a number, where the drawer draws."""


@dataclass(kw_only=True)
class DrawnSets:
    """Keyword arguments of a model by the number of the set, on the device.

    `again` makes a set on the host, of the generator alone.
    """

    sets: list[dict[str, torch.Tensor]]
    again: Callable[[int], Tensors]

    def __getitem__(self, index: int, /) -> Tensors:
        return self.sets[index]

    def __len__(self) -> int:
        return len(self.sets)


class Inputs(Protocol):
    """What makes the input sets of a training, of each rank its own."""

    def batch(self, seed: int, rank: int, index: int) -> Tensors:
        """The input set of a rank, by its number, as the host makes it."""
        ...

    def sets(self, target: Target, seed: int, rank: int, count: int) -> InputSets | DrawnSets:
        """The first `count` input sets of a rank, on its device."""
        ...


@dataclass(frozen=True, kw_only=True)
class DrawnInputs:
    """Input sets that `draw` makes; images, which have four dimensions, have the layout."""

    draw: Draw
    layout: torch.memory_format = torch.preserve_format

    def batch(self, seed: int, rank: int, index: int) -> Tensors:
        return self._laid_out(self.draw(HostDraws(seed=seed), rank)(index))

    def sets(self, target: Target, seed: int, rank: int, count: int) -> DrawnSets:
        make = self.draw(Draws(target=target, seed=seed), rank)
        return DrawnSets(
            sets=[self._laid_out(make(index)) for index in range(count)],
            again=lambda index: self.batch(seed, rank, index),
        )

    def _laid_out(self, batch: Tensors) -> dict[str, torch.Tensor]:
        return {name: _laid_out(one, self.layout) for name, one in batch.items()}


@dataclass(frozen=True, kw_only=True)
class GeneratedInputs:
    """Input sets that `generate(seed)` yields on the host, one after the other, without end."""

    generate: Callable[[int], Iterable[Tensors]]

    def batch(self, seed: int, rank: int, index: int) -> Tensors:
        return next(itertools.islice(iter(self._of(seed, rank)), index, None))

    def sets(self, target: Target, seed: int, rank: int, count: int) -> InputSets:
        return placed(itertools.islice(self._of(seed, rank), count), target.device)

    def _of(self, seed: int, rank: int) -> Iterable[Tensors]:
        return self.generate(sharding.seed_of(seed, rank))


def _laid_out(tensor: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    is_image = tensor.dim() == 4  # noqa: PLR2004 - by image, channel, height and width
    return tensor.to(memory_format=layout) if is_image else tensor


def of_rank(name: str, rank: int) -> str:
    """Name of a drawn tensor that each rank has its own of."""
    return f"{name} of rank {rank}" if rank else name
