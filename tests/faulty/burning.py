"""A burn-in whose products are damaged, many times in sequence, on their way to the digest.

A launch plants `faults` of the published kinds, one in every other product of its steps after the
first, and then goes on healthy: digest, comparison, mailbox, counts, check, journal and ruling are
those of production, and each fault must be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from workloads.burn_in import BurnIn
from workloads.contract.target import Target
from workloads.parts.burning.state import State
from workloads.parts.memory.planted_faults import Planter

SIDE = 1024


@dataclass(frozen=True, kw_only=True)
class Burning(BurnIn):
    """`faults`: how many a launch plants; `again`: the repeats of a mismatch are damaged too."""

    summary: ClassVar[str] = "Burn-in with faults planted in its products"
    injector: ClassVar[str] = "faults in the products of a burn-in"

    faults: int = 1
    again: bool = False

    def build(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        stale = torch.randn(SIDE, SIDE, generator=rng)
        planting = _Planting(left=self.faults, stale=stale, seed=seed)
        object.__setattr__(self, "planting", planting)  # of this launch, and no parameter
        return super().build(target, seed)

    def _rounds(self, state: State, *rest: Any) -> list[torch.Tensor]:
        planting: _Planting = self.planting  # type: ignore[attr-defined]
        planting.is_open = state.num_steps > 0  # the first step makes what others are held to
        try:
            return super()._rounds(state, *rest)
        finally:
            planting.is_open = False

    def multiply(self, *operands: Any) -> None:
        """One product, and in every other one of a step a fault."""
        super().multiply(*operands)
        self.planting.damage(operands[-1], is_always=self.again)  # type: ignore[attr-defined]


@dataclass(kw_only=True)
class _Planting:
    """Faults that are left to plant, each kind by its share."""

    left: int
    stale: torch.Tensor
    seed: int
    is_open: bool = False
    num_products: int = 0

    def __post_init__(self) -> None:
        self._planters: dict[torch.dtype, Planter] = {}

    def damage(self, product: torch.Tensor, *, is_always: bool) -> None:
        """Damage every other product of a step; `is_always`: what is made beside steps, too."""
        if not self.is_open:
            if is_always and not self.left:
                self._plant(product)
            return
        self.num_products += 1
        if self.left and self.num_products % 2:
            self.left -= 1
            self._plant(product)

    def _plant(self, product: torch.Tensor) -> None:
        dtype = product.dtype
        planter = self._planters.get(dtype) or Planter(
            stale=self.stale.to(dtype), seed=self.seed % 2**32
        )
        self._planters[dtype] = planter
        planter.plant(planter.draw_kind(), product)


WORKLOAD = Burning
