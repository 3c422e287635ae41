"""What roundings cost a call: the same call in float64, with each result rounded to a format.

Of some results a few roundings are most: the gradients of queries and keys in an attention that is
written out, say, are the small difference of large terms, each of which is stored in 16 bits. How
much that is, depends on what the call was given, and no constant bounds it: so it is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, what each operator makes has the format's precision, and stays float64.

    In the backward pass too. What shows another tensor's memory is left as it is, and so is a
    number beyond the format's range: a device that stores it shows that itself, and one that keeps
    it in a wider format does not.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        made = func(*args, **(kwargs or {}))
        is_new = isinstance(made, torch.Tensor) and _makes_new(func)
        if not is_new or made.dtype is not torch.float64:
            return made
        rounded = made.to(self.dtype).double()
        return torch.where(rounded.isfinite(), rounded, made)


def _makes_new(func: Any) -> bool:
    """Whether what an operator makes is no other tensor's memory."""
    return all(one.alias_info is None for one in func._schema.returns)  # noqa: SLF001 - no other way
