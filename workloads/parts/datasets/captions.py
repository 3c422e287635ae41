"""Images with captions that say what they show: one shape, its colour, its place, what is behind.

A caption is a row of token numbers as a text encoder expects it: a token that begins it, five
words, a token that ends it, and that token again as padding. A model of the images must read the
caption to do well, because the words are drawn independently of each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from appliance.generator.maps import integers, normal
from workloads.contract.failures import ParameterError
from workloads.parts.datasets.shapes import COLOURS, SHAPES, UNITS, covered
from workloads.parts.drawing.drawn import Drawer

_SIZES = (614, 1024)
"""Radii in units of the side, 0.15 and 0.25 of it."""
_COUNTS = {
    "colour": len(COLOURS),
    "shape": len(SHAPES),
    "place": 9,
    "size": len(_SIZES),
    "background": len(COLOURS),
}
"""Words of each kind, in the order in which a caption has them."""
_SHORTEST = len(_COUNTS) + 2
_NOISE = normal(0.0, 0.05)


def begin_and_end(vocabulary: int) -> tuple[int, int]:
    """Numbers of the tokens that begin and end a caption: the last two, as in CLIP."""
    return vocabulary - 2, vocabulary - 1


def require_room(vocabulary: int, length: int) -> None:
    """Raise ParameterError unless captions fit into the vocabulary and into the length."""
    words = sum(_COUNTS.values()) + 2
    if vocabulary < words:
        raise ParameterError(f"vocabulary is {vocabulary}: give {words} at least")
    if length < _SHORTEST:
        raise ParameterError(f"length is {length}: give {_SHORTEST} tokens at least")


def captioned_images(
    drawer: Drawer, name: str, *, count: int, side: int, vocabulary: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 images (count, 3, side, side), from about -1 to 1, and captions, where drawn.

    The captions are int64 (count, length). `name` tells them from others of the drawer. Noise is
    added to a colour, one sum of float32 that is rounded once.
    """
    words = {
        kind: drawer.tensor(f"{kind} {name}", integers(0, number - 1), torch.int64, (count,))
        for kind, number in _COUNTS.items()
    }
    place, colours = words["place"], COLOURS.to(words["place"].device)
    centre = (2 * torch.stack((place // 3, place % 3), dim=1) + 1) * UNITS // 6
    radius = torch.tensor(_SIZES, device=place.device)[words["size"]]
    mask = covered(words["shape"], centre, radius, side)[:, None]
    behind = 0.5 * colours[words["background"], :, None, None]
    images = torch.where(mask, colours[words["colour"], :, None, None], behind)
    noise = drawer.tensor(f"noise {name}", _NOISE, torch.float32, (count, 3, side, side))
    return noise.add_(images), _spelt(words, vocabulary, length)


def _spelt(words: Mapping[str, torch.Tensor], vocabulary: int, length: int) -> torch.Tensor:
    """Tokens of the words, each kind in a range of its own, between beginning and end."""
    begin, end = begin_and_end(vocabulary)
    colour = words["colour"]
    captions = torch.full((len(colour), length), end, device=colour.device)
    captions[:, 0] = begin
    first = 0
    for position, (kind, number) in enumerate(_COUNTS.items(), start=1):
        captions[:, position] = first + words[kind]
        first += number
    return captions
