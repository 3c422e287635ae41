"""A plan within so many minutes: the suite's cases, the rows that fit, and what was left out.

What the minutes have time for by the rows' times is assured. Behind it stand rows that wait and
the later interim analyses of rows whose times are judged, for which time may be left
(`left_time.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.errors import UsageError
from appliance.planning import sustained
from appliance.planning.plan import PlanInputs, checked_launch, plan_cases, plan_of
from appliance.records.plan import Case, NotPlanned, Plan, Schedule, ScheduledRow
from appliance.records.qualified import ObservedCase
from appliance.scheduling.allocation import allocated, has_any, most_launches, smallest, waiting
from appliance.scheduling.forecast import known_times, with_known_times
from appliance.scheduling.rows import row_name, rows_of

_TIMES = {
    "recorded": "a recorded time",
    "estimated": "an estimate",
    "step assumed": "an estimate of which the step is assumed",
}


def plan_within(inputs: PlanInputs, minutes: int, observed: Sequence[ObservedCase]) -> Plan:
    """The most informative plan of the suite within so many minutes.

    UsageError where not even one row fits, with the smallest number of minutes that is enough.
    `observed` are the times that were recorded before, on any device.
    """
    if inputs.sessions > 1:
        raise UsageError("--minutes plans one session: leave --sessions out, or --minutes")
    models = {place.device.id: place.device.model for place in inputs.places}
    unscheduled, lacking = plan_cases(inputs)
    known = known_times(unscheduled, models, observed, inputs.suite.protocol)
    cases = with_known_times(unscheduled, known)
    sources = {name: one.source for name, one in known.items()}
    rows = rows_of(cases, inputs.suite.protocol, inputs.criteria, sources)

    def chosen(within: int) -> Schedule:
        launches = allocated(rows, within, inputs.suite.protocol.interim_analyses)
        places = waiting(rows, within, launches)
        return Schedule(
            minutes=within,
            rows=tuple(
                replace(row, launches=launches[row.name], waits=places[row.name]) for row in rows
            ),
        )

    def is_enough(within: int) -> bool:
        return not _refusal(inputs, cases, chosen(within))

    schedule = chosen(minutes)
    if refusal := _refusal(inputs, cases, schedule):
        least = smallest(is_enough)
        fix = "name no --minutes" if least is None else f"--minutes {least} is the smallest"
        raise UsageError(
            f"--minutes {minutes} is too few for suite {inputs.suite.name}: {refusal}; {fix}"
        )
    plan = plan_of(inputs, _planned(inputs, cases, schedule), (*lacking, *left_out(schedule)))
    return replace(plan, schedule=schedule, longest_seconds=_longest_seconds(plan, schedule))


def plan_whole(inputs: PlanInputs, observed: Sequence[ObservedCase]) -> Plan:
    """The plan of the whole suite, with what is known of the times of its full sizes.

    Small rows keep the allowances of their suite, by which its limit was chosen; those of full
    sizes are for a device that nobody has timed, and far too long for most.
    """
    models = {place.device.id: place.device.model for place in inputs.places}
    cases, lacking = plan_cases(inputs)
    full = [case for case in cases if not case.small]
    known = known_times(full, models, observed, inputs.suite.protocol)
    return plan_of(inputs, with_known_times(cases, known), lacking)


def left_out(schedule: Schedule) -> tuple[NotPlanned, ...]:
    """The rows that have no room, each with its reason in one sentence."""
    return tuple(
        NotPlanned(case=row.name, device="", reason=_why(row, schedule))
        for row in schedule.rows
        if row.name in schedule.left_out
    )


def _why(row: ScheduledRow, schedule: Schedule) -> str:
    if row.variant_of in schedule.left_out:
        return f"it is a variant of {row.variant_of}, for which {schedule.minutes} min have no room"
    seconds = row.fixed_seconds + row.least * row.launch_seconds
    by_what = _TIMES.get(row.times, "an allowance")
    return (
        f"it needs {seconds / 60:.1f} min at least, by {by_what}, and {schedule.minutes} min have "
        "no room for it"
    )


def _refusal(inputs: PlanInputs, cases: Sequence[Case], schedule: Schedule) -> str:
    """Why such a schedule is no plan; or nothing."""
    launches = {row.name: row.launches for row in schedule.rows}
    if not has_any(schedule.rows, launches):
        return "no row of it fits with its fewest launches"
    return sustained.refusal(
        inputs.criteria,
        _selected(inputs, cases, schedule),
        protocol=inputs.suite.protocol,
        sessions=1,
    )


def _longest_seconds(plan: Plan, schedule: Schedule) -> float:
    """What all launches take; of the time that is left no more than the minutes have."""
    if not any(launch.wave for launch in plan.launches):
        return plan.longest_seconds
    return max(plan.longest_seconds, 60.0 * schedule.minutes)


def _selected(inputs: PlanInputs, cases: Sequence[Case], schedule: Schedule) -> tuple[Case, ...]:
    """The cases of the rows that have time of their own, with the launches that are assured."""
    launches = {row.name: row.launches for row in schedule.rows}
    counted = ((case, launches[row_name(case.id)]) for case in cases)
    return tuple(_with(inputs, case, count) for case, count in counted if count is not None)


def _planned(inputs: PlanInputs, cases: Sequence[Case], schedule: Schedule) -> tuple[Case, ...]:
    """The cases that are run or wait, with all launches that there may be time for."""
    rows = {row.name: row for row in schedule.rows}
    most = most_launches(schedule.rows, inputs.suite.protocol.interim_analyses)
    return tuple(
        _with_most(inputs, case, rows[row_name(case.id)], most)
        for case in cases
        if row_name(case.id) not in schedule.left_out
    )


def _with_most(inputs: PlanInputs, case: Case, row: ScheduledRow, most: Mapping[str, int]) -> Case:
    """The case of a row with as many launches as it may have, of which some are assured."""
    whole = _with(inputs, case, row.whole)
    if not case.is_timed:
        return replace(whole, waits=row.waits)
    launches = most[row.name]
    assured = row.whole if launches > row.whole else None
    return replace(whole, launches=launches, assured=assured, waits=row.waits)


def _with(inputs: PlanInputs, case: Case, launches: int) -> Case:
    """The case with so many timed launches, one of which checks its last output."""
    count = launches if case.is_timed else 0
    name = row_name(case.variant_of or case.id)
    checked = checked_launch(inputs.suite.protocol, name, count, inputs.seed)
    return replace(case, launches=count, checked_launch=checked)
