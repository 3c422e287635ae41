"""A number that stands for every bit by which a step's calls are followed.

What float64 makes of watched calls follows from what they were given and made, from the gradients
and weights, and from nothing else: of two launches with one fingerprint one result is the other's.
It is SHA-256 of the checksums of all of these tensors (`parts/numerics/checksums`), each made where
the tensor lies, with the structure that they stand in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch

from workloads.parts.auditing.calls import Call, Passing
from workloads.parts.numerics.checksums import checksum, checksum_all


def fingerprint(
    calls: Iterable[Call], tensors: Iterable[Mapping[str, torch.Tensor]], *facts: object
) -> str:
    """SHA-256 of the calls, of named tensors, and of facts that say themselves what they are."""
    total = hashlib.sha256()
    for fact in facts:
        total.update(f"{fact!r}\n".encode())
    for group in tensors:
        total.update(f"{checksum_all(group)}\n".encode())
    for call in calls:
        for one in call.all_calls():
            made = None if one.made is None else _passing(one.made)
            kind = type(one.module).__qualname__
            parts = (one.path, kind, one.is_whole, len(one.children), _passing(one.given), made)
            total.update(f"{parts}\n".encode())
    return total.hexdigest()


def _passing(passing: Passing) -> tuple[object, ...]:
    return (
        [_value(one) for one in passing.values],
        str(passing.spec),
        {place: checksum(one) for place, one in sorted(passing.gradients.items())},
        sorted(passing.shared),
        _value(passing.columns),
        _value(passing.column_gradient),
    )


def _value(one: object) -> object:
    """A tensor by its checksum, a number or a name as it is, anything else by its type."""
    if isinstance(one, torch.Tensor):
        return checksum(one)
    is_plain = one is None or isinstance(one, bool | int | float | str)
    return one if is_plain else type(one).__qualname__
