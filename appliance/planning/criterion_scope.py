"""Which criteria apply to which cases, and what is fixed of their tests before anything runs.

Shared by those who plan and those who judge, so that both count the same limits: the risk of a
wrong rejection is divided by that number, and the bounds that follow from it stand in plan.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from appliance.planning.sessions import earlier_launches, judged_analyses
from appliance.records.criteria import Criteria, Criterion
from appliance.records.plan import Bounds, Case
from appliance.records.verdict import Ruling
from appliance.statistics.group_sequential import group_bounds

CHANCE_KINDS = ("perf", "tail", "drift")
"""Kinds that compare measured times with a limit, and so can be wrong by chance."""
VARIANT = "~"
"""Parts a case's name from that of the variant which the seed drew."""
RATIO = "throughput_ratio"
"""The metric of a case's speed over that of another case of the same run."""
POOLED_METRICS = ("slow_launch_rate",)
"""Metrics of all matching cases together."""
MOST_ATTEMPTS = 10
"""Attempts that a challenge allows, whose bounds a plan under it holds."""


def matches(criterion: Criterion, case: str) -> bool:
    """Whether a criterion applies to a case, named with its device or without.

    A variant has no limit on its times: what is known of its case's speed is not known of it.
    """
    if criterion.kind in CHANCE_KINDS and VARIANT in case:
        return False
    return is_named(criterion.cases, case)


def judged_first_steps(criteria: Criteria, cases: Iterable[Case]) -> frozenset[str]:
    """Cases whose first steps are judged by their time, and so made with nothing beside them."""
    limits = [one for one in criteria.criterion if one.metric == "first_step_seconds"]
    return frozenset(case.id for case in cases if any(matches(one, case.id) for one in limits))


def limited_cases(criteria: Criteria, rulings: Iterable[Ruling]) -> set[str]:
    """Cases of which a required limit on times was ruled on; a sample of them has one at times."""
    kinds = {one.id: one.kind for one in criteria.criterion}
    return {
        one.case
        for one in rulings
        if one.required and one.case and one.ruling != "not_applicable"
        if kinds.get(one.criterion) in CHANCE_KINDS
    }


def is_named(pattern: str, case: str) -> bool:
    """Whether a pattern names a case, with its device or without."""
    return fnmatchcase(case, pattern) or fnmatchcase(case.partition("@")[0], pattern)


def is_compared(criterion: Criterion, case: str) -> bool:
    """Whether the speed of other cases is held against that of this one."""
    is_fixed = VARIANT not in case
    return criterion.metric == RATIO and is_fixed and is_named(criterion.against, case)


def other_of(criterion: Criterion, case: Case, cases: Sequence[Case]) -> Case | str:
    """The case that the speed of this one is held against; else the reason why there is none.

    Of several that the criterion names, the one on the same device is meant. Both must do the same
    work for each unit, or a ratio of units would say nothing of the node.
    """
    named = [
        one
        for one in cases
        if one.id != case.id and one.is_timed and is_compared(criterion, one.id)
    ]
    here = [one for one in named if one.id.partition("@")[2] == case.id.partition("@")[2]]
    chosen = here or named
    if len(chosen) != 1:
        count = "no" if not chosen else str(len(chosen))
        return f'{count} timed cases besides {case.id} are called "{criterion.against}"'
    (other,) = chosen
    if per_unit(case) != per_unit(other):
        return f"{case.id} and {other.id} do other work for each unit, so no ratio is their speed's"
    if case.launches != other.launches:
        return f"{case.id} and {other.id} have other numbers of launches"
    return other


def per_unit(case: Case) -> tuple[str, str, float | None, float | None]:
    """What one unit of a case's work is, to nine digits."""
    work = case.work

    def share(amount: float | None) -> float | None:
        is_counted = amount is not None and work.units > 0
        return float(f"{amount / work.units:.9g}") if is_counted and amount is not None else None

    return work.unit, work.precision, share(work.flops), share(work.bytes)


def is_pooled(criterion: Criterion) -> bool:
    """Whether one ruling is made for all of its cases together."""
    return criterion.kind == "drift" or criterion.metric in POOLED_METRICS


def _is_of_all_launches(criterion: Criterion) -> bool:
    return criterion.kind == "drift" and criterion.sustained_seconds is None


def is_judged(criteria: Criteria, case: str) -> bool:
    """Whether a required limit is set on the times of this very case.

    Drift is of the device, but where no stage is stated for it all launches are to show it.
    """
    return any(
        criterion.required
        and criterion.kind in CHANCE_KINDS
        and (not is_pooled(criterion) or _is_of_all_launches(criterion))
        and (matches(criterion, case) or is_compared(criterion, case))
        for criterion in criteria.criterion
    )


def num_limits(criteria: Criteria, cases: Sequence[Case]) -> int:
    """Limits that may each reject this run by chance."""
    count = 0
    for criterion in criteria.criterion:
        if criterion.required and criterion.kind in CHANCE_KINDS:
            matching = sum(case.is_timed and matches(criterion, case.id) for case in cases)
            count += min(matching, 1) if is_pooled(criterion) else matching
    return count


def alphas(criteria: Criteria, number: int, attempt: int = 0) -> tuple[float, float]:
    """Risk of a wrong pass of one limit, and of a wrong fail, which `number` limits share.

    Attempt k of a challenge may spend alpha / (k (k + 1)) on a pass: over any number of attempts
    these parts add up to less than alpha, so trying again buys nothing. Attempt 0 is of a run whose
    attempts nobody counts, which spends all of it. A fail is no better for being tried again, and
    its risk is not divided.
    """
    part = attempt * (attempt + 1) if attempt else 1
    return criteria.alpha_pass / part, criteria.alpha_fail / max(1, number)


def planned_bounds(
    criteria: Criteria,
    cases: Sequence[Case],
    interim_analyses: Sequence[int],
    sessions: int = 1,
    *,
    num_attempts: int = 0,
) -> tuple[int, tuple[Bounds, ...]]:
    """The number of limits, and the bounds of every test at each interim analysis of these cases.

    `interim_analyses` are the protocol's; a case has those below its number of launches, and that
    number, and of several sessions those of the last, with the launches before it. Bounds for a
    pass are those of attempts 1 to `num_attempts`, as the receipt that selects one comes after the
    plan; with 0, of a run whose attempts are not counted.
    """
    number = num_limits(criteria, cases)
    schedules = dict.fromkeys(
        (
            judged_analyses(interim_analyses, case.launches, sessions),
            earlier_launches(interim_analyses, case.launches, sessions),
        )
        for case in cases
        if case.is_timed
        and any(item.kind == "perf" and matches(item, case.id) for item in criteria.criterion)
    )
    attempts = range(1, num_attempts + 1) if num_attempts else (0,)
    levels = dict.fromkeys(
        alpha for attempt in attempts for alpha in alphas(criteria, number, attempt)
    )
    return number, tuple(
        Bounds(alpha=alpha, interim_analyses=schedule, z=group_bounds(alpha, schedule, earlier))
        for schedule, earlier in schedules
        for alpha in levels
    )
