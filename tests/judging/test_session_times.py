"""Times of several sessions are judged in the last one, and wrong outputs at once."""

from dataclasses import replace

import pytest
from support.builders import (
    STEP_NS,
    a_case,
    a_plan,
    bare_lines,
    healthy_events,
    limited,
    with_bounds,
)
from support.bundles import NOTHING_KNOWN

from appliance.judging.verdict import interim_analysis
from appliance.records.journal import Checked, Event, InterimAnalysis, LaunchEnded
from appliance.records.plan import Plan

NAME = "gemm@cpu:0"
MET = limited(2 * STEP_NS * 1e-9)
MISSED = limited(0.5 * STEP_NS * 1e-9)
PLAN = with_bounds(a_plan(a_case(launches=15), sessions=3), MET)


def until(plan: Plan, launches: int) -> list[Event]:
    """What happened until so many timed launches had ended."""
    events = [one for one in healthy_events(plan) if not isinstance(one, InterimAnalysis)]
    at = next(
        number
        for number, one in enumerate(events)
        if isinstance(one, LaunchEnded) and one.launch == f"{NAME}/{launches}"
    )
    return events[: at + 1]


@pytest.mark.parametrize("criteria", [MET, MISSED])
@pytest.mark.parametrize("launches", [5, 10])
def test_no_limit_is_ruled_before_the_last_session(criteria: object, launches: int) -> None:
    is_decided, reason = interim_analysis(
        plan=PLAN,
        criteria=criteria,  # type: ignore[arg-type]
        lines=bare_lines(until(PLAN, launches)),
        case=NAME,
        **NOTHING_KNOWN,
    )
    assert not is_decided
    assert reason == "open: nothing has failed; times are judged in session 3"


@pytest.mark.parametrize(
    ("criteria", "output"),
    [(MET, "decided: within every limit"), (MISSED, "slower than the limit")],
)
def test_the_last_session_judges_the_launches_of_all(criteria: object, output: str) -> None:
    is_decided, reason = interim_analysis(
        plan=PLAN,
        criteria=criteria,  # type: ignore[arg-type]
        lines=bare_lines(until(PLAN, 15)),
        case=NAME,
        **NOTHING_KNOWN,
    )
    assert is_decided
    assert output in reason


def test_a_wrong_output_ends_its_case_in_any_session() -> None:
    events = until(PLAN, 5)
    wrong = [
        replace(one, check=replace(one.check, error=1.0))
        if isinstance(one, Checked) and one.launch == f"{NAME}/3"
        else one
        for one in events
    ]
    is_decided, reason = interim_analysis(
        plan=PLAN, criteria=MET, lines=bare_lines(wrong), case=NAME, **NOTHING_KNOWN
    )
    assert is_decided
    assert reason.startswith("decided: ")
