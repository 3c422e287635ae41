"""What a workload asks of its own parameters, refused with one sentence that has the fix.

A case that cannot run is found while the plan is made, long before a device is touched, so
every workload asks in `__post_init__`.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from workloads.contract.failures import ParameterError


def require_positive(workload: object, *names: str) -> None:
    """Raise ParameterError unless each of the named parameters is at least 1."""
    for name in names:
        value = getattr(workload, name)
        if value < 1:
            raise ParameterError(f"{name} is {value}: give a number of 1 or more")


def require_range(
    name: str, value: float, least: float, most: float = math.inf, *, unit: str = ""
) -> None:
    """Raise ParameterError unless the parameter called `name` lies in this range, ends included."""
    if not least <= value <= most:
        wanted = f"{least:g} at least" if math.isinf(most) else f"{least:g} to {most:g} {unit}"
        raise ParameterError(f"{name} is {value}: give {wanted.rstrip()}")


def require_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise ParameterError unless the parameter called `name` has one of the choices."""
    if value not in choices:
        raise ParameterError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def require_distinguishable(batch: int, num_inputs: int) -> None:
    """Raise ParameterError if there is but one input, from which no other answer differs."""
    if batch == num_inputs == 1:
        message = "num_inputs is 1 where batch is 1: give 2 at least, to tell them apart"
        raise ParameterError(message)


def require_even_heads(hidden: int, heads: int) -> None:
    """Raise ParameterError unless each head has an even share of the hidden size, to rotate."""
    if hidden % (2 * heads):
        raise ParameterError(f"hidden is {hidden}: give a multiple of twice heads, {2 * heads}")


def require_share(name: str, value: float) -> None:
    """Raise ParameterError unless the parameter called `name` lies between 0 and 1."""
    if not 0 < value < 1:
        raise ParameterError(f"{name} is {value}: give a share between 0 and 1")
