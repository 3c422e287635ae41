"""Images with captions that say what they show: one shape, its colour, its place, what is behind.

A caption is a row of token numbers as a text encoder expects it: a token that begins it, five
words, a token that ends it, and that token again as padding. A model of the images must read the
caption to do well, because the words are drawn independently of each other.
"""

from __future__ import annotations

import torch

from workloads.contract.failures import ParameterError
from workloads.parts.datasets.shapes import COLOURS, SHAPES, covered

_PLACES = 9
_SIZES = (0.15, 0.25)
_COUNTS = (len(COLOURS), len(SHAPES), _PLACES, len(_SIZES), len(COLOURS))
"""Words of each kind: colour, shape, place, size and background."""
_SHORTEST = len(_COUNTS) + 2
_NOISE = 0.05


def begin_and_end(vocabulary: int) -> tuple[int, int]:
    """Numbers of the tokens that begin and end a caption: the last two, as in CLIP."""
    return vocabulary - 2, vocabulary - 1


def require_room(vocabulary: int, length: int) -> None:
    """Raise ParameterError unless captions fit into the vocabulary and into the length."""
    words = sum(_COUNTS) + 2
    if vocabulary < words:
        raise ParameterError(f"vocabulary is {vocabulary}: give {words} at least")
    if length < _SHORTEST:
        raise ParameterError(f"length is {length}: give {_SHORTEST} tokens at least")


def captioned_images(
    generator: torch.Generator, *, count: int, side: int, vocabulary: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 images (count, 3, side, side), from about -1 to 1, and captions, on the host.

    The captions are int64 (count, length).
    """
    words = [torch.randint(number, (count,), generator=generator) for number in _COUNTS]
    colour, shape, place, size, behind = words
    images = 0.5 * COLOURS[behind, :, None, None].expand(count, 3, side, side)
    centre = (torch.stack((place // 3, place % 3), dim=1) + 0.5) / 3
    mask = covered(shape, centre, torch.tensor(_SIZES)[size], side)[:, None]
    images = torch.where(mask, COLOURS[colour, :, None, None], images)
    images = images + _NOISE * torch.randn(images.shape, generator=generator)
    return images, _spelt(words, vocabulary, length)


def _spelt(words: list[torch.Tensor], vocabulary: int, length: int) -> torch.Tensor:
    """Tokens of the words, each kind in a range of its own, between beginning and end."""
    begin, end = begin_and_end(vocabulary)
    captions = torch.full((len(words[0]), length), end)
    captions[:, 0] = begin
    first = 0
    for position, (word, number) in enumerate(zip(words, _COUNTS, strict=True), start=1):
        captions[:, position] = first + word
        first += number
    return captions
