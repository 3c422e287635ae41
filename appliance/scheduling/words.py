"""A schedule as it is stated before the first launch: a short table, in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.records.plan import Plan, Schedule, ScheduledRow
from appliance.scheduling.rows import row_name

HEADS = ("row", "timed launches", "min", "times", "")


def table(plan: Plan) -> tuple[str, ...]:
    """What is run within the minutes, what is left out and why, in lines; none without minutes."""
    schedule = plan.schedule
    if schedule is None:
        return ()
    reasons = {item.case: item.reason for item in plan.not_planned}
    cells = [HEADS, *(_cells(row, plan, reasons) for row in schedule.rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    lines = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in cells
    )
    return (summary(plan, schedule), *(line.rstrip() for line in lines))


def markdown(plan: Plan) -> Iterator[str]:
    """The same as a table of a page."""
    schedule = plan.schedule
    if schedule is None:
        return
    reasons = {item.case: item.reason for item in plan.not_planned}
    yield summary(plan, schedule)
    yield ""
    yield "| row | timed launches | min | times | of the time that is left |"
    yield "|---|---|---|---|---|"
    for row in schedule.rows:
        name, *others = _cells(row, plan, reasons)
        yield f"| `{name}` | {' | '.join(others)} |"


def summary(plan: Plan, schedule: Schedule) -> str:
    """How much of the suite is run within the minutes."""
    can_run = [row for row in schedule.rows if row.fixed_seconds + row.launch_seconds > 0]
    num_run = sum(row.launches is not None for row in can_run)
    times = [row.times for row in can_run]
    known = {name: times.count(name) for name in ("estimated", "step assumed")}
    others = {"estimated": "estimated", "step assumed": "estimated of an assumed step"}
    num_allowed = times.count("allowance")
    num_waiting = sum(bool(row.waits) for row in can_run)
    wait = "waits" if num_waiting == 1 else "wait"
    cannot = len(schedule.rows) - len(can_run)
    return (
        f"within {schedule.minutes} min: {num_run} of {len(schedule.rows)} rows and variants of "
        f"{plan.suite}, planned for {plan.longest_seconds / 60:.1f} min at most; "
        f"{len(schedule.left_out)} left out for want of time"
        + (f", {num_waiting} {wait} for time that is left" if num_waiting else "")
        + (f", {cannot} cannot run here" if cannot else "")
        + f"; the times of {times.count('recorded')} are recorded"
        + "".join(f", {count} {others[name]}" for name, count in known.items() if count)
        + {0: "", 1: ", the other is an allowance"}.get(num_allowed, ", the others are allowances")
    )


def _cells(
    row: ScheduledRow, plan: Plan, reasons: dict[str, str]
) -> tuple[str, str, str, str, str]:
    seconds = row.fixed_seconds + row.whole * row.launch_seconds
    if row.fixed_seconds + row.launch_seconds <= 0:
        return row.name, "-", "-", "-", "cannot run here"
    if row.waits:
        why = f"number {row.waits} in line, needs {seconds / 60:.1f} min"
        return row.name, "waits", "-", row.times, why
    if row.launches is None:
        return row.name, "left out", "-", row.times, reasons.get(row.name, "")
    most = max((case.launches for case in plan.cases if row_name(case.id) == row.name), default=0)
    more = f"up to {most} launches where time is left" if most > row.launches else ""
    return row.name, str(row.launches), f"{seconds / 60:.1f}", row.times, more
