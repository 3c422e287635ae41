"""What torch is asked to compute, one name for each launch."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """Operators that compute, in their order; views of memory launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        if not func.is_view and func is not torch.ops.aten.detach.default:
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))
