"""Which checks a workload yields and how wide their bounds may be, as healthy runs have shown.

Names and bounds of checks are what a journal says of itself: whoever writes it could leave out the
check that fails, or give it a bound that everything meets. So what the qualified records have of
each check stands in a file beside the workloads' facts, by workload, version and parameters
(scripts/write_workload_checks.py). Most bounds follow from the parameters, and are the same in all
records; some follow from the device, from what was drawn or from how far a model is trained (those
of gradients by a factor of 400). So a record limits a bound from above: to WIDEST times the widest
that was seen, or, if the bounds of its name were seen to vary, to DRAWN times, as long as that is
no more than ONE: an error relative to what is compared would then be no error at all. A bound that
is zero in all records of the workload stays zero. That a bound is wider by less is not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.records.json import Number, Parameters, Record
from appliance.storage import toml_file

FILE = Path(__file__).parents[1].joinpath("workload_checks.json")
WIDEST = 4.0
"""A bound may be so many times the widest that healthy runs had at the same parameters."""
DRAWN, ONE = 1000.0, 1.0
"""The same for a bound that varies from run to run, up to so much."""
_NUMBERED = re.compile(r"\b(rank|shape) \d+(?: x \d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCheck(Record):
    """A check by name, the widest `bound` of its records, and whether each output must have it.

    An `is_always` check was made of the first and of the last output of every launch. The bound of
    an `is_drawn` one was seen to vary at the same parameters.
    """

    name: str
    bound: Number
    is_always: bool
    is_drawn: bool

    @property
    def limit(self) -> float:
        """How wide a bound of this name may be."""
        drawn = min(DRAWN * self.bound, ONE) if self.is_drawn else 0.0
        return max(WIDEST * self.bound, drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChecks(Record):
    """The checks of a workload at these parameters, which are all that it has."""

    parameters: Parameters
    checks: tuple[KnownCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChecks(Record):
    """The checks of one workload in one version, at all parameters that records are of."""

    name: str
    version: int
    cases: tuple[CaseChecks, ...]

    def of(self, parameters: Parameters) -> Mapping[str, KnownCheck] | None:
        """The checks at these parameters, by their names; None where no record is of them."""
        for case in self.cases:
            if dict(case.parameters) == dict(parameters):
                return {check.name: check for check in case.checks}
        return None

    def of_any(self) -> Mapping[str, KnownCheck]:
        """The checks at whatever parameters: the widest bounds, and what all of them have."""
        return merged(case.checks for case in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFile(Record):
    """appliance/workload_checks.json."""

    schema: Literal["bench/workload-checks/1"] = "bench/workload-checks/1"
    workload: tuple[WorkloadChecks, ...]


def load() -> ChecksFile:
    """The checks of every workload that is shipped with records."""
    return toml_file.parse_json(ChecksFile, FILE.read_bytes(), FILE.name)


def pattern(name: str) -> str:
    """The name of a check without the number of a rank or the sizes of a drawn shape."""
    return _NUMBERED.sub(r"\1 #", name)


def merged(several: Iterable[Iterable[KnownCheck]]) -> dict[str, KnownCheck]:
    """The checks of several records by name: the widest bound, always there if in all of them."""
    records = [{check.name: check for check in checks} for checks in several]
    return {
        name: KnownCheck(
            name=name,
            bound=max(one[name].bound for one in records if name in one),
            is_always=all(name in one and one[name].is_always for one in records),
            is_drawn=any(name in one and one[name].is_drawn for one in records),
        )
        for name in dict.fromkeys(name for one in records for name in one)
    }
