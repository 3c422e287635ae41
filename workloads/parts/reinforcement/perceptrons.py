"""Operations of multilayer perceptrons in closed form, for networks that JAX runs.

torch's counter does not see what JAX computes, so these follow from the sizes of the layers, by the
rule of `parts/numerics/size.py`. A test holds them to the products in the program that JAX traces
of a whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def forward_flops(sizes: Sequence[int], rows: int) -> int:
    """Of one pass of `rows` samples; `sizes` are those of the inputs and of every layer."""
    return 2 * rows * sum(width * height for width, height in pairwise(sizes))


def training_flops(sizes: Sequence[int], rows: int) -> int:
    """Of a pass, the gradients of its weights, and of each layer's inputs but the first's.

    What a network observes wants no gradient.
    """
    return 2 * forward_flops(sizes, rows) + forward_flops(sizes[1:], rows)
