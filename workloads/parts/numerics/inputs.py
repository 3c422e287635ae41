"""Input sets in the device's memory, each with the checksum that it had on the host.

A step that is followed from what lies on the device follows a batch that was spoiled on its way
there, or since, just as well. So the checksum is made of what the host generated, before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from workloads.parts.numerics.checksums import checksum_all, checksums_of_sets

Tensors = Mapping[str, torch.Tensor]


@dataclass(kw_only=True)
class InputSets:
    """Keyword arguments of a model by the number of the set, and their checksums."""

    sets: list[dict[str, torch.Tensor]]
    checksums: list[int]

    def __getitem__(self, index: int, /) -> Tensors:
        return self.sets[index]

    def __len__(self) -> int:
        return len(self.sets)


def cut(
    whole: Sequence[torch.Tensor],
    rows: int,
    device: torch.device,
    named: Callable[..., dict[str, torch.Tensor]],
) -> InputSets:
    """Sets of so many rows of each tensor, by what `named` makes of them.

    They are summed up as the host made them, and moved in one copy of each tensor.
    """
    on_host, on_device = (
        [named(*parts) for parts in zip(*(torch.split(one, rows) for one in tensors), strict=True)]
        for tensors in (whole, [one.to(device) for one in whole])
    )
    return InputSets(sets=on_device, checksums=checksums_of_sets(on_host))


def placed(generated: Iterable[Tensors], device: torch.device) -> InputSets:
    """Sum up what the host generated and move it."""
    sets, checksums = [], []
    for batch in generated:
        checksums.append(checksum_all(batch))
        sets.append({name: tensor.to(device) for name, tensor in batch.items()})
    return InputSets(sets=sets, checksums=checksums)
