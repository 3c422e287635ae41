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
_BEYOND = 2**30
"""More than any square of a distance."""


def covered(
    kind: torch.Tensor, centre: torch.Tensor, radius: torch.Tensor, side: int
) -> torch.Tensor:
    """Where shapes lie on squares of `side` pixels, as bool (count, side, side).

    `kind` (count,) is the shape's number; `centre` (count, 2), row and column, and `radius`
    (count,) are integers in `UNITS` of the side, the radius a quarter of it at most, so that 32
    bits hold every square.
    """
    places = (2 * torch.arange(side, device=kind.device) + 1) * (UNITS // 2) // side
    away = (places - centre[:, :, None]).abs()
    squares = (away * away).to(torch.int32)
    size, square = radius[:, None], (radius * radius)[:, None]
    far = torch.full_like(size, _BEYOND)
    # By shape: at most how far from the centre, more than how far, how far along both axes at
    # most, and along one of them at most. Areas are alike, and half of the ring is its hole.
    within = torch.stack((square, far, square, far))
    beyond = torch.stack((-far, -far, square // 4, -far))
    box = torch.stack((far, 17 * size // 20, far, size))
    arm = torch.stack((far, far, far, 2 * size // 5))
    one = kind, torch.arange(len(kind), device=kind.device)
    distance = squares[:, 0, :, None] + squares[:, 1, None, :]
    most, least = (limit[one][..., None].to(torch.int32) for limit in (within, beyond))
    down, across = away[:, 0], away[:, 1]
    in_box = (down <= box[one])[:, :, None] & (across <= box[one])[:, None, :]
    on_arm = (down <= arm[one])[:, :, None] | (across <= arm[one])[:, None, :]
    inside: torch.Tensor = (distance <= most) & (distance > least) & in_box & on_arm
    return inside
