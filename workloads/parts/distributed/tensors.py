"""Tensors of which each rank holds a part, and how they are whole again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workloads.parts.distributed import ranks

Tensors = Mapping[str, torch.Tensor]


# ------------------------------------------------------------------ shares of tensors


def is_shared_out(tensor: torch.Tensor) -> bool:
    """Whether each rank holds a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor, shared out or not."""
    if not is_shared_out(tensor):
        return tensor
    part: torch.Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor; the ranks must ask for it together."""
    if not is_shared_out(tensor):
        return tensor
    with ranks.operation("gathering a tensor"):
        gathered: torch.Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return gathered


def rejoined(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """All of a tensor of which this rank holds `part`, shared out as `like` is."""
    if not is_shared_out(like):
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - a second to import

    template: Any = like
    return whole(
        DTensor.from_local(
            part,
            template.device_mesh,
            template.placements,
            run_check=False,
            shape=template.shape,
            stride=template.stride(),
        )
    )
