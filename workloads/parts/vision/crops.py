"""Crops of generated images that belong together: large and small views of one scene.

A scene is a coarse random field, drawn at 16 by 16 and smooth between: so a small crop shows
colours and slopes that its large ones show too, and another scene does not. Each view has its
own window, brightness, contrast and noise, and half of them are mirrored.
"""

from __future__ import annotations

import torch
from torch.nn import functional

_COARSE = 16
_NOISE = 0.1
LARGE, SMALL = (0.32, 1.0), (0.05, 0.32)
"""Shares of the scene's area that a large and a small crop show (Oquab et al., DINOv2)."""


def scenes(generator: torch.Generator, count: int) -> torch.Tensor:
    """Return coarse scenes (count, 3, 16, 16), a common colour over finer and finer patches."""
    total = torch.zeros(count, 3, _COARSE, _COARSE)
    for cells in (1, 2, 4, 8, _COARSE):
        field = torch.randn(count, 3, cells, cells, generator=generator)
        total += functional.interpolate(field, size=_COARSE, mode="nearest")
    return total / 5**0.5


def cropped(
    generator: torch.Generator,
    scenes: torch.Tensor,
    *,
    views: int,
    side: int,
    share: tuple[float, float],
) -> torch.Tensor:
    """Return `views` crops of every scene, (views * count, 3, side, side), view by view."""
    repeated = scenes.repeat(views, 1, 1, 1)
    images = functional.grid_sample(
        repeated,
        _windows(generator, len(repeated), side, share),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    contrast = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, generator=generator)
    brightness = 0.2 * torch.randn(len(images), 1, 1, 1, generator=generator)
    noise = _NOISE * torch.randn(images.shape, generator=generator)
    return contrast * images + brightness + noise


def _windows(
    generator: torch.Generator, count: int, side: int, share: tuple[float, float]
) -> torch.Tensor:
    """Where the pixels of each crop lie in its scene, from -1 to 1: (count, side, side, 2)."""
    low, high = share
    half = (low + (high - low) * torch.rand(count, generator=generator)).sqrt()
    middle = (1 - half[:, None]) * (2 * torch.rand(count, 2, generator=generator) - 1)
    mirrored = 1 - 2 * torch.randint(2, (count,), generator=generator)
    places = (2 * torch.arange(side) + 1) / side - 1
    across = (middle[:, 0, None] + (half * mirrored)[:, None] * places)[:, None, :]
    down = (middle[:, 1, None] + half[:, None] * places)[:, :, None]
    shape = (count, side, side)
    return torch.stack((across.expand(shape), down.expand(shape)), dim=-1)
