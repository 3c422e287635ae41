"""The suite's time limit is held by the journal's own times, both ways."""

from dataclasses import replace

import pytest
from support.builders import a_plan, chain, ended, healthy_events, of_launch, resumed

from appliance.errors import EvidenceError
from appliance.planning.sessions import TIME_LIMIT, SessionClock
from appliance.records.journal import Event, InterimAnalysis, LaunchEnded, RunEnded, RunStarted
from appliance.records.plan import Plan
from appliance.verification.run_checks import check_conduct

LAST = 3  # launch of the only case that is left out


def planned(seconds: float) -> Plan:
    return replace(a_plan(), time_limit_seconds=seconds, is_time_limited=True)


def left_out(plan: Plan) -> list[Event]:
    """The run without its launches from LAST on, for which there was no time."""
    late = [launch.id for launch in plan.launches if launch.number >= LAST]
    made = [
        event
        for event in healthy_events(plan)
        if not isinstance(event, InterimAnalysis | RunEnded)
        and not any(of_launch(event, launch) for launch in late)
    ]
    rest = [ended(launch, "not_run", TIME_LIMIT) for launch in late]
    return [*made, *rest, RunEnded(launches=len(plan.launches))]


def check(plan: Plan, events: list[Event]) -> None:
    """As verify does; a line is written each second."""
    start = events[0]
    assert isinstance(start, RunStarted)
    check_conduct(plan, chain(events), {"plan.json": start.plan, "system.json": start.system})


def test_a_run_that_left_out_what_had_no_time_is_sound() -> None:
    events = left_out(planned(0))
    first = next(place for place, event in enumerate(events) if is_left_out(event))
    plan = planned(first)
    check(plan, left_out(plan))


def test_a_launch_left_out_before_the_limit_is_found() -> None:
    """Whoever likes no result of a case cannot say that there was no time for it."""
    events = left_out(planned(0))
    first = next(place for place, event in enumerate(events) if is_left_out(event))
    plan = planned(first + 1)
    with pytest.raises(EvidenceError, match=rf"for want of time.* {first} s of {first + 1} s"):
        check(plan, left_out(plan))


def test_a_launch_left_out_of_a_plan_without_the_rule_is_found() -> None:
    plan = replace(planned(1), is_time_limited=False)
    with pytest.raises(EvidenceError, match="left out for want of time"):
        check(plan, left_out(plan))


def test_a_launch_begun_after_the_limit_is_found() -> None:
    plan = planned(1)
    with pytest.raises(EvidenceError, match=r"/1 begins after the time limit of the suite"):
        check(plan, healthy_events(plan))
    free = replace(plan, is_time_limited=False)
    check(free, healthy_events(free))


def test_a_launch_that_was_begun_cannot_be_left_out_for_want_of_time() -> None:
    plan = planned(1e6)
    name = plan.launches[1].id
    forged = [
        replace(event, outcome="not_run", reason=TIME_LIMIT)
        if isinstance(event, LaunchEnded) and event.launch == name
        else event
        for event in healthy_events(plan)
    ]
    with pytest.raises(EvidenceError, match="was started, so it cannot be time_limit"):
        check(plan, forged)


def test_the_time_between_two_processes_does_not_count() -> None:
    plan = planned(10)
    clock = SessionClock(plan)
    started, waiting, going_on = chain([healthy_events(plan)[0], *resumed(1)[:1], *resumed(1)[:1]])
    for line in (started, replace(waiting, monotonic_ns=10**12), going_on):
        clock.take(line)
    assert (clock.seconds, clock.is_over) == (0.0, False)


def is_left_out(event: Event) -> bool:
    return isinstance(event, LaunchEnded) and event.reason == TIME_LIMIT
