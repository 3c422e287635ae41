"""Crops of drawn images that belong together: large and small views of one scene.

A scene is a coarse random field, drawn at 16 by 16 and smooth between: so a small crop shows
colours and slopes that its large ones show too, and another scene does not. Each view has its
own window, brightness, contrast and noise, and half of them are mirrored.

Windows and the weights of neighbouring cells are integers; what is left are products and sums of
float32, each an operation of its own that is rounded once, so a crop has the same bits wherever it
is made.
"""

from __future__ import annotations

import math

import torch

from appliance.generator.maps import NORMAL, integers, normal
from workloads.parts.drawing.drawn import Drawer

_COARSE = 16
_CELLS = (1, 2, 4, 8, _COARSE)
"""Patches across of the fields that a scene is the sum of, all of the same size."""
_SCALE = 229 / 512
"""One over the root of their number to 2e-4, exact in float32."""
_UNITS = 4096
"""Of a scene's side, in which windows are counted; a coarse cell has 256."""
_BITS_OF_A_CELL = 8
_SIZES = 256
"""Different sizes of windows, evenly over their areas."""
_CONTRAST, _WHOLE = integers(205, 307), 256
"""0.8 to 1.2 of 256."""
_BRIGHTNESS, _NOISE = normal(0.0, 0.2), normal(0.0, 0.1)
_BITS_OF_A_PLACE = 16
LARGE, SMALL = (0.32, 1.0), (0.05, 0.32)
"""Shares of the scene's area that a large and a small crop show (Oquab et al., DINOv2)."""


def drawn_scenes(drawer: Drawer, name: str, count: int) -> torch.Tensor:
    """Coarse scenes (count, 3, 16, 16), a common colour over finer and finer patches."""
    fields = []
    for cells in _CELLS:
        shape = (count, 3, cells, cells)
        field = drawer.tensor(f"patches {cells} {name}", NORMAL, torch.float32, shape)
        place = torch.arange(_COARSE, device=field.device) * cells // _COARSE
        fields.append(field[:, :, place][..., place])
    total = fields[0]
    for field in fields[1:]:
        total = total + field
    return total * _SCALE


def drawn_crops(
    drawer: Drawer,
    name: str,
    scenes: torch.Tensor,
    *,
    views: int,
    side: int,
    share: tuple[float, float],
) -> torch.Tensor:
    """Return `views` crops of every scene, (views * count, 3, side, side), view by view.

    `name` tells them from other crops of the drawer.
    """
    images = scenes.repeat(views, 1, 1, 1)
    count = len(images)
    down, across = _places(drawer, name, count, side, share)
    images = _between(_between(images, down[:, None, :, None], 2), across[:, None, None, :], 3)
    contrast = drawer.tensor(f"contrast {name}", _CONTRAST, torch.float32, (count, 1, 1, 1))
    shape = (count, 1, 1, 1)
    brightness = drawer.tensor(f"brightness {name}", _BRIGHTNESS, torch.float32, shape)
    images = images * (contrast * (1 / _WHOLE)) + brightness
    noise = drawer.tensor(f"noise {name}", _NOISE, torch.float32, (count, 3, side, side))
    return noise.add_(images)


def _between(images: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """The images along one axis at places in units from the first cell's middle."""
    lower, part = places >> _BITS_OF_A_CELL, places & ((1 << _BITS_OF_A_CELL) - 1)
    shape = list(images.shape)
    shape[axis] = places.shape[axis]

    def at(cells: torch.Tensor) -> torch.Tensor:
        return images.gather(axis, cells.clamp(0, _COARSE - 1).expand(shape))

    weight = part.to(images.dtype) * 2.0**-_BITS_OF_A_CELL
    return at(lower) * (1 - weight) + at(lower + 1) * weight


def _places(
    drawer: Drawer, name: str, count: int, side: int, share: tuple[float, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of each crop's pixels in its scene, (count, side) each.

    In units from the middle of the scene's first cell.
    """
    size = drawer.tensor(f"size {name}", integers(0, _SIZES - 1), torch.int64, (count, 1))
    width = torch.tensor(_widths(share), device=size.device)[size]
    random = integers(0, 2**_BITS_OF_A_PLACE - 1)
    corner = drawer.tensor(f"corner {name}", random, torch.int64, (count, 2))
    corner = (_UNITS - width) * corner >> _BITS_OF_A_PLACE
    mirrored = drawer.tensor(f"mirrored {name}", integers(0, 1), torch.int64, (count, 1))
    pixel = torch.arange(side, device=size.device)
    turned = pixel + mirrored * (side - 1 - 2 * pixel)
    middle = (1 << _BITS_OF_A_CELL) // 2
    down, across = (
        corner[:, axis, None] + (2 * places + 1) * width // (2 * side) - middle
        for axis, places in enumerate((pixel, turned))
    )
    return down, across


def _widths(share: tuple[float, float]) -> list[int]:
    """Sides of windows in units, of areas that lie evenly between two shares of the scene's."""
    low, high = (round(one * _UNITS**2) for one in share)
    step = (high - low) / _SIZES
    return [math.isqrt(round(low + step * (number + 0.5))) for number in range(_SIZES)]
