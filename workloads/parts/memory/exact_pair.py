"""Operands whose product is exact in any order of sums, and known to the host within seconds.

Entries are integers so small that every partial sum fits the accumulator (`chain`). Rows of the
left operand and columns of the right one are scaled by powers of two, which changes the exponents
of all sums of an element alike, so that they stay exact while mantissas and exponents vary. They
are scaled copies of a few rows and columns, in an order that was drawn: so the host multiplies
those few and scales, in place of 2 size**3 operations in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

DISTINCT = 256
"""Rows of the left operand, and columns of the right one, that differ in more than scale."""
SCALES = 4
"""Powers of two, 1 to 1/8, that scale rows and columns: none lifts a sum above its format."""


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Distinct rows (count, size) in float64, which of them each row is, and its scale."""

    base: torch.Tensor
    order: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def draw(cls, size: int, magnitude: int, rng: torch.Generator) -> _Side:
        count = min(size, DISTINCT)
        base = torch.randint(-magnitude, magnitude + 1, (count, size), generator=rng)
        order = torch.randperm(size, generator=rng) % count
        power = torch.randint(0, SCALES, (size,), generator=rng)
        return cls(base=base.double(), order=order, scale=torch.exp2(-power.double()))

    def matrix(self) -> torch.Tensor:
        return self.base[self.order] * self.scale.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class ExactPair:
    """Two square operands on the host, and what makes their products quickly."""

    pair: tuple[torch.Tensor, torch.Tensor]
    left: _Side
    right: _Side

    @classmethod
    def draw(cls, size: int, magnitude: int, dtype: torch.dtype, rng: torch.Generator) -> ExactPair:
        """Draw operands of this dtype from integers of this magnitude at most."""
        left, right = _Side.draw(size, magnitude, rng), _Side.draw(size, magnitude, rng)
        pair = (left.matrix().to(dtype), right.matrix().T.to(dtype).contiguous())
        return cls(pair=pair, left=left, right=right)

    def product(self, m: int, n: int, k: int) -> torch.Tensor:
        """The right product (m, n) of the upper left corners, in the operands' dtype."""
        base = self.left.base[:, :k] @ self.right.base[:, :k].T
        rounded = base.to(self.pair[0].dtype)  # a power of two commutes with rounding
        scaled = rounded[self.left.order[:m]][:, self.right.order[:n]].float()
        scaled *= self.left.scale[:m].float().unsqueeze(1)
        scaled *= self.right.scale[:n].float()
        return scaled.to(self.pair[0].dtype)
