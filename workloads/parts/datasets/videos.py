"""Videos in which something is to be foreseen: shapes that move steadily over a background.

What a hidden part of such a video shows follows from the parts that are seen, before, beside
and behind it: a shape keeps its colour, its speed and its direction, and goes round the edges.
"""

from __future__ import annotations

import torch

from appliance.generator.maps import UNIFORM, integers, normal
from workloads.parts.datasets.shapes import COLOURS, SHAPES, UNITS, covered
from workloads.parts.drawing.drawn import Drawer

_MOVING = 3
"""Shapes in each video."""
_RADII = integers(492, 983)
"""In units of the side, 0.12 to 0.24 of it."""
_SPEEDS = integers(-246, 246)
"""Of the side that a shape goes in one frame, down and across: 0.06 of it at most."""
_NOISE = normal(0.0, 0.1)


def moving_shapes(drawer: Drawer, name: str, *, count: int, frames: int, side: int) -> torch.Tensor:
    """Float32 videos (count, frames, 3, side, side), from about -1 to 1, where they are drawn.

    `name` tells them from others of the drawer. Backgrounds are two products and two sums of
    float32, and noise is added once; shapes are put before them by integers.
    """
    videos = _backgrounds(drawer, name, count, side)[:, None]
    for number in range(_MOVING):
        videos = _with_shape(drawer, f"{number} {name}", videos, frames)
    shape = (count, frames, 3, side, side)
    return drawer.tensor(f"noise {name}", _NOISE, torch.float32, shape).add_(videos)


def _backgrounds(drawer: Drawer, name: str, count: int, side: int) -> torch.Tensor:
    """One colour per video that grows lighter to one side (count, 3, side, side)."""
    colours = drawer.tensor(f"background {name}", UNIFORM, torch.float32, (count, 3, 1, 1))
    slope = drawer.tensor(f"slope {name}", UNIFORM, torch.float32, (count, 3, 2))
    places = torch.tensor([(2 * place + 1 - side) / side for place in range(side)])
    places = places.to(slope.device)
    down, across = slope[..., :1, None] * places[:, None], slope[..., 1:, None] * places
    return colours + down + across


def _with_shape(drawer: Drawer, name: str, videos: torch.Tensor, frames: int) -> torch.Tensor:
    """The videos (count, frame, 3, side, side) with one shape in front of what they show.

    One frame may stand for all.
    """
    count, side = len(videos), videos.shape[-1]
    whole = torch.int64
    kind = drawer.tensor(f"shape {name}", integers(0, len(SHAPES) - 1), whole, (count,))
    hue = drawer.tensor(f"colour {name}", integers(0, len(COLOURS) - 1), whole, (count,))
    radius = drawer.tensor(f"radius {name}", _RADII, whole, (count,))
    start = drawer.tensor(f"start {name}", integers(0, UNITS - 1), whole, (count, 1, 2))
    speed = drawer.tensor(f"speed {name}", _SPEEDS, whole, (count, 1, 2))
    passed = torch.arange(frames, device=speed.device)[:, None]
    centres = (start + speed * passed) % UNITS
    mask = covered(
        kind.repeat_interleave(frames),
        centres.flatten(0, 1),
        radius.repeat_interleave(frames),
        side,
    ).view(count, frames, 1, side, side)
    colour = COLOURS.to(hue.device)[hue]
    return torch.where(mask, colour[:, None, :, None, None], videos)
