"""Sessions: what each makes, when times are judged, and which clocks forbid the next."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from support.builders import PROTOCOL, limited
from support.planned_suites import place, planned, suite, suite_case

from appliance.errors import UsageError
from appliance.planning import challenge_window, sessions
from appliance.planning.plan import case_analyses
from appliance.planning.sessions import judged_analyses, seconds_of_run, session_ends
from appliance.records.journal import SessionBegan, SessionEnded
from appliance.records.order import Challenge
from appliance.records.suite import Protocol
from appliance.statistics.group_sequential import group_bounds

LONG = Protocol(
    mode="forked",
    calibration_seconds=0.03,
    warmup_steps=1,
    warmup_seconds=0.0,
    blocks=2,
    block_steps=3,
    block_seconds=0.05,
    interim_analyses=(5, 10, 20, 40),
    last_checks="one",
    repeats=3,
)
SECOND = 10**9
HOUR = 3600


def made(number: int, case: str = "gemm-1@cpu:0") -> list[int]:
    """Numbers of the case's launches in a session of a plan of three, in their order."""
    plan = planned(suite(protocol=LONG), criteria=limited(1.0, cases="gemm*"), sessions=3)
    order = [name for group in plan.groups for name in group]
    launches = {launch.id: launch for launch in plan.launches}
    return [
        launches[name].number
        for name in order
        if launches[name].case == case and launches[name].session == number
    ]


def test_each_session_but_the_last_makes_the_launches_of_the_first_analysis() -> None:
    assert made(1) == [0, -1, 1, 2, 3, 4, 5]
    assert made(2) == [-2, 6, 7, 8, 9, 10]
    assert made(3) == [-3, *range(11, 51)]


def test_a_case_without_a_limit_makes_as_many_in_each_session() -> None:
    assert [len(made(number, "llama-1@cpu:0")) for number in (1, 2, 3)] == [7, 6, 6]


def test_sessions_follow_one_another_for_all_cases_whatever_their_launches() -> None:
    cases = (suite_case("gemm"), suite_case("bert", launches=2))
    plan = planned(suite(*cases, protocol=LONG), sessions=3, places=(place(0), place(1)))
    launches = {launch.id: launch for launch in plan.launches}
    order = [launches[name].session for group in plan.groups for name in group]
    assert order == sorted(order)
    timed = Counter((one.case, one.session) for one in plan.launches if one.is_timed)
    assert {timed["bert-1@cpu:0", number] for number in (1, 2, 3)} == {2}
    assert {timed["gemm-1@cpu:1", number] for number in (1, 2, 3)} == {5}


def test_one_session_is_planned_as_ever() -> None:
    plan = planned()
    assert (plan.sessions, plan.pause_seconds) == (1, None)
    assert {launch.session for launch in plan.launches} == {1}
    assert judged_analyses((5, 10, 20), 7, 1) == (5, 7)
    assert session_ends((5, 10, 20), 7, 1) == ()


def test_times_are_judged_in_the_last_session_alone_and_the_risk_is_spent_there() -> None:
    plan = planned(suite(protocol=LONG), criteria=limited(1.0, cases="gemm*"), sessions=3)
    case = next(case for case in plan.cases if case.id.startswith("gemm"))
    assert case.launches == 50
    assert case_analyses(plan, case) == (5, 10, 15, 20, 30, 50)
    assert judged_analyses(LONG.interim_analyses, 50, 3) == (15, 20, 30, 50)
    assert {bounds.interim_analyses for bounds in plan.bounds} == {(15, 20, 30, 50)}
    bounds = plan.bounds[0]
    assert bounds.z == group_bounds(bounds.alpha, (15, 20, 30, 50), (5, 5))


def test_the_checked_launch_is_in_the_first_session() -> None:
    plan = planned(suite(protocol=LONG), criteria=limited(1.0, cases="gemm*"), sessions=3)
    assert {case.checked_launch for case in plan.cases if case.is_timed} <= {1, 2, 3, 4}


