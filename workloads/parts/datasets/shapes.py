"""Coloured shapes on a plane: what generated videos move about and generated captions name."""

from __future__ import annotations

import torch

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
    (count,) are in units of the side.
    """
    places = (torch.arange(side) + 0.5) / side
    down = (places[None, :, None] - centre[:, 0, None, None]).abs() / radius[:, None, None]
    across = (places[None, None, :] - centre[:, 1, None, None]).abs() / radius[:, None, None]
    distance = (down.square() + across.square()).sqrt()
    larger, smaller = torch.maximum(down, across), torch.minimum(down, across)
    inside = torch.stack(
        (
            distance <= 1,
            larger <= 0.85,  # noqa: PLR2004 - about as much area as the disc
            (distance <= 1) & (distance > 0.5),  # noqa: PLR2004 - half of it is the hole
            (larger <= 1) & (smaller <= 0.4),  # noqa: PLR2004 - the width of its arms
        )
    )
    return inside[kind, torch.arange(len(kind))]
