"""How far results lie from float64, of all calls that were followed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

Kind = Literal["outputs", "gradients", "weights"]
Named = dict[tuple[Kind, str], deque[torch.Tensor]]
"""By kind and name, in their order."""
SMALLEST = 1e-30
TRIED = 2.0
"""Times what roundings cost a result when that was tried, which a device may be off beside."""


@dataclass(kw_only=True)
class Errors:
    """The largest relative error of each kind, and whose it is.

    `average` is over the ranks that have a batch of their own, the same tensor on each.
    `followed` are the weights whose gradients were compared. `floor`: what is added to the norms of
    gradients in the call that is followed now. `switched`: how far the furthest choice of a call
    (`choices.py`) lies from the one that float64 makes. `rounded` are results of the call that is
    followed now as roundings make them (`rounded.py`); while there are `recording`, results are
    noted there and not compared.
    """

    average: Callable[[torch.Tensor], torch.Tensor]
    largest: dict[Kind, float] = field(default_factory=dict)
    where: dict[Kind, str] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    num_results: int = 0
    floor: float = 0.0
    switched: float = 0.0
    rounded: Named = field(default_factory=dict)
    recording: Named | None = None

    def compare(
        self,
        kind: Kind,
        name: str,
        actual: torch.Tensor | None,
        exact: torch.Tensor | None,
        size: torch.Tensor | float = 0.0,
    ) -> None:
        """Note the norm of the difference over that of the exact tensor and of `size`.

        What was tried of roundings is taken off the difference, `TRIED` times, where it is finite.
        Infinite where one is missing, has another shape, or a number is not finite.
        """
        if self.recording is not None:
            if exact is not None:
                self.recording.setdefault((kind, name), deque()).append(exact.detach())
            return
        self.num_results += 1
        error = float("inf")
        tried = self.rounded.get((kind, name))
        if actual is not None and exact is not None and actual.shape == exact.shape:
            exact = exact.detach().double()
            allowed = TRIED * _distance(tried.popleft(), exact) if tried else 0.0
            allowed = allowed if math.isfinite(allowed) else 0.0
            error = _relative(actual.detach().cpu().double(), exact, size, allowed)
        if not error <= self.largest.get(kind, -1.0):
            self.largest[kind], self.where[kind] = error, name

    def note_choice(self, distance: float) -> None:
        """Note how far a choice of the device lies from that of float64."""
        if self.recording is not None:
            return
        self.num_results += 1
        if not distance <= self.switched:
            self.switched = distance

    def add(self, other: Errors) -> None:
        """Note what another one has, as if it had been compared here."""
        self.num_results += other.num_results
        if not other.switched <= self.switched:
            self.switched = other.switched
        self.followed |= other.followed
        for kind, error in other.largest.items():
            if not error <= self.largest.get(kind, -1.0):
                self.largest[kind], self.where[kind] = error, other.where[kind]

    def fail(self, kind: Kind, name: str) -> None:
        """Note a result that could not be compared."""
        self.compare(kind, name, None, None)


def _relative(
    actual: torch.Tensor, exact: torch.Tensor, size: torch.Tensor | float, allowed: float
) -> float:
    beside = size.norm().item() if isinstance(size, torch.Tensor) else size
    distance = _distance(actual, exact)
    error = (distance - min(distance, allowed)) / (exact.norm().item() + beside + SMALLEST)
    return error if math.isfinite(distance) and error == error else float("inf")  # noqa: PLR0124 - not a number


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    distance: torch.Tensor = (one - other).norm()
    return distance.item()
