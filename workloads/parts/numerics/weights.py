"""Weights that each stand for themselves: drawn from the seed and their own name.

So a reference can draw one layer anew, when it comes to it, from nothing that the device holds:
a weight damaged on its way to the device, or on it, shows, and no second copy of a large model
is kept. Matrices are normally distributed with the variance that keeps the size of what passes
through them; vectors (the gains of normalisations) lie around one.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import torch

_SPREAD_OF_GAINS = 0.1


def draw(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return the float32 weight called `name`, on the host."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    rng = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.randn(shape, generator=rng)
    if len(shape) == 1:
        return values.mul_(_SPREAD_OF_GAINS).add_(1)
    return values.mul_(shape[-1] ** -0.5)


def fill(model: torch.nn.Module, seed: int) -> None:
    """Give every parameter its weight, rounded to the parameter's format.

    On all threads that torch may use, since billions of weights are drawn here; which thread
    draws one does not change it.
    """

    def put(named: tuple[str, torch.nn.Parameter]) -> None:
        name, parameter = named
        with torch.no_grad():
            parameter.copy_(draw(name, tuple(parameter.shape), seed))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(put, model.named_parameters()):
            pass  # so that an error is raised here
