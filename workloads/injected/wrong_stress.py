"""One bit is wrong in each kind of stress beside a burn-in: memory, disk, copies and links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from workloads.burn_in import BurnIn
from workloads.contract.target import Target
from workloads.parts.burning.state import State
from workloads.parts.stress.stressors import Request, Stress

PLANTED = "workloads.parts.stress.planted_faults"
MOST_BYTES = 2**23
"""Of each kind, as one turn shows the fault."""


@dataclass(frozen=True, kw_only=True)
class WrongStress(BurnIn):
    summary: ClassVar[str] = "Burn-in with a wrong bit in each kind of stress beside it"
    injector: ClassVar[str] = "bit flip beside a burn-in"

    def build(self, target: Target, seed: int) -> State:
        state = super().build(target, seed)
        if isinstance(state.beside, Stress):
            state.beside = Stress(requests=tuple(_small(state.beside)), module=PLANTED)
        return state


def _small(stress: Stress) -> Iterator[Request]:
    for one in stress.requests:
        yield replace(one, num_bytes=min(one.num_bytes, MOST_BYTES))


WORKLOAD = WrongStress
