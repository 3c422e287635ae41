"""A batch in equal parts, whose gradients are added up before the optimiser steps.

The mean of the parts' losses is the loss of the whole batch if each part has as many labels,
which is for the workload to see to. Float64 takes the batch at once: so a part that was left
out, or counted twice, shows in every gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from workloads.contract.failures import ParameterError


def split(
    batch: Mapping[str, torch.Tensor], micro_batches: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Give the parts of a batch one after the other, cut along the first dimension."""
    cut = {name: tensor.chunk(micro_batches) for name, tensor in batch.items()}
    for number in range(micro_batches):
        yield {name: pieces[number] for name, pieces in cut.items()}


def require_micro_batches(count: int, micro_batches: int) -> None:
    """Raise ParameterError unless `count` inputs can be cut into so many equal parts."""
    if micro_batches < 1 or count % micro_batches:
        message = f"accumulation is {micro_batches}: give a number that divides the {count} inputs"
        raise ParameterError(message)
