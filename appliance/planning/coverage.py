"""What of its suite a run does not cover, because the node is too small for it.

A case that needs more devices, nodes or memory than there are is no fault of the devices that are
there, and says nothing of them. So nothing is accepted on its account: as long as the criteria do
not name it among the cases that a node may lack, the run is at best inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from appliance.planning.criterion_scope import CHANCE_KINDS, matches
from appliance.records.criteria import Criteria
from appliance.records.plan import NotPlanned, Plan


def gaps(plan: Plan, criteria: Criteria) -> tuple[NotPlanned, ...]:
    """Cases of the suite that are not planned and that the criteria do not let a node lack.

    What was left out for want of time is no lack of the node, and always one.
    """
    left_out = frozenset() if plan.schedule is None else plan.schedule.left_out
    return tuple(
        item
        for item in plan.not_planned
        if item.case in left_out
        or not any(fnmatchcase(item.case, pattern) for pattern in criteria.may_lack)
    )


def sentences(plan: Plan) -> tuple[str, ...]:
    """One for each case of the suite that is not planned, and for each that cannot run here."""
    return (
        *(f"{named(item)} is not planned: {item.reason}" for item in plan.not_planned),
        *(f"{case.id} cannot run: {case.unsupported}" for case in plan.cases if case.unsupported),
        *lacks(plan),
    )


def lacks(plan: Plan) -> Iterator[str]:
    """A sentence for each lack of software, with the cases that cannot run for it."""
    cases: dict[str, list[str]] = {}
    for case in plan.cases:
        if case.software:
            cases.setdefault(case.software, []).append(case.id)
    for lack, names in cases.items():
        yield f"{', '.join(names)} cannot run: software: {lack}"


def unmatched(plan: Plan, criteria: Criteria) -> Iterator[str]:
    """A sentence for each required criterion that no planned case can be judged by."""
    for criterion in criteria.criterion:
        is_found = criterion.kind in ("inventory", "fabric") or any(
            matches(criterion, case.id) and (case.is_timed or criterion.kind not in CHANCE_KINDS)
            for case in plan.cases
        )
        if criterion.required and not is_found:
            yield (
                f'criterion "{criterion.id}" matches no planned case ("{criterion.cases}"), so the '
                "run cannot be accepted: correct the pattern or plan another suite"
            )


def preflight_warnings(plan: Plan, criteria: Criteria) -> tuple[str, ...]:
    """Why a run of the plan cannot end accepted, whatever its launches give; empty if it can."""
    missing = gaps(plan, criteria)
    warnings = tuple(unmatched(plan, criteria))
    if missing:
        warnings += (f"the run cannot be accepted: {explained(missing)}",)
    return (*warnings, *(f"the run cannot be accepted: {lack}" for lack in lacks(plan)))


def named(item: NotPlanned) -> str:
    """The case, with its device where it is a matter of one."""
    return f"{item.case}@{item.device}" if item.device else item.case


def explained(gaps: tuple[NotPlanned, ...]) -> str:
    """One sentence of all gaps."""
    reasons = "; ".join(f"{named(item)}: {item.reason}" for item in gaps)
    count = f"{len(gaps)} case{'s' if len(gaps) > 1 else ''}"
    return f"{count} of the suite {'are' if len(gaps) > 1 else 'is'} not planned ({reasons})"
