"""A run of several sessions: what verify holds of their ends, begins and clocks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import launch_events, session_change
from support.bundles import CASE, Draft, analysed, healthy, sealed

from appliance.records.journal import (
    Event,
    LaunchStarted,
    RunEnded,
    SessionBegan,
    SessionEnded,
)
from appliance.records.json import from_json
from appliance.records.verdict import Verdict
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification, verify

Change = Callable[[list[Event]], list[Event]]


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


def checked(draft: Draft, key: Key, folder: Path) -> Verification:
    return verify(sealed(folder, draft, key), Terms(allow_development=True))


def test_three_sessions_verify_and_their_ends_are_no_interruptions(
    key: Key, tmp_path: Path
) -> None:
    draft = healthy(repeats=3, sessions=3)
    assert sum(isinstance(event, SessionEnded) for event in draft.events) == 2
    verification = checked(draft, key, tmp_path)
    assert verification.faults == ()
    assert (verification.exit_code, verification.verdict) == (0, "ACCEPTED")
    verdict = from_json(Verdict, (tmp_path / "verdict.json").read_bytes(), name="verdict.json")
    assert verdict.num_interruptions == 0


def test_an_untimed_launch_is_made_again_where_a_session_lost_its_files(
    key: Key, tmp_path: Path
) -> None:
    draft = healthy(sessions=2).with_events(made_again)
    again = [one for one in draft.events if isinstance(one, LaunchStarted)]
    assert [one.launch for one in again].count(f"{CASE}/0") == 2
    verification = checked(draft, key, tmp_path)
    assert (verification.faults, verification.verdict) == ((), "ACCEPTED")


def made_again(events: list[Event]) -> list[Event]:
    plan = healthy(sessions=2).plan
    at = place(events, SessionBegan) + 2
    (launch,) = (one for one in plan.launches if one.id == f"{CASE}/0")
    (case,) = (one for one in plan.cases if one.id == CASE)
    return [*events[:at], *launch_events(plan, case, launch), *events[at:]]


# ------------------------------------------------------------------ what does not verify


def place(events: list[Event], kind: type) -> int:
    return next(number for number, event in enumerate(events) if isinstance(event, kind))


def without(kind: type) -> Change:
    return lambda events: [event for event in events if not isinstance(event, kind)]


def with_began(**fields: object) -> Change:
    return lambda events: [
        replace(event, **fields) if isinstance(event, SessionBegan) else event  # type: ignore[arg-type]
        for event in events
    ]


def ended_early(events: list[Event]) -> list[Event]:
    """The session's end before its last launch."""
    at = place(events, SessionEnded)
    change, rest = events[at : at + 3], [*events[:at], *events[at + 3 :]]
    last = max(number for number, one in enumerate(rest[:at]) if isinstance(one, LaunchStarted))
    return [*rest[:last], *change, *rest[last:]]


def ended_late(events: list[Event]) -> list[Event]:
    """The session's end after the first launch of the next one."""
    at = place(events, SessionEnded)
    change, rest = events[at : at + 3], [*events[:at], *events[at + 3 :]]
    starts = [number for number, one in enumerate(rest) if isinstance(one, LaunchStarted)]
    second = next(number for number in starts if number > at)
    return [*rest[:second], *change, *rest[second:]]


def a_third(events: list[Event]) -> list[Event]:
    """One more session than planned."""
    identity = healthy().plan.digests["identity"]
    return [*events[:-1], *session_change(2, identity), events[-1]]


def ended_before_the_last(events: list[Event]) -> list[Event]:
    at = place(events, SessionEnded)
    return [*events[:at], *(event for event in events if isinstance(event, RunEnded))]


def made_again_late(events: list[Event]) -> list[Event]:
    """The untimed launch once more, after a launch of the session."""
    plan = healthy(sessions=2).plan
    (launch,) = (one for one in plan.launches if one.id == f"{CASE}/0")
    (case,) = (one for one in plan.cases if one.id == CASE)
    return [*events[:-1], *launch_events(plan, case, launch), events[-1]]


SPOILED: dict[str, tuple[Change, str]] = {
    "ended early": (ended_early, "is not accounted for"),
    "ended late": (ended_late, "is made in session 1"),
    "no end": (without(SessionEnded), "session 2 begins, which the plan does not say here"),
    "no begin": (without(SessionBegan), "something was recorded between two sessions"),
    "one more": (a_third, "session 2 ends, which the plan does not say here"),
    "one less": (ended_before_the_last, "the run ends in session 1 of 2"),
    "another number": (with_began(session=3), "session 3 begins"),
    "another machine": (with_began(identity="0" * 64), "begins on another machine than the run"),
    "clock set back": (
        with_began(since_boot_ns=10**12 + 7200 * 10**9),
        "the clock was set back by 7",
    ),
    "sessions that overlap": (
        with_began(since_boot_ns=10**12 - 1),
        "session 2 begins before session 1 has ended",
    ),
    "untimed launch redrawn": (made_again_late, "is made a second time, and no result is redrawn"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_no_run_of_sessions_does_is_refused(name: str, key: Key, tmp_path: Path) -> None:
    change, output = SPOILED[name]
    draft = healthy(sessions=2).with_events(change)
    draft = replace(draft, events=tuple(analysed(draft.plan, draft.events)))
    verification = checked(draft, key, tmp_path)
    assert (verification.exit_code, verification.verdict) == (4, None)
    assert any(output in fault for fault in verification.faults), verification.faults


def test_a_pause_shorter_than_planned_is_refused(key: Key, tmp_path: Path) -> None:
    draft = healthy(sessions=2)
    draft = replace(draft, plan=replace(draft.plan, pause_seconds=60.0))
    verification = checked(draft, key, tmp_path)
    assert verification.exit_code == 4
    assert any("and the plan has 60 s between them" in one for one in verification.faults)
