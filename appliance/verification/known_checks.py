"""Which checks a workload yields and how wide their bounds may be, as healthy runs have shown.

Names and bounds of checks are what a journal says of itself: whoever writes it could leave out the
check that fails, or give it a bound that everything meets. So what the qualified records have of
each check stands in a file beside the workloads' facts, by workload, version and parameters
(scripts/write_workload_checks.py). Most bounds follow from the parameters alone and are the same in
all records: such a bound has to be the recorded one. Others follow from what was drawn or from how
far a model is trained (those of gradients by a factor of 400), and a record limits them from above:
to the widest recorded times the third power of the widest ratio that two bounds of the name had.
The logarithms of two or three records of one spread lie 1.1 to 1.7 standard deviations apart and
the widest 0.6 to 0.8 above their mean, so that three times their distance is 4 to 6 of them. Beyond
WIDEST times such a limit goes up to DRAWN times, as long as that is no more than ONE: an error
relative to what is compared would then be no error at all. A bound that is zero in all records of
the workload stays zero.

An output is not better than its number format either. Of checks that take the error over many
numbers (_OF_MANY) the largest error is above zero, however good the device, because each number is
rounded. Where it was CLEAR of the bound in every record at the same parameters, a run whose largest
error is not TINY of that has numbers right to more digits than their format has. In 186 cases of an
H100 at recorded parameters, of whatever version, the largest error was 0.22 of that at least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from appliance.records.json import Number, Parameters, Record
from appliance.storage import toml_file

FILE = Path(__file__).parents[1].joinpath("workload_checks.json")
RELATIVE = 1e-9
"""How far a fixed bound may be from the recorded one: it was computed on another machine."""
WIDEST = 4.0
"""A bound that no two records have shown to be fixed may be so many times the widest of them."""
DRAWN, ONE = 1000.0, 1.0
"""The same for a bound that was seen to vary by more than that, up to so much."""
MARGIN = 3
"""A bound that was seen to vary may exceed the widest recorded by so many times its spread."""
CLEAR, TINY = 1e-3, 1e-3
_OF_MANY = re.compile(
    r"(rows|logits|gradients|values) against float(?:32|64)|given the gradients$|random projection$"
    r"|(root mean square|relative) error$"
)
_NUMBERED = re.compile(r"\b(rank|shape) \d+(?: x \d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCheck(Record):
    """A check by name, the widest `bound` of its records, and whether each output must have it.

    An `is_always` check was made of the first and of the last output of every launch. `spread` is
    the widest ratio that two bounds of the name had at the same parameters: 1 for a bound that is
    fixed by the parameters, None where records do not say whether it is. `least` is the smallest,
    over the records, of the largest error of one, as a part of its bound; 0 where it is not known.
    """

    name: str
    bound: Number
    is_always: bool
    spread: Number | None
    least: Number = 0.0

    @property
    def is_fixed(self) -> bool:
        """Whether the bound is the same in every run at these parameters."""
        return self.spread == 1.0

    @property
    def limit(self) -> float:
        """How wide a bound of this name may be."""
        if self.spread is None:
            return WIDEST * self.bound
        widened = self.bound * (1.0 + RELATIVE) * min(self.spread**MARGIN, DRAWN)
        return min(widened, max(WIDEST * self.bound, ONE))

    @property
    def fewest_errors(self) -> float:
        """The part of its bound that the largest error of a case exceeds; 0 if it may be zero."""
        is_of_many = _OF_MANY.search(self.name) is not None
        return TINY * self.least if is_of_many and self.least >= CLEAR else 0.0

    def allows(self, bound: float) -> bool:
        """Whether a run at these parameters may have this bound."""
        if self.is_fixed:
            return math.isclose(bound, self.bound, rel_tol=RELATIVE)
        return bound <= self.limit


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
        """The checks at whatever parameters: the widest bounds, and what all of them have.

        How wide a bound is at parameters without a record is known by its size alone.
        """
        return {
            name: replace(check, spread=None if check.is_fixed else check.spread)
            for name, check in merged(case.checks for case in self.cases).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFile(Record):
    """appliance/workload_checks.json."""

    schema: Literal["bench/workload-checks/2"] = "bench/workload-checks/2"
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
            spread=_widest_spread([one[name].spread for one in records if name in one]),
            least=min(one[name].least for one in records if name in one),
        )
        for name in dict.fromkeys(name for one in records for name in one)
    }


def _widest_spread(spreads: Sequence[float | None]) -> float | None:
    """The widest of several; None where one of them is not known."""
    known = [one for one in spreads if one is not None]
    return max(known) if len(known) == len(spreads) else None
