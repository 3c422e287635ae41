"""When an attempt may begin and must have ended, and what its receipt does to the inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.attempts import a_receipt, challenge, counted
from support.builders import chain

from appliance.challenge import window
from appliance.challenge.entries import AttemptRequest
from appliance.errors import EvidenceError
from appliance.planning.criterion_scope import MOST_ATTEMPTS, alphas
from appliance.records.criteria import Criteria
from appliance.records.journal import Line

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RUN = counted()
LINES = chain(RUN.draft.events)
RECEIPT = a_receipt(utc="2026-11-21T12:00:00Z", not_after_utc="2026-11-21T18:00:00Z")
REQUEST = AttemptRequest(
    challenge="c" * 64,
    plan="1" * 64,
    run_id="20261121T120000Z-000001",
    created_utc="2026-11-21T12:00:00Z",
    seconds=600,
    criteria="a" * 64,
    suite="b" * 64,
)


def test_no_number_of_attempts_spends_more_than_the_risk_of_a_pass() -> None:
    criteria = Criteria(name="", version=1, summary="", criterion=())
    passing = [alphas(criteria, 40, attempt)[0] for attempt in range(1, MOST_ATTEMPTS + 1)]
    assert passing[:3] == [criteria.alpha_pass / part for part in (2, 6, 12)]
    assert sum(passing) < criteria.alpha_pass
    failing = {alphas(criteria, 40, attempt)[1] for attempt in range(MOST_ATTEMPTS + 1)}
    assert failing == {criteria.alpha_fail / 40}
    assert alphas(criteria, 40)[0] == criteria.alpha_pass


def test_inputs_are_of_the_receipt_and_of_the_plan() -> None:
    plan = RUN.draft.plan
    seed = window.inputs_seed(plan, LINES)
    other = window.inputs_seed(plan, chain(counted(2).draft.events))
    assert len({seed, other, plan.seed}) == 3
    assert window.inputs_seed(replace(plan, seed="00" * 32), LINES) != seed
    assert window.inputs_seed(plan, LINES[:1]) == plan.seed


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOON - 4 * MINUTE, ""),
        (NOON + 359 * MINUTE, ""),
        (NOON - 6 * MINUTE, "later than this node's clock"),
        (NOON + 361 * MINUTE, "attempt 1 ended at 2026-11-21T18:00:00Z and counts as failed"),
    ],
)
def test_run_begins_inside_the_window_alone(now: datetime, reason: str) -> None:
    refusal = window.start_refusal(RECEIPT, now)
    assert (refusal == "") if not reason else (reason in refusal)


@pytest.mark.parametrize(
    ("created", "changes", "reason"),
    [
        ("2026-11-21T12:00:00Z", {}, ""),
        ("2026-11-19T12:00:00Z", {}, "before the challenge was issued"),
        ("2026-11-21T12:06:00Z", {}, "later than this machine's clock"),
        ("2026-11-21T12:00:00Z", {"suite": "c" * 64}, "asks for the suite file"),
        ("2026-11-21T12:00:00Z", {"not_after_utc": "2026-11-21T11:00:00Z"}, "the challenge ended"),
    ],
)
def test_request_is_answered_for_what_the_buyer_asked(
    created: str, changes: dict[str, str], reason: str
) -> None:
    refusal = window.request_refusal(
        replace(REQUEST, created_utc=created), replace(challenge(), **changes), NOON
    )
    assert (refusal == "") if not reason else (reason in refusal)


def test_run_inside_its_window_is_sound() -> None:
    window.check(RUN.draft.plan, LINES, RECEIPT, challenge())


def later(lines: tuple[Line, ...], step: timedelta, first: int = 0) -> list[Line]:
    """The lines with the time of day moved from the first of these on."""
    return [
        replace(line, utc=(datetime.fromisoformat(line.utc) + step).isoformat())
        if number >= first
        else line
        for number, line in enumerate(lines)
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: later(lines, -6 * MINUTE), "line 2 is of .* outside the window"),
        (lambda lines: later(lines, 6 * 60 * MINUTE), "outside the window of attempt 1"),
        (lambda lines: later(lines, -6 * MINUTE, 20), "outside the window|clock was set"),
        (lambda lines: later(lines, 6 * MINUTE, 20), "line 21: the node's clock was set"),
        (
            lambda lines: [*later(lines[:20], 30 * MINUTE), *later(lines[20:], 20 * MINUTE)],
            "line 21: the node's clock was set .* back",
        ),
    ],
)
def test_run_outside_its_window_or_with_a_clock_that_was_set_is_not(
    change: Callable[[tuple[Line, ...]], list[Line]], sentence: str
) -> None:
    with pytest.raises(EvidenceError, match=sentence):
        window.check(RUN.draft.plan, change(LINES), RECEIPT, challenge())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"utc": "2026-11-21T11:54:00Z"}, "planned at 2026-11-21T12:00:00Z, after its receipt"),
        ({"utc": "2026-11-19T12:00:00Z"}, "not inside that of its challenge"),
        ({"not_after_utc": "2027-01-01T00:00:00Z"}, "not inside that of its challenge"),
        ({"not_after_utc": "2026-11-21T11:00:00Z"}, "not inside that of its challenge"),
    ],
)
def test_receipt_lies_between_the_plan_and_the_challenge_s_end(
    changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(EvidenceError, match=sentence):
        window.check(RUN.draft.plan, LINES, replace(RECEIPT, **changes), challenge())
