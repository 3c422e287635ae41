"""What was made of the time that was left is held to the plan's rule, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import FUNCTIONAL, a_case, a_plan, chain, ended, healthy_events, of_launch
from support.bundles import SYSTEM

from appliance.errors import EvidenceError
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import Event, InterimAnalysis, RunEnded, RunStarted
from appliance.records.plan import Plan, Schedule
from appliance.scheduling.rows import rows_of
from appliance.verification.run_checks import check_conduct
from appliance.verification.schedule_checks import check_schedule

OPEN, WAITING = "open@cpu:0", "waiting@cpu:0"


def planned(minutes: int = 1) -> Plan:
    """A case of 2 launches that may become 4, and a row of 1 that waits; a line takes a second."""
    protocol = replace(a_plan().protocol, interim_analyses=(2, 4))
    cases = (
        replace(a_case("open", launches=4, checked_launch=1), assured=2),
        replace(a_case("waiting", launches=1, checked_launch=1), waits=1),
    )
    made = rows_of(cases, protocol, FUNCTIONAL, {})
    rows = (
        replace(made[0], most=4, launches=2, fixed_seconds=1.0),
        replace(made[1], waits=1, fixed_seconds=1.0),
    )
    plan = a_plan(*cases, protocol=protocol)
    return replace(plan, schedule=Schedule(minutes=minutes, rows=rows))


def events_of(plan: Plan, without: Sequence[str] = (), decided: str = "") -> list[Event]:
    """The run without some launches, for which it says that there was no time."""
    made: list[Event] = []
    for event in healthy_events(plan):
        names = [name for name in without if of_launch(event, name)]
        if isinstance(event, InterimAnalysis | RunEnded):
            continue
        if not names:
            made.append(event)
        elif not any(of_launch(past, names[0]) for past in made):
            made.append(ended(names[0], "not_run", NO_TIME))
        if of_launch(event, f"{OPEN}/2") and event == healthy_end(plan, f"{OPEN}/2"):
            made.append(analysis(OPEN, 2, is_decided=decided == OPEN))
    return [*made, RunEnded(launches=len(plan.launches))]


def healthy_end(plan: Plan, launch: str) -> Event:
    return [event for event in healthy_events(plan) if of_launch(event, launch)][-1]


def analysis(case: str, launches: int, *, is_decided: bool = False) -> Event:
    return InterimAnalysis(case=case, launches=launches, is_decided=is_decided, reason="")


def check(plan: Plan, events: list[Event], *, late_seconds: int = 0) -> None:
    """As verify does; the run stands still once, after its third line."""
    lines = [
        replace(line, monotonic_ns=line.monotonic_ns + (late_seconds * 10**9 if place > 2 else 0))
        for place, line in enumerate(chain(events))
    ]
    start = events[0]
    assert isinstance(start, RunStarted)
    check_conduct(plan, lines, {"plan.json": start.plan, "system.json": start.system})


LATER = (f"{OPEN}/3", f"{OPEN}/4")
WAITED = (f"{WAITING}/0", f"{WAITING}/1")


def test_a_run_with_time_for_all_and_one_with_time_for_nothing_are_sound() -> None:
    check(planned(60), events_of(planned(60)))
    check(planned(), events_of(planned(), (*WAITED, *LATER)), late_seconds=60)


@pytest.mark.parametrize("launches", [WAITED, LATER, LATER[1:]])
def test_a_launch_that_had_time_cannot_be_left_out(launches: tuple[str, ...]) -> None:
    """Whoever fears what a device shows later cannot say that there was no time for it."""
    plan = planned(60)
    with pytest.raises(EvidenceError, match=r"left out for want of time, and the minutes had time"):
        check(plan, events_of(plan, launches))


def test_a_launch_cannot_be_made_that_the_minutes_left_no_time_for() -> None:
    """Whoever hopes for more cannot go on looking at one case."""
    plan = planned()
    with pytest.raises(EvidenceError, match=r"is made, and the minutes left no time for it"):
        check(plan, events_of(plan), late_seconds=60)


def test_a_decided_case_is_not_gone_on_with() -> None:
    plan = planned(60)
    with pytest.raises(EvidenceError, match=r"made although its case was decided"):
        check(plan, events_of(plan, decided=OPEN))


def test_launches_cannot_be_taken_out_of_the_order_of_the_waves() -> None:
    plan = planned(60)
    events = events_of(plan)
    later = [event for event in events if any(of_launch(event, name) for name in LATER)]
    others = [event for event in events if event not in later]
    first = next(place for place, event in enumerate(others) if of_launch(event, WAITED[0]))
    forged = [*others[:first], *later, *others[first:]]
    with pytest.raises(EvidenceError, match="out of the order of the plan"):
        check(plan, forged)


def test_no_analysis_is_taken_of_launches_that_were_not_made() -> None:
    """Else a bound of more launches would be held to the same few."""
    plan = planned()
    events = events_of(plan, (*WAITED, *LATER))
    forged = [*events[:-1], analysis(OPEN, 4), events[-1]]
    with pytest.raises(EvidenceError, match="with launches that there was no time for"):
        check(plan, forged, late_seconds=60)


def test_launches_that_wait_are_of_a_plan_of_so_many_minutes() -> None:
    plan = replace(planned(), schedule=None)
    with pytest.raises(EvidenceError, match="it is of no minutes"):
        check_schedule(plan, SYSTEM, FUNCTIONAL, ())
    with pytest.raises(EvidenceError, match="the minutes had time for it"):
        check(plan, events_of(plan, LATER))


@pytest.mark.parametrize(
    ("name", "changed"), [("waiting", {"waits": 2}), ("waiting", {"waits": 0})]
)
def test_a_place_in_line_that_does_not_follow_is_a_fault(
    name: str, changed: dict[str, int]
) -> None:
    plan = planned()
    assert plan.schedule is not None
    rows = tuple(replace(row, **changed) if row.name == name else row for row in plan.schedule.rows)
    with pytest.raises(EvidenceError, match="schedule"):
        check_schedule(
            replace(plan, schedule=replace(plan.schedule, rows=rows)), SYSTEM, FUNCTIONAL, ()
        )
