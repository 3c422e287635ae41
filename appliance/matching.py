"""Which criteria apply to which cases, and what is fixed of their tests before anything runs.

Shared by those who plan and those who judge, so that both count the same limits: the risk of a
wrong rejection is divided by that number, and the bounds that follow from it stand in plan.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from appliance.records import Bounds, Case, Criteria, Criterion
from appliance.sequential import group_bounds
from appliance.statistics import planned_looks

CHANCE_KINDS = ("perf", "tail", "drift")
"""Kinds that compare measured times with a limit, and so can be wrong by chance."""
VARIANT = "~"
"""Parts a case's name from that of the variant which the seed drew."""
POOLED_METRICS = ("slow_launch_rate",)
"""Metrics of all matching cases together."""


def matches(criterion: Criterion, case: str) -> bool:
    """Whether a criterion applies to a case, named with its device or without.

    A variant has no limit on its times: what is known of its case's speed is not known of it.
    """
    if criterion.kind in CHANCE_KINDS and VARIANT in case:
        return False
    return fnmatchcase(case, criterion.cases) or fnmatchcase(
        case.partition("@")[0], criterion.cases
    )


def is_pooled(criterion: Criterion) -> bool:
    """Whether one ruling is made for all of its cases together."""
    return criterion.kind == "tail" and criterion.metric in POOLED_METRICS


def is_judged(criteria: Criteria, case: str) -> bool:
    """Whether a required limit on the times of this very case is set, so that looks decide it."""
    return any(
        criterion.required
        and criterion.kind in CHANCE_KINDS
        and not is_pooled(criterion)
        and matches(criterion, case)
        for criterion in criteria.criterion
    )


def num_limits(criteria: Criteria, cases: Sequence[Case]) -> int:
    """Limits that may each reject this run by chance."""
    found = 0
    for criterion in criteria.criterion:
        if criterion.required and criterion.kind in CHANCE_KINDS:
            matching = sum(case.is_timed and matches(criterion, case.id) for case in cases)
            found += min(matching, 1) if is_pooled(criterion) else matching
    return found


def alphas(criteria: Criteria, number: int) -> tuple[float, float]:
    """Risk of a wrong pass of one limit, and of a wrong fail, which `number` limits share."""
    return criteria.alpha_pass, criteria.alpha_fail / max(1, number)


def planned_bounds(
    criteria: Criteria, cases: Sequence[Case], looks: Sequence[int]
) -> tuple[int, tuple[Bounds, ...]]:
    """How many limits there are, and the bounds of every test at every look that these cases need.

    `looks` are the protocol's; a case has those below its number of launches, and that number.
    """
    number = num_limits(criteria, cases)
    schedules = dict.fromkeys(
        planned_looks(looks, case.launches)
        for case in cases
        if case.is_timed
        and any(item.kind == "perf" and matches(item, case.id) for item in criteria.criterion)
    )
    levels = dict.fromkeys(alphas(criteria, number))
    return number, tuple(
        Bounds(alpha=alpha, looks=schedule, z=group_bounds(alpha, schedule))
        for schedule in schedules
        for alpha in levels
    )