def test_expected_time_is_of_all_sessions_and_pauses_come_on_top() -> None:
    cases = (suite_case("gemm"),)
    one = planned(suite(*cases, protocol=PROTOCOL))
    three = planned(suite(*cases, protocol=PROTOCOL), sessions=3, pause_seconds=HOUR)
    per_session = PROTOCOL.interim_analyses[0] * cases[0].expected_seconds
    assert three.expected_seconds - one.expected_seconds == pytest.approx(2 * per_session)
    assert seconds_of_run(three) == pytest.approx(three.expected_seconds + 2 * HOUR)


def test_the_limit_of_a_suite_holds_for_each_session() -> None:
    one = planned(suite(suite_case("gemm"))).expected_seconds
    small = suite(suite_case("gemm"), limit=one)
    assert planned(small, sessions=3).sessions == 3
    with pytest.raises(UsageError, match="for 3 sessions"):
        planned(suite(suite_case("gemm"), limit=one / 2), sessions=3)


def test_a_challenge_must_cover_the_pauses() -> None:
    challenge = Challenge(
        nonce="5a" * 32,
        issued_utc="2026-11-21T12:00:00Z",
        not_after_utc="2026-11-21T20:00:00Z",
        criteria="",
        suite="",
        note="",
        buyer="",
    )
    begin = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    plan = planned(sessions=3, pause_seconds=4 * HOUR)
    output = challenge_window.too_long(challenge, begin, seconds_of_run(plan))
    assert output.startswith("the run takes about 288")
    shorter = planned(sessions=3, pause_seconds=3 * HOUR)
    assert challenge_window.too_long(challenge, begin, seconds_of_run(shorter)) == ""


# ------------------------------------------------------------------ from one to the next

END = "2026-11-21T12:00:00.000Z"


def ended(boot: str = "boot") -> SessionEnded:
    return SessionEnded(session=1, boot=boot, since_boot_ns=100_000 * SECOND)


def began(seconds: float, boot: str = "boot") -> SessionBegan:
    """So long after the boot, of which the other session's end was 100,000 s."""
    return SessionBegan(
        session=2,
        boot=boot,
        since_boot_ns=round(seconds * SECOND),
        identity="",
        dropped="",
        pid=1,
    )


@pytest.mark.parametrize(
    ("event", "utc", "pause", "output"),
    [
        (began(100_000 + 2 * HOUR), "2026-11-21T14:00:00.000Z", None, ""),
        (began(100_000 + 2 * HOUR), "2026-11-21T14:00:00.000Z", 2 * HOUR, ""),
        # A time service sets a clock by seconds.
        (began(100_000 + 2 * HOUR), "2026-11-21T13:59:30.000Z", 2 * HOUR, ""),
        # A clock set forward: the time since boot says how long the pause was.
        (began(100_000 + HOUR), "2026-11-21T16:00:00.000Z", 4 * HOUR, "3600 s after the end"),
        (began(100_000 + HOUR), "2026-11-21T11:59:59.000Z", None, "clock was set back by 1 s"),
        (began(100_000 + HOUR), "2026-11-21T12:30:00.000Z", None, "clock was set back by 1800 s"),
        (began(99_999), "2026-11-21T12:00:01.000Z", None, "before session 1 has ended"),
        # Another boot: it cannot be older than the pause.
        (began(60, "other"), "2026-11-21T12:10:00.000Z", None, ""),
        (began(HOUR, "other"), "2026-11-21T12:10:00.000Z", None, "clock was set back by 3000 s"),
        (began(60, "other"), "2026-11-21T12:10:00.000Z", HOUR, "600 s after the end"),
    ],
)
def test_a_session_begins_after_the_one_before_by_every_clock(
    event: SessionBegan, utc: str, pause: float | None, output: str
) -> None:
    reason = sessions.refusal(ended(), END, event, utc, pause)
    assert output in reason
    assert bool(output) == bool(reason)


def test_without_a_boot_id_the_clock_alone_is_asked() -> None:
    assert sessions.refusal(ended(""), END, began(0, ""), "2026-11-21T12:10:00.000Z", 600) == ""
    assert "set back" in sessions.refusal(
        ended(""), END, began(0, ""), "2026-11-21T11:59:59.000Z", None
    )
