"""Gradients of weights in float64, summed over the calls of all layers that have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from workloads.parts.auditing.errors import Errors

Pick = Callable[[torch.Tensor], torch.Tensor]


@dataclass(kw_only=True)
class Sum:
    """Part of a weight's gradient, which `pick` takes of the whole one; `squares` of its terms."""

    pick: Pick
    exact: torch.Tensor
    squares: torch.Tensor


@dataclass(kw_only=True)
class Sums:
    """By the name of the weight. `names` are those of weights by their identity."""

    names: dict[int, str]
    of: dict[str, Sum] = field(default_factory=dict)

    def add(
        self, weight: torch.Tensor, pick: Pick, exact: torch.Tensor, squares: torch.Tensor
    ) -> None:
        """Add what one call gives to a part of a weight's gradient."""
        if not weight.requires_grad:
            return
        self._add(self.names[id(weight)], Sum(pick=pick, exact=exact, squares=squares))

    def add_all(self, other: Sums) -> None:
        """Add what another one has."""
        for name, one in other.of.items():
            self._add(name, one)

    def _add(self, name: str, one: Sum) -> None:
        if name in self.of:
            self.of[name].exact += one.exact
            self.of[name].squares += one.squares
        else:
            exact, squares = one.exact.clone(), one.squares.clone()
            self.of[name] = Sum(pick=one.pick, exact=exact, squares=squares)

    def compare(self, gradients: dict[str, torch.Tensor], errors: Errors) -> None:
        """Hold the gradients (of the parts) to the sums, averaged over the ranks."""
        for name, one in sorted(self.of.items()):
            size = errors.average(one.squares).sqrt()
            errors.compare("weights", name, gradients[name], errors.average(one.exact), size)
            errors.followed.add(name)
