"""How long the host computes on the float64 reference of one checked output, by an estimate.

The operations are those of a step, of which the reference does a part; the rate is that of whole
references as measured, which scales with the cores. Both are data: workloads/references.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from appliance.records.json import Number, Parameters, Record
from appliance.storage.toml_file import ROOT, parse_own

PATH = ROOT / "workloads" / "references.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRate(Record):
    """Operations of references that one core makes in a second, and what shows it."""

    flops_per_core_second: Number
    source: str


SAME_WEIGHTS = 0.25
"""Part of a step's operations from which on another one is of fewer inputs, and below of fewer
weights too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Record):
    """What is computed again of a workload's step for one check.

    `share` is the part of the step's operations, at most, and `what` says it in words; where the
    parameter called `parts` says in how many parts a step takes its batch, it is of one of them.
    `chance` is with what probability a fault is in what is followed, where that is not all.
    `measured` is what a check took where that is known, `measured_seconds` at least, of a step of
    `measured_flops`. `beside_seconds` is what else the host did for the output of that step: its
    digest, its other checks, and the copy of the state before it. `prepared_seconds` is what a
    launch does before the first of its checks, however many outputs it checks.
    """

    workload: str
    rate: str
    share: Number
    what: str
    parts: str = ""
    chance: str = ""
    measured: str = ""
    measured_seconds: Number = 0.0
    measured_flops: Number = 0.0
    beside_seconds: Number = 0.0
    prepared_seconds: Number = 0.0

    def part_of_measured(self, flops: float) -> float:
        """How much of the measured step this one is, at most all of it."""
        return min(1.0, flops / self.measured_flops) if self.measured_flops else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class References(Record):
    """workloads/references.toml: `limit_seconds` is what a row's reference may take on `cores`."""

    schema: Literal["bench/references/1"]
    limit_seconds: Number
    cores: int
    rate: Mapping[str, HostRate]
    reference: tuple[Reference, ...]

    def of(self, workload: str) -> Reference | None:
        return next((one for one in self.reference if one.workload == workload), None)

    def seconds(
        self, workload: str, parameters: Parameters, flops: float | None, cores: int
    ) -> float | None:
        """Seconds of one check of a step with so many operations on so many cores.

        No less than was measured of one with as many. None where the workload is not in the file,
        or its step has no count.
        """
        reference = self.of(workload)
        if reference is None or flops is None:
            return None
        rate = self.rate[reference.rate].flops_per_core_second
        num_parts = int(parameters.get(reference.parts, 1)) if reference.parts else 1
        counted = reference.share * flops / (num_parts * rate * cores)
        least = reference.measured_seconds * reference.part_of_measured(flops)
        return max(counted, least * self.cores / cores)

    def beside_seconds(self, workload: str, flops: float | None) -> float:
        """Seconds of the host beside it, as far as they were measured.

        They follow from the weights: with fewer inputs they are the same.
        """
        reference = self.of(workload)
        if reference is None or flops is None:
            return 0.0
        part = reference.part_of_measured(flops)
        return reference.beside_seconds * (1.0 if part >= SAME_WEIGHTS else part)

    def prepared_seconds(self, workload: str) -> float:
        """Seconds of the host before a launch's first check."""
        reference = self.of(workload)
        return 0.0 if reference is None else reference.prepared_seconds


@cache
def load() -> References:
    """The file that is shipped."""
    return parse_own(References, PATH.read_bytes(), PATH.name)
