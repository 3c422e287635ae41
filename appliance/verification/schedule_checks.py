"""Whether a plan within so many minutes follows from its times, its minutes and its criteria.

Whoever planned could spare his devices the launches that show something: a row, a launch more. So
the rows of the plan are made of its cases once more, the choice among them is made once more, and
each recorded time is looked up once more where this bench has the records that the plan was made
with. The times of rows that were left out cannot be gone after; they keep the run from being
accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.errors import EvidenceError
from appliance.planning.criterion_scope import is_judged
from appliance.records.criteria import Criteria
from appliance.records.plan import Plan, Schedule, ScheduledRow
from appliance.records.qualified import ObservedCase
from appliance.records.system import System
from appliance.scheduling.allocation import MOST_MINUTES, allocated, most_launches, waiting
from appliance.scheduling.forecast import Source, known_times
from appliance.scheduling.rows import grouped, row_name, rows_of
from appliance.scheduling.within import left_out
from appliance.version import VERSION


def check_schedule(
    plan: Plan, system: System, criteria: Criteria, observed: Sequence[ObservedCase]
) -> str:
    """What was scheduled, in a clause; empty for a plan without minutes.

    EvidenceError unless the schedule follows from the plan's cases. `observed` are the times that
    this bench has recorded.
    """
    schedule = plan.schedule
    if schedule is None:
        if any(case.assured is not None or case.waits for case in plan.cases):
            raise EvidenceError("plan.json: launches wait for time, and it is of no minutes")
        return ""
    if not 1 <= schedule.minutes <= MOST_MINUTES or plan.sessions != 1:
        raise EvidenceError(
            "plan.json: its schedule is of minutes or sessions that no run can have"
        )
    _check_rows(plan, schedule, criteria)
    _check_choice(plan, schedule)
    if plan.bench_version == VERSION:
        _check_times(plan, system, schedule, observed)
    num_assured = sum(row.launches is not None for row in schedule.rows)
    num_waiting = sum(bool(row.waits) for row in schedule.rows)
    waiting = f" and {num_waiting} where time is left" if num_waiting else ""
    return (
        f"; planned within {schedule.minutes} min, {num_assured} of {len(schedule.rows)} rows of "
        f"the suite{waiting}, as its times say"
    )


def _check_rows(plan: Plan, schedule: Schedule, criteria: Criteria) -> None:
    """EvidenceError unless the rows that are run are those of the plan's cases."""
    names = [row.name for row in schedule.rows]
    if len(set(names)) != len(names):
        raise EvidenceError("plan.json: its schedule has a row twice")
    groups = grouped(names, criteria)
    sources = _sources(plan, schedule)
    made = rows_of(plan.cases, plan.protocol, criteria, sources)
    run = [row for row in schedule.rows if row.name not in schedule.left_out]
    if [row.name for row in made] != [row.name for row in run]:
        raise EvidenceError("plan.json: its schedule has other rows than its cases are of")
    most = most_launches(schedule.rows, plan.protocol.interim_analyses)
    for shown, again in zip(run, made, strict=True):
        planned = {
            (case.launches, case.num_assured, case.waits)
            for case in plan.cases
            if row_name(case.id) == shown.name
        }
        wanted = replace(
            again,
            group=groups[shown.name],
            most=shown.most,
            least=_least(shown, plan, criteria),
            is_recorded=shown.is_recorded and again.is_recorded,
            is_estimated=shown.is_estimated and again.is_estimated,
            is_assumed=shown.is_assumed and again.is_assumed,
            launches=shown.launches,
            waits=shown.waits,
        )
        if planned != {_as_planned(shown, most)} or shown != wanted:
            raise EvidenceError(
                f"plan.json: its schedule has other times or launches of {shown.name} than its case"
            )
    for row in schedule.rows:
        if row.name in schedule.left_out and row.group != groups[row.name]:
            raise EvidenceError(f"plan.json: its schedule compares {row.name} with another row")


def _as_planned(row: ScheduledRow, most: Mapping[str, int]) -> tuple[int, int, int]:
    """The launches of a row's cases, those of them that are assured, and its place in line."""
    if not row.most:  # nothing of it is timed
        return 0, 0, row.waits
    return most[row.name], row.whole, row.waits


def _sources(plan: Plan, schedule: Schedule) -> dict[str, Source]:
    """What the schedule calls the times of the plan's cases, but for allowances."""
    named: dict[str, Source] = {}
    for case in plan.cases:
        for row in schedule.rows:
            if row.name == row_name(case.id) and row.is_recorded:
                named[case.id] = "recorded"
            elif row.name == row_name(case.id) and row.is_estimated:
                named[case.id] = "assumed" if row.is_assumed else "estimated"
    return named


def _least(row: ScheduledRow, plan: Plan, criteria: Criteria) -> int:
    """The fewest launches of a row that is run, of the most that its suite has."""
    cases = [case.id for case in plan.cases if row_name(case.id) == row.name]
    limited = any(is_judged(criteria, case) for case in cases)
    return min(row.most, plan.protocol.interim_analyses[0] if limited else 1)


def _check_choice(plan: Plan, schedule: Schedule) -> None:
    """EvidenceError unless another choice by the same rule gives the same launches."""
    chosen = allocated(schedule.rows, schedule.minutes, plan.protocol.interim_analyses)
    places = waiting(schedule.rows, schedule.minutes, chosen)
    for row in schedule.rows:
        if row.waits != places[row.name]:
            raise EvidenceError(
                f"plan.json: its schedule has {row.name} at place {row.waits} of the rows that "
                f"wait, and by its times it is at {places[row.name]}"
            )
        if row.launches != chosen[row.name]:
            raise EvidenceError(
                f"plan.json: its schedule gives {row.name} {_count(row.launches)}, and by its "
                f"times {_count(chosen[row.name])} follow from {schedule.minutes} min"
            )
    reasons = left_out(schedule)
    if plan.not_planned[len(plan.not_planned) - len(reasons) :] != reasons:
        raise EvidenceError("plan.json does not name the rows that its schedule leaves out")


def _count(launches: int | None) -> str:
    return "no launches" if launches is None else f"{launches} launches"


def _check_times(
    plan: Plan, system: System, schedule: Schedule, observed: Sequence[ObservedCase]
) -> None:
    """EvidenceError unless the cases have the times that this bench knows, where it knows any."""
    models = {device.id: device.model for device in system.identity.devices}
    known = known_times(plan.cases, models, observed, plan.protocol)
    named = _sources(plan, schedule)
    for case in plan.cases:
        own = known.get(case.id)
        is_called_so = case.id in named and not (case.unsupported or case.software)
        has_other = own is not None and (
            (case.expected_seconds, case.reference_seconds) != (own.seconds, own.untimed_seconds)
            or (is_called_so and named[case.id] != own.source)
        )
        if has_other or (own is None and is_called_so):
            there = "none" if own is None else f"{own.seconds:.6g} s ({own.source})"
            raise EvidenceError(
                f"plan.json goes by {case.expected_seconds:.6g} s for a launch of {case.id}, and "
                f"the records of bench {VERSION} have {there}"
            )
