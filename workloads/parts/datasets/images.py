"""Images that a classifier can learn: every class has a pattern, every image adds noise.

Pure noise would let a training loss do as it likes; here a right gradient lowers it. The
pattern is coarse (8 by 8) and takes half of the variance, so all images have unit variance.

Drawn images are one sum and one product of float32 by element, each rounded as IEEE 754 says, so
they have the same bits wherever they are made.
"""

from __future__ import annotations

import torch

from appliance.generator.maps import NORMAL, integers
from workloads.parts.drawing.drawn import Drawer, Wanted

_COARSE = 8
_SCALE = 181 / 256
"""The root of a half to 1e-4, exact in float32."""


def drawn_patterns(drawer: Drawer, classes: int) -> torch.Tensor:
    """Patterns (classes, 3, 8, 8) of all classes, where the drawer draws."""
    return drawer.tensor(*_patterns(classes))


def _patterns(classes: int) -> Wanted:
    return "patterns", NORMAL, torch.float32, (classes, 3, _COARSE, _COARSE)


def wanted_images(name: str, classes: int, *, count: int, side: int) -> list[Wanted]:
    """What `drawn_images` draws, and the patterns before."""
    return [_patterns(classes), *_images(name, classes, count=count, side=side)]


def _images(name: str, classes: int, *, count: int, side: int) -> tuple[Wanted, Wanted]:
    return (
        (f"labels {name}", integers(0, classes - 1), torch.int64, (count,)),
        (f"noise {name}", NORMAL, torch.float32, (count, 3, side, side)),
    )


def drawn_images(
    drawer: Drawer, name: str, patterns: torch.Tensor, *, count: int, side: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 images (count, 3, side, side) and their classes, where the drawer draws.

    `name` tells them from other images of the drawer, `patterns` are what `drawn_patterns` made.
    """
    labels, images = (
        drawer.tensor(*one) for one in _images(name, len(patterns), count=count, side=side)
    )
    place = torch.arange(side, device=images.device) * _COARSE // side
    images += patterns[labels][:, :, place][:, :, :, place]
    return images.mul_(_SCALE), labels
