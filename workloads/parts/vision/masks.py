"""Masks made of rectangles, drawn on the host, of equally many cells each time.

Rectangles are laid on a grid until the wanted number of cells is covered, and of the last one
only as much as is still wanted: so every step costs the same, and a mask is still what it is in
the papers, a union of blocks.
"""

from __future__ import annotations

import math

import torch


def block_mask(
    generator: torch.Generator,
    *,
    height: int,
    width: int,
    count: int,
    block: float,
    aspects: tuple[float, float],
) -> torch.Tensor:
    """Return a bool mask (height, width) with exactly `count` cells true.

    Each rectangle has about `block` cells; its height over its width lies in `aspects`.
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    while (wanted := count - int(mask.sum())) > 0:
        rows, columns = _sides(generator, height, width, block, aspects)
        top, left = (_below(generator, n) for n in (height - rows + 1, width - columns + 1))
        fresh = torch.zeros_like(mask)
        fresh[top : top + rows, left : left + columns] = True
        cells = (fresh & ~mask).flatten().nonzero().flatten()
        mask.view(-1)[cells[torch.randperm(len(cells), generator=generator)[:wanted]]] = True
    return mask


def _sides(
    generator: torch.Generator,
    height: int,
    width: int,
    block: float,
    aspects: tuple[float, float],
) -> tuple[int, int]:
    """Rows and columns of a rectangle, its aspect drawn evenly on a scale of logarithms."""
    low, high = (math.log(aspect) for aspect in aspects)
    aspect = math.exp(low + (high - low) * torch.rand((), generator=generator).item())
    rows = min(height, max(1, round(math.sqrt(block * aspect))))
    return rows, min(width, max(1, round(math.sqrt(block / aspect))))


def _below(generator: torch.Generator, number: int) -> int:
    return int(torch.randint(number, (), generator=generator))


def tubes(mask: torch.Tensor, layers: int) -> torch.Tensor:
    """Numbers of the masked cells, in order, of `layers` planes that have the same mask."""
    cells = mask.flatten().nonzero().flatten()
    return (torch.arange(layers)[:, None] * mask.numel() + cells).flatten()
