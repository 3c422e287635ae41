"""Sums of gathered terms in another order, as a device makes them by atomic operations.

`AnyOrder` is entered around steps on the host, and every operation that adds up terms which lie in
any place is then given its terms in a drawn order, forward and backward. What a sum is of does not
change; its rounding does. It stands in for a device in a reference set (`recording/losses.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
ROWS = (_ATEN.index_add, _ATEN.index_add_)  # of (sum, dimension, index, terms)
PLACES = (_ATEN.scatter_add, _ATEN.scatter_add_)  # the same, with a place for each term
PUTS = (_ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_)
"""Of (sum, indices, terms, whether they are added)."""


class AnyOrder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as torch has it
    """While it is entered, terms are added in orders that `seed` draws; `num_changed` counts."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rng = torch.Generator().manual_seed(seed)
        self.num_changed = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        kind = func.overloadpacket
        if kind in ROWS:
            args = self._rows(*args)
        elif kind in PLACES:
            args = self._places(*args)
        elif kind in PUTS and len(args) > 3 and args[3]:  # noqa: PLR2004 - the fourth says so
            args = self._put(*args)
        elif kind is _ATEN.embedding_dense_backward:
            args = self._embedded(*args)
        return func(*args, **(kwargs or {}))

    def _order(self, count: int) -> torch.Tensor:
        self.num_changed += 1
        return torch.randperm(count, generator=self._rng)

    def _rows(self, total: Any, dim: int, index: Any, terms: Any, *rest: Any) -> tuple[Any, ...]:
        order = self._order(index.numel())
        return (total, dim, index[order], terms.index_select(dim, order), *rest)

    def _places(self, total: Any, dim: int, index: Any, terms: Any) -> tuple[Any, ...]:
        order = self._order(index.shape[dim])
        index = index.index_select(dim, order)
        return total, dim, index, terms.index_select(dim, order)

    def _put(self, total: Any, indices: Any, terms: Any, *rest: Any) -> tuple[Any, ...]:
        """Of one index in the first dimension; of others the order stays."""
        if len(indices) == 1 and indices[0].dim() == 1 and terms.shape[:1] == indices[0].shape:
            order = self._order(indices[0].numel())
            return (total, [indices[0][order]], terms[order], *rest)
        return (total, indices, terms, *rest)

    def _embedded(self, slopes: Any, index: Any, *rest: Any) -> tuple[Any, ...]:
        order = self._order(index.numel())
        rows = slopes.reshape(index.numel(), -1)[order]
        return (rows, index.reshape(-1)[order], *rest)
