"""Verify says which attempt at its challenge a run is, and finds a receipt that is not for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.attempts import (
    OVER,
    a_receipt,
    a_return,
    bound,
    buyer,
    chained,
    challenge,
    counted,
    opened,
)
from support.bundles import Draft, files_of, healthy, sealed
from support.known_facts import facts_of

from appliance.challenge import ledger
from appliance.errors import EvidenceError
from appliance.records.journal import AttemptBegun, Event
from appliance.records.json import sha256, to_json
from appliance.signing import keys
from appliance.storage import bundle
from appliance.verification import attempt_checks
from appliance.verification.terms import Expectations, Terms
from appliance.verification.verify import Verification, verify

IN_TIME = datetime(2026, 11, 21, 13, tzinfo=UTC)
TOO_LATE = datetime(2026, 11, 21, 19, tzinfo=UTC)


@pytest.fixture(scope="module")
def key() -> keys.Key:
    return keys.development_key()


def checked(folder: Path, **expected: bytes) -> Verification:
    facts = facts_of(healthy().plan)
    wanted = Expectations(**expected)
    return verify(folder, Terms(allow_development=True, expectations=wanted, facts=facts))


def sentence(result: Verification, name: str) -> str:
    (line,) = (check for check in result.checks if check.name == name)
    return line.sentence


def test_run_under_no_receipt_is_of_an_unknown_number_of_attempts(
    key: keys.Key, tmp_path: Path
) -> None:
    result = checked(sealed(tmp_path, healthy(), key))
    assert (result.exit_code, result.attempt) == (0, None)
    assert "the number of attempts is unknown" in sentence(result, "attempt")
    result = checked(tmp_path, ledger=counted().ledger)
    assert (result.exit_code, result.verdict) == (4, None)


def test_folder_and_pdf_say_which_attempt_they_are(key: keys.Key, tmp_path: Path) -> None:
    folder = sealed(tmp_path, counted(3).draft, key)
    for path in (folder, folder / bundle.PDF):
        result = checked(path, challenge=to_json(challenge()))
        assert (result.faults, result.verdict, result.attempt) == ((), "ACCEPTED", 3)
        assert "attempt 3 of its challenge" in sentence(result, "attempt")
        assert "not compared with the buyer's ledger" in sentence(result, "attempt")


def without_event(draft: Draft) -> Draft:
    return draft.with_events(lambda events: [one for one in events if not is_begin(one)])


def is_begin(event: Event) -> bool:
    return isinstance(event, AttemptBegun)


def after_the_first_launch(draft: Draft) -> Draft:
    def moved(events: list[Event]) -> list[Event]:
        (begin,) = filter(is_begin, events)
        rest = [event for event in events if not is_begin(event)]
        return [*rest[:-1], begin, rest[-1]]

    return draft.with_events(moved)


def of_another_run(draft: Draft) -> Draft:
    return bound(without_event(draft), ledger.write(a_receipt(1), buyer()))


def of_another_buyer(draft: Draft) -> Draft:
    own = ledger.read_receipt(draft.others[bundle.RECEIPT], buyer().certificate, "it")
    envelope = ledger.write(own, keys.development_key())
    return with_event(draft, receipt=sha256(envelope), envelope=envelope)


def with_event(draft: Draft, *, envelope: bytes | None = None, **changes: object) -> Draft:
    """The draft with something else in its journal, and perhaps another file beside it."""
    others = draft.others if envelope is None else {**draft.others, bundle.RECEIPT: envelope}
    return replace(draft, others=others).with_events(
        lambda events: [replace(one, **changes) if is_begin(one) else one for one in events]
    )


def without_file(draft: Draft) -> Draft:
    others = {name: data for name, data in draft.others.items() if name != bundle.RECEIPT}
    return replace(draft, others=others)


@pytest.mark.parametrize(
    ("spoil", "check", "fault"),
    [
        (without_event, "conduct", "before the receipt of its attempt is bound"),
        (after_the_first_launch, "conduct", "before the receipt of its attempt is bound"),
        (lambda draft: with_event(draft, attempt=11), "conduct", "attempt 11 is begun"),
        (lambda draft: with_event(draft, nonce="0"), "conduct", "for which the plan has no bounds"),
        (lambda draft: with_event(draft, attempt=2), "attempt", "by another receipt"),
        (lambda draft: with_event(draft, receipt="0" * 64), "attempt", "by another receipt"),
        (without_file, "attempt", "receipt.dsse.json is missing"),
        (of_another_run, "attempt", "is for the run 20261121T120000Z-000001, not for this plan"),
        (of_another_buyer, "attempt", "another key than the one of the buyer"),
    ],
)
def test_receipt_that_is_not_for_this_run_is_a_fault(
    spoil: Callable[[Draft], Draft], check: str, fault: str, key: keys.Key, tmp_path: Path
) -> None:
    result = checked(sealed(tmp_path, spoil(counted().draft), key))
    assert (result.exit_code, result.verdict, result.attempt) == (4, None, None)
    assert fault in sentence(result, check)


def test_plan_that_counts_otherwise_than_its_challenge_is_a_fault(
    key: keys.Key, tmp_path: Path
) -> None:
    draft = counted().draft
    uncounted = replace(draft, plan=replace(draft.plan, num_attempts=0))
    result = checked(sealed(tmp_path, without_event(uncounted), key))
    assert result.exit_code == 4
    assert "counts its attempts otherwise" in sentence(result, "conduct")


# ------------------------------------------------------------------ the ledger


def ledger_says(book: bytes, moment: datetime, attempt: int = 2) -> str:
    run = counted(attempt)
    files = files_of(run.draft, buyer())
    receipt = attempt_checks.check_receipt(run.draft.plan, bundle.lines_of(files), files)
    assert receipt is not None
    return attempt_checks.check_ledger(receipt, book, files, moment)


def test_ledger_says_how_many_there_are() -> None:
    book = counted(2).ledger
    assert "2 begun, 0 returned; this one not yet returned" in ledger_says(book, IN_TIME)


def returned(journal: str) -> bytes:
    """The ledger of the second attempt with one more entry: that it came back with this journal."""
    book = counted(2).ledger
    back = replace(a_return(2, OVER, journal), prev=sha256(book.split(b"\n")[-2]))
    return book + ledger.write(back, buyer()) + b"\n"


def test_attempt_that_came_back_holds_for_ever() -> None:
    book = returned(sha256(files_of(counted(2).draft, buyer())[bundle.JOURNAL]))
    assert f"1 returned; this one returned {OVER}" in ledger_says(book, TOO_LATE)


@pytest.mark.parametrize(
    ("book", "moment", "fault"),
    [
        (returned("7" * 64), IN_TIME, "came back with another journal: a receipt was reused"),
        (counted(2).ledger, TOO_LATE, "never came back by 2026-11-21T18:00:00Z, so it counts as"),
        (counted(1).ledger, IN_TIME, "does not have the receipt of attempt 2"),
        (chained([opened(), a_receipt(1), a_receipt(2)]), IN_TIME, "does not have the receipt"),
        (counted(2).ledger.replace(b"\n", b"", 1), IN_TIME, "not a signed envelope"),
    ],
)
def test_ledger_that_does_not_bear_the_attempt_out_is_a_fault(
    book: bytes, moment: datetime, fault: str
) -> None:
    with pytest.raises(EvidenceError, match=fault):
        ledger_says(book, moment)
