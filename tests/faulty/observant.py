"""A workload that notes what its environment is when it is imported, and says it when it builds."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass

from faulty.misbehaving import Misbehaving, State

from workloads.contract.target import Target

AT_IMPORT = os.environ.get("TEST_LIBRARY_MODE", "default"), os.environ.get("XLA_FLAGS", "")


@dataclass(frozen=True, kw_only=True)
class Observant(Misbehaving):
    """Prints how many objects no collection visits, and what was there before its import."""

    def build(self, target: Target, seed: int) -> State:
        print(gc.get_freeze_count())  # noqa: T201
        print(*AT_IMPORT, file=sys.stdout, flush=True)  # noqa: T201 - that is what it is for
        return super().build(target, seed)


WORKLOAD = Observant
