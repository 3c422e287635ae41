"""A schedule as it is stated before the first launch: a short table, in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.records.plan import Plan, Schedule, ScheduledRow

HEADS = ("row", "launches", "min", "times", "")


def table(plan: Plan) -> tuple[str, ...]:
    """What is run within the minutes, what is left out and why, in lines; none without minutes."""
    schedule = plan.schedule
    if schedule is None:
        return ()
    reasons = {item.case: item.reason for item in plan.not_planned}
    cells = [HEADS, *(_cells(row, reasons) for row in schedule.rows)]
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
    yield "| row | launches | min | times | why not |"
    yield "|---|---|---|---|---|"
    for row in schedule.rows:
        name, *others = _cells(row, reasons)
        yield f"| `{name}` | {' | '.join(others)} |"


def summary(plan: Plan, schedule: Schedule) -> str:
    """How much of the suite is run within the minutes."""
    can_run = [row for row in schedule.rows if row.fixed_seconds + row.launch_seconds > 0]
    num_run = sum(row.launches is not None for row in can_run)
    times = [row.times for row in can_run]
    num_estimated = times.count("estimated")
    cannot = len(schedule.rows) - len(can_run)
    return (
        f"within {schedule.minutes} min: {num_run} of {len(schedule.rows)} rows and variants of "
        f"{plan.suite}, at most {plan.longest_seconds / 60:.1f} min; {len(schedule.left_out)} left "
        "out for want of time"
        + (f", {cannot} cannot run here" if cannot else "")
        + f"; the times of {times.count('recorded')} are recorded"
        + (f", {num_estimated} estimated" if num_estimated else "")
        + ", the others allowances"
    )


def _cells(row: ScheduledRow, reasons: dict[str, str]) -> tuple[str, str, str, str, str]:
    times = row.times
    if row.fixed_seconds + row.launch_seconds <= 0:
        return row.name, "-", "0.0", "-", "cannot run here"
    if row.launches is None:
        return row.name, "left out", "-", times, reasons.get(row.name, "")
    seconds = row.fixed_seconds + row.launches * row.launch_seconds
    return row.name, str(row.launches), f"{seconds / 60:.1f}", times, ""
