"""Phases in which a segment of a burn-in loads its device, from the begin of one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from appliance.records.journal import PhaseBegan


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One phase from its begin to the next: its own time, processor time and units of work."""

    phase: str
    passed_ns: int
    processor_ns: int
    threads: int
    units: int


def stretches(phases: Sequence[PhaseBegan]) -> Iterator[Stretch]:
    """Those of each block and rank of a launch, in their order."""
    for begin, end in pairwise(phases):
        if (begin.index, begin.rank) == (end.index, end.rank):
            yield Stretch(
                phase=begin.phase,
                passed_ns=end.passed_ns - begin.passed_ns,
                processor_ns=end.processor_ns - begin.processor_ns,
                threads=begin.threads,
                units=end.units - begin.units,
            )


def core_use(several: Iterable[Stretch]) -> float | None:
    """Processor time over what the threads could have; None where they could have none."""
    worked = list(several)
    had = sum(one.threads * one.passed_ns for one in worked)
    return sum(one.processor_ns for one in worked) / had if had > 0 else None


def speed_over(proven: Stretch, plain: Stretch) -> float | None:
    """Units a second of one over those of the other; None where one of them did nothing."""
    if min(plain.units, plain.passed_ns, proven.passed_ns) <= 0:
        return None
    return plain.passed_ns / plain.units * proven.units / proven.passed_ns
