"""When a step is followed on drawn rows and not whole: by what whole references would take.

The limits are the operations that 16 host cores make in 20 s, at the rates of references that
workloads/references.toml has: above them a row's reference would be the longest part of a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["convolutions", "products", "hashed attention"]
MOST_OPERATIONS: dict[Kind, float] = {
    "convolutions": 2.08e12,
    "products": 6.4e12,
    "hashed attention": 1.92e12,
}
"""Operations of a step, of all ranks, that a reference follows whole."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a step is sampled: `inputs` of its batch of `batch` are drawn by `seed` and step.

    `counted`: sizes of first dimensions that count rows of their own and not the batch; `whole`:
    those of what all inputs share, of which nothing is drawn.
    `replayed`: the share of modules, drawn by seed and step, whose own part is followed, of which
    attention is the longest; layers always are. The others are roundings of the dtype that a
    healthy call may be off; where `tries_roundings`, beside what they cost that call.
    """

    seed: int
    batch: int
    inputs: int = 1
    counted: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    replayed: float = 1.0
    outputs: float = 4.0
    gradients: float = 12.0
    weights: float = 16.0
    tries_roundings: bool = False


Plan = Callable[[float | None], Sampling | None]
"""How a step of so many operations is sampled, if it is; they are counted where nobody did."""


def never(counted: float | None) -> None:
    """The whole step is followed, however large it is."""
    del counted


def beyond(kind: Kind, operations: Callable[[], float | None], sampling: Sampling) -> Plan:
    """Sample a step of more operations than a reference of this kind makes in its time.

    To count them takes a pass without values, 0.2 to 0.4 s of each launch, so `operations` are
    those of the plan where a launch knows them, and are counted once for all steps where none does.
    """
    once = cache(operations)

    def plan(counted: float | None) -> Sampling | None:
        flops = once() if counted is None else counted
        return sampling if (flops or 0.0) > MOST_OPERATIONS[kind] else None

    return plan
