"""Weights that each stand for themselves: drawn from the seed and their own name.

So a reference can draw one layer anew, when it comes to it, from nothing that the device holds:
a weight damaged on its way to the device, or on it, shows, and no second copy of a large model
is kept. Matrices are normally distributed with the variance that keeps the size of what passes
through them; vectors (the gains of normalisations) lie around one.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

NUM_AHEAD = 9
"""Weights that are drawn ahead of the one in use: those of one layer of a Llama."""
_SPREAD_OF_GAINS = 0.1


def draw(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return the float32 weight called `name`, on the host."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    rng = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.randn(shape, generator=rng)
    if len(shape) == 1:
        return values.mul_(_SPREAD_OF_GAINS).add_(1)
    return values.mul_(shape[-1] ** -0.5)


@contextmanager
def drawn_ahead(
    named: Iterable[tuple[str, tuple[int, ...]]],
    seed: int,
    dtype: torch.dtype,
    most: int = NUM_AHEAD,
) -> Iterator[Callable[..., torch.Tensor]]:
    """A function that gives the weights `named`, in their order, in float64 but rounded to a dtype.

    It is called by name and sizes, and raises ValueError out of order. While one is used the next
    `most` are drawn on other threads, each by itself as `draw` has it.
    """

    def rounded(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return draw(name, shape, seed).to(dtype)

    waiting = iter(named)
    with ThreadPoolExecutor(max(1, min(most, torch.get_num_threads()))) as pool:
        begun: deque[tuple[str, tuple[int, ...], Future[torch.Tensor]]] = deque()

        def begin(count: int) -> None:
            for name, shape in itertools.islice(waiting, count):
                begun.append((name, shape, pool.submit(rounded, name, shape)))

        def weight(name: str, *sizes: int) -> torch.Tensor:
            if not begun or begun[0][:2] != (name, sizes):
                raise ValueError(f"weight {name} of shape {sizes} is not the next one")
            values = begun.popleft()[2].result()
            begin(1)
            return values.double()

        begin(most)
        try:
            yield weight
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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
