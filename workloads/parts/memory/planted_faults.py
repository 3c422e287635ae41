"""Faults as silently corrupting devices make them, planted in a product on the host.

In three million hours of simulated faults of a data-center GPU fewer than 40 % of the corrupting
events flipped one bit alone, 1.01 % left a NaN or an infinity, and the addresses recurred (arXiv
2605.04213). So fewer than four of ten planted faults change one bit; others change several bits of
a word, several words, a lane that recurs, or a tile that is stale or zero; one of a hundred leaves
a NaN or an infinity, and some come again at the address of the one before. The other shares are
ours: none of the promises rests on one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

SHARES: Mapping[str, float] = {
    "one bit": 0.37,
    "two to eight bits of a word": 0.22,
    "several words": 0.15,
    "a lane": 0.06,
    "a tile, stale": 0.08,
    "a tile, zero": 0.04,
    "two words swapped": 0.02,
    "NaN or infinity": 0.01,
    "the same address again": 0.05,
}
"""Part of all planted faults that each kind has."""
_KINDS, _BOUNDS = tuple(SHARES), np.cumsum(list(SHARES.values()))
_EXPONENTS = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00, torch.float32: 0x7F800000}
_LARGEST_TILE = 128

Words = NDArray[np.signedinteger]


@dataclass(kw_only=True)
class Planter:
    """Plants faults of all kinds; the same seed plants the same ones.

    `stale` is what a tile may still hold: another matrix of the same shape and dtype, or larger.
    """

    stale: torch.Tensor
    seed: int
    last: tuple[int, int, int] = (0, 0, 0)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def draw_kind(self) -> str:
        """A kind, by its share."""
        place = np.searchsorted(_BOUNDS, self.rng.random() * _BOUNDS[-1], side="right")
        return _KINDS[min(int(place), len(_KINDS) - 1)]

    def plant(self, kind: str, matrix: torch.Tensor) -> None:
        """Plant a fault of this kind in a matrix on the host; at least one bit changes."""
        words = words_of(matrix)
        before = words.copy()
        while np.array_equal(words, before):
            self._plant(kind, words, matrix.dtype)

    def _plant(self, kind: str, words: Words, dtype: torch.dtype) -> None:
        bits = 8 * words.itemsize
        row, column = self._place(words)
        if kind == "one bit":
            self._flip(words, row, column, int(self.rng.integers(bits)))
        elif kind == "two to eight bits of a word":
            for bit in self.rng.choice(bits, int(self.rng.integers(2, 9)), replace=False):
                self._flip(words, row, column, int(bit))
        elif kind == "several words":
            for _ in range(int(self.rng.integers(2, 65))):
                self._flip(words, *self._place(words), int(self.rng.integers(bits)))
        elif kind == "a lane":
            step = 2 ** int(self.rng.integers(1, 6))
            words[row :: int(self.rng.integers(1, 5)), column % step :: step] ^= self._mask(
                words, int(self.rng.integers(bits))
            )
        elif kind == "two words swapped":
            other = self._place(words)
            words[row, column], words[other] = words[other], words[row, column]
        elif kind == "NaN or infinity":
            number = _EXPONENTS[dtype] | int(self.rng.choice([0, 1]))
            words[row, column] = words.dtype.type(number)
        elif kind == "the same address again":
            row, column, bit = (
                number % end for number, end in zip(self.last, (*words.shape, bits), strict=True)
            )
            self._flip(words, row, column, bit)
        else:
            self._tile(words, row, column, is_stale=kind == "a tile, stale")

    def _place(self, words: Words) -> tuple[int, int]:
        return int(self.rng.integers(words.shape[0])), int(self.rng.integers(words.shape[1]))

    def _flip(self, words: Words, row: int, column: int, bit: int) -> None:
        words[row, column] ^= self._mask(words, bit)
        self.last = (row, column, bit)

    def _mask(self, words: Words, bit: int) -> np.signedinteger:
        mask: np.signedinteger = np.left_shift(words.dtype.type(1), words.dtype.type(bit))
        return mask

    def _tile(self, words: Words, row: int, column: int, *, is_stale: bool) -> None:
        side = 2 ** int(self.rng.integers(3, 1 + _LARGEST_TILE.bit_length() - 1))
        rows, columns = (slice(at // side * side, at // side * side + side) for at in (row, column))
        words[rows, columns] = (
            words_of(self.stale)[: words.shape[0], : words.shape[1]][rows, columns]
            if is_stale
            else 0
        )


def words_of(matrix: torch.Tensor) -> Words:
    """The matrix's own memory as signed words, an element each."""
    size = matrix.element_size()
    view = {2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return matrix.view(view).numpy()
