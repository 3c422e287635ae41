"""What is drawn of a step's tensors: inputs of a batch, and channels of a layer.

A tensor whose first dimension counts the batch, or a multiple of it, gives the blocks that belong
to the drawn inputs. One of another size is kept whole, unless its size is among `counted`: then
rows of its own are taken, the same of every tensor of this size.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

CHANNELS = 16
"""Channels of a layer that are followed: what is drawn of its inputs, and of its outputs."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The drawn inputs of a batch of `batch`; `counted` are sizes that count rows of their own.

    `whole` are sizes of what all inputs share, although they may be multiples of the batch.
    """

    batch: int
    drawn: tuple[int, ...]
    counted: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor has rows that belong to inputs of the batch."""
        size = len(tensor) if tensor.dim() else 0
        is_of_batch = size > 0 and size % self.batch == 0 and size not in self.whole
        return size in self.counted or is_of_batch

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The rows that belong to the drawn inputs; all of a tensor that has no such rows."""
        if not self.has(tensor):
            return tensor
        size = len(tensor)
        if size in self.counted:
            return tensor[: -(-size * len(self.drawn) // self.batch)]
        blocks = tensor.reshape(self.batch, size // self.batch, *tensor.shape[1:])
        return blocks[list(self.drawn)].flatten(0, 1)

    @property
    def share(self) -> float:
        """Part of the batch that is drawn."""
        return len(self.drawn) / self.batch


def draw_rows(
    seed: int,
    batch: int,
    count: int,
    counted: tuple[int, ...] = (),
    whole: tuple[int, ...] = (),
) -> Rows:
    """Draw `count` inputs of a batch, or all of a smaller one."""
    order = torch.randperm(batch, generator=_generator(seed, "rows"))
    drawn = tuple(sorted(order[:count].tolist()))
    return Rows(batch=batch, drawn=drawn, counted=counted, whole=whole)


def draw_channels(seed: int, name: str, number: int, count: int = CHANNELS) -> torch.Tensor:
    """Draw `count` of a layer's channels, or all of fewer, in their order."""
    order = torch.randperm(number, generator=_generator(seed, name))
    return order[:count].sort().values


def is_drawn(seed: int, name: str, share: float) -> bool:
    """Whether the name is drawn, which it is with this probability."""
    return float(torch.rand((), generator=_generator(seed, f"{name}.is_drawn"))) < share


def draw_name(seed: int, names: list[str]) -> str | None:
    """Draw one of the names; None if there is none."""
    return names[draw_number(seed, "name", len(names))] if names else None


def draw_number(seed: int, name: str, below: int) -> int:
    """Draw a number from zero on; `name` says of what."""
    return int(torch.randint(below, (1,), generator=_generator(seed, name)))


def _generator(seed: int, name: str) -> torch.Generator:
    """Of a seed and a name, the same in every process."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
