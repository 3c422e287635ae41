"""Training over ranks whose steps are followed on drawn rows, and of which rank 1 may go wrong."""

from dataclasses import dataclass

from faulty.disloyal import Disloyal

from workloads.parts.auditing.sampling import MOST_OPERATIONS

for _kind in MOST_OPERATIONS:
    MOST_OPERATIONS[_kind] = 0.0


@dataclass(frozen=True, kw_only=True)
class Sampled(Disloyal):
    """No step of it is short enough to be followed whole."""


WORKLOAD = Sampled
