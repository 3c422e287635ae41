"""Coloured shapes on a plane: what drawn videos move about and drawn captions name.

Where a shape lies follows from integers alone, so it covers the same pixels on every device.
"""

from __future__ import annotations

import torch

UNITS = 4096
"""Of a side, in which places and sizes are counted."""
SHAPES = ("disc", "square", "ring", "cross")
COLOURS = torch.tensor(
    [
        [1.0, -0.8, -0.8],
        [-0.8, 0.9, -0.8],
        [-0.8, -0.6, 1.0],
        [1.0, 0.9, -0.8],
        [0.9, -0.8, 0.9],
        [-0.8, 0.9, 0.9],
        [0.9, 0.9, 0.9],
        [-0.9, -0.9, -0.9],
    ]
)
"""Red, green and blue of eight colours, from -1 to 1."""


def covered(
    kind: torch.Tensor, centre: torch.Tensor, radius: torch.Tensor, side: int
) -> torch.Tensor:
    """Where shapes lie on squares of `side` pixels, as bool (count, side, side).

    `kind` (count,) is the shape's number; `centre` (count, 2), row and column, and `radius`
    (count,) are integers in `UNITS` of the side, the radius a quarter of it at most, so that 32
    bits hold every square.
    """
    places = (2 * torch.arange(side, device=kind.device) + 1) * (UNITS // 2) // side
    away = (places - centre[:, :, None]).abs().to(torch.int32)
    down, across, size = away[:, 0, :, None], away[:, 1, None, :], radius[:, None, None]
    squares, square = down * down + across * across, size * size
    larger, smaller = torch.maximum(down, across), torch.minimum(down, across)
    inside = torch.stack(
        (
            squares <= square,
            20 * larger <= 17 * size,  # about as much area as the disc
            (squares <= square) & (4 * squares > square),  # half of it is the hole
            (larger <= size) & (5 * smaller <= 2 * size),  # the width of its arms
        )
    )
    return inside[kind, torch.arange(len(kind), device=kind.device)]
