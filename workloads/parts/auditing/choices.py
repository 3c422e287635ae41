"""What a call chose on the device: float64 takes the same, and notes how far that is from its own.

Where two values all but tie, a rounding decides which is the larger, and what is computed after it
is another thing. So the choice is taken as the device made it, and held to the values: none may lie
further below the largest than roundings carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from workloads.parts.auditing.errors import Errors


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The index that a call took along the last dimension; `errors` note how far it is off."""

    index: torch.Tensor
    errors: Errors

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The index, held to these values, in units of their root mean square."""
        best, own = values.max(dim=-1)
        if self.index.shape != own.shape or not _is_within(self.index, values.shape[-1]):
            self.errors.note_choice(float("inf"))
            return own
        taken = values.gather(-1, self.index.unsqueeze(-1)).squeeze(-1)
        size = values.square().mean().sqrt().clamp(min=torch.finfo(values.dtype).tiny)
        self.errors.note_choice(((best - taken).max() / size).item())
        return self.index


@runtime_checkable
class Choosing(Protocol):
    """A module that chooses; where `choice` is set, it takes that one."""

    choice: Choice | None

    def chosen(self, made: Any) -> torch.Tensor | None:
        """The index along the last dimension that it took, by what it made; None without one."""
        ...


def chooses(model: torch.nn.Module) -> bool:
    """Whether a module of the model does."""
    return any(isinstance(one, Choosing) for one in model.modules())


def _is_within(index: torch.Tensor, number: int) -> bool:
    return bool(((index >= 0) & (index < number)).all())
