"""Images of a data set that tests make up: a pattern by class, and noise, by torch's generator."""

import math

import torch

_COARSE = 8


def labelled_images(
    generator: torch.Generator, *, count: int, side: int, classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 images (count, 3, side, side) and their classes, on the host.

    The patterns depend on the class alone, the choice of classes and the noise on `generator`.
    """
    labels = torch.randint(classes, (count,), generator=generator)
    coarse = torch.stack([_pattern(int(label)) for label in labels])
    index = torch.arange(side) * _COARSE // side
    patterns = coarse[:, :, index][:, :, :, index]
    noise = torch.randn(count, 3, side, side, generator=generator)
    return (patterns + noise) * math.sqrt(0.5), labels


def _pattern(label: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(label)
    return torch.randn(3, _COARSE, _COARSE, generator=generator)
