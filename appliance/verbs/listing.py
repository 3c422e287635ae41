"""What workloads there are, with all that chooses one: for `bench list workloads` and the README.

Sizes and units are those of the worker when it resolves a workload at its full and at its
small parameters; where it refuses them (a library or a setting that is not there) they are not
known. The scopes are those in which the shipped suites use the workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.records.json import Parameters, Record
from appliance.records.request import Lacking, Refused
from appliance.records.suite import CaseScope, Suite
from appliance.records.workload import Bound, Description, Resolved, Work
from appliance.runner import describing
from appliance.storage import suite_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorkload(Record):
    """One workload: `parameters` and counts of model parameters at full size and at small size.

    `work_full` is that of one step at full size. A count is None where there is no model or the
    size cannot be resolved here; so are `unit` and `work_full`.
    """

    name: str
    domain: str
    summary: str
    version: int
    unit: str | None
    work_full: Work | None
    scope: tuple[CaseScope, ...]
    needs: tuple[str, ...]
    data: tuple[str, ...]
    parameters_full: Parameters
    parameters_small: Parameters
    num_parameters_full: int | None
    num_parameters_small: int | None
    variants: Mapping[str, Parameters]
    suites: tuple[str, ...]
    bound_by: Bound
    data_pattern: str


def listed() -> tuple[ListedWorkload, ...]:
    """Every workload that can be described, by name; asks a child, which imports them."""
    answer = describing.describe_all()
    sizes = answer.resolved
    suites = tuple(suite_file.load_suite(name)[0] for name in suite_file.list_suites())
    return tuple(
        _listed(item, full, small, suites)
        for item, full, small in zip(answer.descriptions, sizes[::2], sizes[1::2], strict=True)
    )


def _listed(
    item: Description,
    full: Resolved | Refused | Lacking,
    small: Resolved | Refused | Lacking,
    suites: Sequence[Suite],
) -> ListedWorkload:
    uses = [(suite, case) for suite in suites for case in suite.case if case.workload == item.name]
    defaults = {one.name: one.default for one in item.parameters}
    known = full if isinstance(full, Resolved) else small
    return ListedWorkload(
        name=item.name,
        domain=item.domain,
        summary=item.summary,
        version=item.version,
        unit=known.work.unit if isinstance(known, Resolved) else None,
        work_full=full.work if isinstance(full, Resolved) else None,
        scope=tuple(dict.fromkeys(case.scope for _, case in uses)),
        needs=item.needs,
        data=item.data,
        parameters_full=defaults,
        parameters_small={**defaults, **item.small},
        num_parameters_full=_count(full),
        num_parameters_small=_count(small),
        variants=item.variants,
        suites=tuple(dict.fromkeys(suite.name for suite, _ in uses)),
        bound_by=item.bound_by,
        data_pattern=item.data_pattern,
    )


def _count(resolved: Resolved | Refused | Lacking) -> int | None:
    return resolved.num_parameters if isinstance(resolved, Resolved) else None


def in_millions(count: int | None) -> str:
    """A number of parameters as people say it: 25.6 M; "-" where there is no model."""
    if count is None:
        return "-"
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)
