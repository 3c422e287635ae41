"""A case for which the minutes left no time says so under every criterion, and no more."""

from __future__ import annotations

from dataclasses import replace

from support.builders import a_case, a_plan, ended, healthy_events, of_launch, verdict_of

from appliance.judging.functional import MORE_MINUTES
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import Event, LaunchStarted
from appliance.records.plan import Plan, Schedule

MADE, WAITING = "made@cpu:0", "waiting@cpu:0"


def planned() -> Plan:
    waiting = replace(a_case("waiting", launches=2), waits=1)
    plan = a_plan(a_case("made", launches=2), waiting)
    return replace(plan, schedule=Schedule(minutes=7, rows=()))


def without_time(plan: Plan, *launches: str) -> list[Event]:
    """The run, in which the minutes left no time for these launches."""
    return [
        ended(event.launch, "not_run", NO_TIME)
        if isinstance(event, LaunchStarted) and event.launch in launches
        else event
        for event in healthy_events(plan)
        if isinstance(event, LaunchStarted) or not any(of_launch(event, one) for one in launches)
    ]


def test_every_criterion_gives_the_one_reason_and_what_helps() -> None:
    plan = planned()
    of_case = [one.id for one in plan.launches if one.case == WAITING]
    verdict = verdict_of(plan, without_time(plan, *of_case))
    rulings = [one for one in verdict.rulings if one.case == WAITING]
    open_ones = {one.criterion for one in rulings if one.ruling == "inconclusive"}
    assert {"completion", "correctness", "integrity"} <= open_ones
    assert not {one.ruling for one in rulings} & {"pass", "fail"}
    said = {(one.explanation, one.action) for one in rulings if one.ruling == "inconclusive"}
    assert said == {("the 7 min of the run left no time for it", MORE_MINUTES)}
    of_made = {one.ruling for one in verdict.rulings if one.case == MADE}
    assert of_made <= {"pass", "not_applicable"}
    assert verdict.verdict == "INCONCLUSIVE"


def test_a_case_that_began_keeps_the_reasons_of_its_criteria() -> None:
    plan = planned()
    timed = [one.id for one in plan.launches if one.case == WAITING and one.is_timed]
    verdict = verdict_of(plan, without_time(plan, *timed))
    reasons = {one.criterion: one.explanation for one in verdict.rulings if one.case == WAITING}
    assert "7 min" in reasons["completion"]
    assert not any("7 min" in text for name, text in reasons.items() if name != "completion")
