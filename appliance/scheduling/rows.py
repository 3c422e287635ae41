"""What each row of a plan costs, by the times that were recorded of it or by its allowance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.planning.criterion_scope import RATIO, is_compared, is_judged, matches
from appliance.planning.remaining_time import REPEAT_PART
from appliance.records.criteria import Criteria
from appliance.records.plan import Case, ScheduledRow
from appliance.records.suite import Protocol
from appliance.scheduling.forecast import Source


def row_name(case: str) -> str:
    """The row that a case belongs to, by its id: the same on every device."""
    return case.partition("@")[0]


def rows_of(
    cases: Sequence[Case],
    protocol: Protocol,
    criteria: Criteria,
    sources: Mapping[str, Source],
) -> tuple[ScheduledRow, ...]:
    """A row for each case of the suite, in the cases' order, with no time given to it yet.

    Each case has as many launches as the suite has of it at most. `sources` are of the times of
    cases that are no allowances, by their ids.
    """
    by_row: dict[str, list[Case]] = {}
    for case in cases:
        by_row.setdefault(row_name(case.id), []).append(case)
    groups = grouped(tuple(by_row), criteria)
    return tuple(
        _row(name, members, protocol, criteria, sources=sources, group=groups[name])
        for name, members in by_row.items()
    )


def _row(
    name: str,
    cases: Sequence[Case],
    protocol: Protocol,
    criteria: Criteria,
    *,
    sources: Mapping[str, Source],
    group: str,
) -> ScheduledRow:
    runnable = [case for case in cases if not (case.unsupported or case.software)]
    untimed = (1 + protocol.repeats * REPEAT_PART) * _together(runnable, is_timed=False)
    most = max(case.launches for case in cases)
    known = {sources.get(case.id) for case in runnable}
    return ScheduledRow(
        name=name,
        group=group,
        variant_of=row_name(cases[0].variant_of),
        weight=cases[0].weight,
        fixed_seconds=untimed,
        launch_seconds=_together(runnable, is_timed=True) if most else 0.0,
        is_recorded=bool(known) and known <= {"recorded"},
        is_estimated=bool(known - {"recorded"}) and None not in known,
        is_assumed="assumed" in known and None not in known,
        least=least_launches(cases, protocol, criteria, most),
        most=most,
        launches=None,
    )


def least_launches(cases: Sequence[Case], protocol: Protocol, criteria: Criteria, most: int) -> int:
    """The fewest timed launches of a row of which a ruling follows.

    Where a limit is set on its times those of the first interim analysis, else one: every launch
    makes every check of its outputs.
    """
    limited = any(is_judged(criteria, case.id) for case in cases)
    return min(most, protocol.interim_analyses[0] if limited else 1)


def _together(cases: Sequence[Case], *, is_timed: bool) -> float:
    """Seconds of one launch on all devices: at once, but for those that work alone."""
    shared, alone = [0.0], 0.0
    for case in cases:
        seconds = case.expected_seconds if is_timed else case.reference_seconds
        if case.alone:
            alone += seconds
        else:
            shared.append(seconds)
    return alone + max(shared)


def grouped(names: Sequence[str], criteria: Criteria) -> dict[str, str]:
    """By row the first of those whose speeds are compared with its own; itself for most."""
    group = {name: name for name in names}
    for criterion in criteria.criterion:
        if criterion.metric != RATIO:
            continue
        tied = [name for name in names if matches(criterion, name) or is_compared(criterion, name)]
        heads = {group[name] for name in tied}
        first = next((name for name in names if group[name] in heads), "")
        group = {name: first if head in heads else head for name, head in group.items()}
    return group
