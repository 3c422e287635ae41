"""Noise of Gumbel's distribution, for choices by chance: random bits, and quantiles looked up.

Added to logits, the largest sum falls on each as often as its probability says. An element is a
quantile by 24 random bits: of the lower 255/256 of all numbers by the upper 16 of them, of the
rest, which decide most choices, by all. So none is above 17.4, and the few largest of fifty
thousand are told apart. The quantiles are computed once by the host and rounded to multiples of
2^-16, so far that hosts agree on them, and float32 holds them; the device only looks up.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from appliance.generator.maps import WORDS
from workloads.parts.drawing.drawn import Drawer

BITS, COARSE = 24, 16
"""Random bits of an element, and those that most are looked up by."""
_FINE = BITS - COARSE
_PLACES = 2**COARSE
_UPPER = _PLACES - 2**_FINE
"""From this coarse place on all bits count."""
_IN_WORD = 2
_ROUNDED = 2.0**16


def noise(drawer: Drawer, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Float32 noise of a shape, where the drawer draws: an element by 32 bits, of which 24 count.

    Row by row, so that little is held at once.
    """
    count = prod(shape)
    words = drawer.tensor(name, WORDS, torch.int64, (-(-count // _IN_WORD),))
    random = words.view(torch.int32)[:count].view(shape[0], -1)
    most, rare = (table.to(words.device) for table in _tables())
    made = torch.empty_like(random, dtype=torch.float32)
    for row, bits in zip(made, random, strict=True):
        coarse = (bits >> COARSE) & (_PLACES - 1)
        torch.index_select(most, 0, coarse, out=row)
        upper = (coarse >= _UPPER).nonzero().squeeze(1)
        row[upper] = rare[(bits[upper] >> (32 - BITS)) & (len(rare) - 1)]
    return made.view(shape)


@lru_cache(maxsize=1)
def _tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Quantiles by the coarse bits, and by the lower bits where these are the uppermost."""
    by_fine = 2 ** (2 * _FINE)
    return (
        _quantiles(1 - (np.arange(_PLACES) + 0.5) / _PLACES),
        _quantiles((by_fine - np.arange(by_fine) - 0.5) / 2**BITS),
    )


def _quantiles(rest: NDArray[np.float64]) -> torch.Tensor:
    """The numbers that shares of `rest` exceed."""
    exact = -np.log(-np.log1p(-rest))
    return torch.from_numpy(np.rint(exact * _ROUNDED) / _ROUNDED).float()
