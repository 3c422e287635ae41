"""Masks made of rectangles, of equally many cells each time.

Rectangles are laid on a grid until the wanted number of cells is covered, and of the last one
only as much as is still wanted, drawn by chance: so every step costs the same, and a mask is still
what it is in the papers, a union of blocks. All masks are made at once, from integers and orders,
so they are the same wherever they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from appliance.generator.maps import WORDS, integers
from workloads.parts.drawing.drawn import Drawer

_RECTANGLES = 32
"""Laid of each mask; should they not suffice, single cells by chance follow."""
_ASPECTS = 64
"""Different aspects, evenly on a scale of logarithms."""
_BITS_OF_A_PLACE = 16


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is masked: `height` by `width` cells."""

    height: int
    width: int

    @property
    def cells(self) -> int:
        return self.height * self.width


def block_masks(
    drawer: Drawer,
    name: str,
    grid: Grid,
    *,
    counts: Sequence[int],
    blocks: Sequence[float],
    aspects: tuple[float, float],
) -> torch.Tensor:
    """Bool masks (mask, cell) with exactly `counts` cells true, one mask for each of them.

    Each rectangle of a mask has about its one of `blocks` cells; its height over its width lies in
    `aspects`. `name` tells the masks from others of the drawer.
    """
    shape = (len(counts), grid.cells)
    chance = drawer.tensor(f"cells {name}", WORDS, torch.int64, shape).argsort(dim=1, stable=True)
    first = _first_rectangles(drawer, name, grid, blocks, aspects)
    order = chance.gather(1, first.gather(1, chance).argsort(dim=1, stable=True))
    wanted = torch.tensor(counts, device=order.device)[:, None]
    is_chosen = torch.arange(grid.cells, device=order.device) < wanted
    return torch.zeros_like(is_chosen).scatter(1, order, is_chosen)


def _first_rectangles(
    drawer: Drawer,
    name: str,
    grid: Grid,
    blocks: Sequence[float],
    aspects: tuple[float, float],
) -> torch.Tensor:
    """Number of the first rectangle that covers each cell (mask, cell), or their number."""
    shape = (len(blocks), _RECTANGLES)
    aspect = drawer.tensor(f"aspects {name}", integers(0, _ASPECTS - 1), torch.int64, shape)
    table = torch.tensor([_sides(grid, block, aspects) for block in blocks], device=aspect.device)
    rows, columns = table.gather(1, aspect[..., None].expand(-1, -1, 2)).unbind(dim=2)
    random = integers(0, 2**_BITS_OF_A_PLACE - 1)
    top = drawer.tensor(f"tops {name}", random, torch.int64, shape)
    left = drawer.tensor(f"lefts {name}", random, torch.int64, shape)
    top = top * (grid.height - rows + 1) >> _BITS_OF_A_PLACE
    left = left * (grid.width - columns + 1) >> _BITS_OF_A_PLACE
    down = _within(grid.height, top, rows)[..., :, None]
    across = _within(grid.width, left, columns)[..., None, :]
    is_covered = (down & across).flatten(2)
    numbers = torch.arange(_RECTANGLES, device=top.device)[:, None]
    return numbers.where(is_covered, _RECTANGLES).amin(dim=1)


def _within(length: int, begin: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Which of `length` places lie in each span, (..., place)."""
    places = torch.arange(length, device=begin.device)
    return (places >= begin[..., None]) & (places < (begin + size)[..., None])


def _sides(grid: Grid, block: float, aspects: tuple[float, float]) -> list[tuple[int, int]]:
    """Rows and columns of a rectangle of each aspect."""
    low, high = (math.log(aspect) for aspect in aspects)
    sides = []
    for number in range(_ASPECTS):
        aspect = math.exp(low + (high - low) * (number + 0.5) / _ASPECTS)
        rows = min(grid.height, max(1, round(math.sqrt(block * aspect))))
        sides.append((rows, min(grid.width, max(1, round(math.sqrt(block / aspect))))))
    return sides


def tubes(masks: torch.Tensor, layers: int) -> torch.Tensor:
    """Numbers of the masked cells (mask, ...), in order, of `layers` planes with the same mask.

    All masks (mask, cell) have equally many cells.
    """
    count, cells = masks.shape
    places = masks.nonzero()[:, 1].view(count, 1, -1)
    planes = torch.arange(layers, device=masks.device)[:, None] * cells
    return (planes + places).flatten(1)
