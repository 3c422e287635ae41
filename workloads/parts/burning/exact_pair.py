"""Operands whose product is exact in any order of sums, and known to the host within seconds.

Entries are integers so small that every partial sum fits the accumulator (`formats`). Rows of the
left operand and columns of the right one are scaled by powers of two, which changes the exponents
of all sums of an element alike, so that they stay exact while mantissas and exponents vary; where
operands are integers themselves they are scaled up, elsewhere down. They
are scaled copies of a few rows and columns, in an order that was drawn: so the host multiplies
those few and scales, in place of 2 size**3 operations in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workloads.parts.burning.formats import Format

DISTINCT = 256
"""Rows of the left operand, and columns of the right one, that differ in more than scale."""
SCALES = 4
"""Powers of two, 1 to 1/8 or 1 to 8, that scale rows and columns: no sum leaves its format."""


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Distinct rows (count, size) in float64, which of them each row is, and its scale."""

    base: torch.Tensor
    order: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def draw(cls, size: int, magnitude: int, sign: int, rng: torch.Generator) -> _Side:
        count = min(size, DISTINCT)
        base = torch.randint(-magnitude, magnitude + 1, (count, size), generator=rng)
        order = torch.randperm(size, generator=rng) % count
        power = torch.randint(0, SCALES, (size,), generator=rng)
        return cls(base=base.double(), order=order, scale=torch.exp2(sign * power.double()))

    def matrix(self) -> torch.Tensor:
        return self.base[self.order] * self.scale.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class ExactPair:
    """Two square operands on the host, and what makes their products quickly."""

    format: Format
    pair: tuple[torch.Tensor, torch.Tensor]
    left: _Side
    right: _Side

    @classmethod
    def draw(cls, size: int, form: Format, rng: torch.Generator) -> ExactPair:
        """Draw operands of a format, whose products are exact in any order of sums."""
        magnitude, sign = form.magnitude(size), 1 if form.is_integer else -1
        left, right = (_Side.draw(size, magnitude, sign, rng) for _ in range(2))
        pair = (left.matrix().to(form.operands), right.matrix().T.to(form.operands))
        return cls(format=form, pair=pair, left=left, right=right)

    def product(self, m: int, n: int, k: int) -> torch.Tensor:
        """The right product (m, n) of the upper left corners, as the format stores it."""
        result = self.format.result
        wide = torch.float64 if result in (torch.float64, torch.int32) else torch.float32
        base = self.left.base[:, :k] @ self.right.base[:, :k].T
        rounded = base.to(result)  # a power of two commutes with rounding
        scaled = rounded[self.left.order[:m]][:, self.right.order[:n]].to(wide)
        scaled *= self.left.scale[:m].to(wide).unsqueeze(1)
        scaled *= self.right.scale[:n].to(wide)
        return scaled.to(result)
