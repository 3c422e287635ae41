"""Follow the first losses of a training whose sums a device may make in any order.

As `loss_curve`, for workloads that are not bitwise reproducible: graph networks gather
messages by atomic operations, and a device adds those up as they come. A band needs no equal bits.
Its reference set holds runs in which the terms of every such sum were taken in another order
(`parts/curves/any_order.py`), so that what an order does to the loss is allowed and what a fault
does is not. The first step made twice is held to `spread`, the largest of the workloads that are
followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.curves.following import Following


@dataclass(frozen=True, kw_only=True)
class LossCurveVarying(Following):
    """The base's parameters, of workloads that need not be bitwise reproducible."""

    summary: ClassVar[str] = "Follow the recorded first losses where sums come in any order"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 0.05
    sibling: ClassVar[str] = "loss_curve"

    workload: str = "pna"


WORKLOAD = LossCurveVarying
