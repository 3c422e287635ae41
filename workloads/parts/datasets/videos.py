"""Videos in which something is to be foreseen: shapes that move steadily over a background.

What a hidden part of such a video shows follows from the parts that are seen, before, beside
and behind it: a shape keeps its colour, its speed and its direction, and goes round the edges.
"""

from __future__ import annotations

import torch

from workloads.parts.datasets.shapes import COLOURS, SHAPES, covered

_MOVING = 3
"""Shapes in each video."""
_FASTEST = 0.06
"""Of the side that a shape goes in one frame, down and across at most."""
_NOISE = 0.1


def moving_shapes(
    generator: torch.Generator, *, count: int, frames: int, side: int
) -> torch.Tensor:
    """Return float32 videos (count, frames, 3, side, side), from about -1 to 1, on the host."""
    videos = _backgrounds(generator, count, frames, side)
    for _ in range(_MOVING):
        videos = _with_shape(generator, videos)
    return videos + _NOISE * torch.randn(videos.shape, generator=generator)


def _backgrounds(generator: torch.Generator, count: int, frames: int, side: int) -> torch.Tensor:
    """One colour per video that grows lighter to one side, the same in all of its frames."""
    colours = torch.rand(count, 3, 1, 1, generator=generator) - 0.5
    slope = torch.rand(count, 3, 2, generator=generator) - 0.5
    places = torch.linspace(-1, 1, side)
    still = colours + slope[..., :1, None] * places[:, None] + slope[..., 1:, None] * places
    return still[:, None].expand(count, frames, 3, side, side)


def _with_shape(generator: torch.Generator, videos: torch.Tensor) -> torch.Tensor:
    """The videos with one shape in front of what they show."""
    count, frames, _, side, _ = videos.shape
    kind = torch.randint(len(SHAPES), (count,), generator=generator)
    colour = COLOURS[torch.randint(len(COLOURS), (count,), generator=generator)]
    radius = 0.12 + 0.12 * torch.rand(count, generator=generator)
    start = torch.rand(count, 1, 2, generator=generator)
    speed = _FASTEST * (2 * torch.rand(count, 1, 2, generator=generator) - 1)
    centres = (start + speed * torch.arange(frames)[:, None]) % 1
    mask = covered(
        kind.repeat_interleave(frames),
        centres.flatten(0, 1),
        radius.repeat_interleave(frames),
        side,
    ).view(count, frames, 1, side, side)
    return torch.where(mask, colour[:, None, :, None, None], videos)
