"""A Markov chain of order two, made from a seed, with its exact entropy."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

SYMBOLS = 32
CONCENTRATION = 0.1
_ROUNDS = 300  # of the power iteration; 30 leave less than 1e-12 of the start
_AT_ONCE = 2**16


class Source:
    """`chance[i, j, k]`: chance of k after i and j; `entropy` in nat per symbol."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        rows = self._rng.dirichlet(np.full(SYMBOLS, CONCENTRATION), size=(SYMBOLS, SYMBOLS))
        self.chance = torch.from_numpy(rows)
        self.pairs = torch.full((SYMBOLS, SYMBOLS), 1 / SYMBOLS**2, dtype=torch.float64)
        for _ in range(_ROUNDS):
            self.pairs = torch.einsum("ij,ijk->jk", self.pairs, self.chance)
        self.entropy = (self.pairs * torch.special.entr(self.chance).sum(-1)).sum().item()

    def windows(self, count: int, length: int) -> torch.Tensor:
        """Independent windows of the chain in its stationary state, one a row."""
        parts = [self._windows(min(_AT_ONCE, count - n), length) for n in range(0, count, _AT_ONCE)]
        return torch.from_numpy(np.concatenate(parts))

    def _windows(self, count: int, length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        pairs = self.pairs.flatten().cumsum(0).numpy()
        first = np.searchsorted(pairs / pairs[-1], self._rng.random(count), side="right")
        symbols = [first // SYMBOLS, first % SYMBOLS]
        rows = self.chance.cumsum(-1).numpy()
        for _ in range(length - 2):
            pair = symbols[-2] * SYMBOLS + symbols[-1]
            draw = self._rng.random(count) * rows[:, :, -1].reshape(-1)[pair]
            symbols.append(_num_up_to(rows.reshape(-1), pair * SYMBOLS, draw))
        return np.stack(symbols, axis=1)

    def loss(self, windows: torch.Tensor) -> torch.Tensor:
        """Mean of -log of the chance that the source gives to each window's last symbol."""
        older, newer, last = windows[:, -3:].unbind(1)
        return -self.chance[older, newer, last].log().mean()


def _num_up_to(
    rows: NDArray[np.float64], begins: NDArray[np.int64], limits: NDArray[np.float64]
) -> NDArray[np.int64]:
    """How many of the ascending numbers of each row, which begins there, are not above its limit.

    Halving finds it, and the last number is above: `SYMBOLS` is a power of two.
    """
    count = np.zeros_like(begins)
    step = SYMBOLS // 2
    while step:
        count += step * (rows[begins + (count + step - 1)] <= limits)
        step //= 2
    return count
