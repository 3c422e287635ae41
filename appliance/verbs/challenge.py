"""The buyer's verbs on a challenge: `create` draws it, `begin` answers a plan, `close` takes back.

He draws the nonce after suite and criteria are settled, keeps the file, and sends it to whoever
runs the node. `accept --challenge` derives every seed from it; `verify --challenge` holds a bundle
to it. With his key he also opens a ledger beside it, and no run begins without a receipt of that
key; a challenge without one fixes the inputs alone, and must be asked for by name.

`begin` and `close` each write one signed entry to the ledger, and `ledger` shows all of them.
Nothing is written for what is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.serialization import Encoding

from appliance.challenge import ledger, short_form, window
from appliance.challenge.book import Book, ledger_path, opened, write
from appliance.challenge.entries import AttemptRequest, Opened, Receipt, Returned
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.ipc import confined_reader
from appliance.planning.challenge_window import utc_words
from appliance.planning.criterion_scope import MOST_ATTEMPTS
from appliance.records.json import Record, from_json, sha256, to_json
from appliance.records.order import Challenge
from appliance.records.verdict import VerdictWord
from appliance.signing.keys import Key
from appliance.storage import criteria_file, input_file, suite_file
from appliance.verification import verify
from appliance.verification.terms import Expectations, Terms
from appliance.verification.verify import Verification

LONGEST_DAYS = 366
LONGEST_HOURS = 24 * LONGEST_DAYS
State = Literal["under way", "failed", "returned"]


@dataclass(frozen=True, kw_only=True)
class Begun:
    """An attempt that may now be made: its receipt, where that lies, and its short form."""

    receipt: Receipt
    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow(Record):
    """One attempt as the ledger has it; `verdict` is None until its bundle came back.

    One that did not come back in its window has failed.
    """

    attempt: int
    run_id: str
    begun_utc: str
    not_after_utc: str
    state: State
    verdict: VerdictWord | None
    returned_utc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTable(Record):
    """All attempts of a challenge, numbered from 1 without a gap."""

    schema: Literal["bench/ledger/1"] = "bench/ledger/1"
    challenge: str
    buyer: str
    not_after_utc: str
    most_attempts: int
    attempts: tuple[AttemptRow, ...]


# ------------------------------------------------------------------ drawing


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a buyer asks for: names or paths of criteria and suite, or None to leave them open.

    `key` is his, which will sign the receipts of attempts; None counts none.
    """

    out: Path
    days: float = 14.0
    criteria: str | None = None
    suite: str | None = None
    note: str = ""
    key: Key | None = None


def issue(request: Request) -> Challenge:
    """Draw a challenge, write it and open its ledger; UsageError for a span that is none.

    OutputError where the file is there already or cannot be written: a nonce is used once.
    """
    if not 0 < request.days <= LONGEST_DAYS:
        raise UsageError(f"--days is {request.days:g}: give more than 0 and at most {LONGEST_DAYS}")
    criteria = (
        "" if request.criteria is None else sha256(criteria_file.load_criteria(request.criteria)[1])
    )
    suite = "" if request.suite is None else sha256(suite_file.load_suite(request.suite)[1])
    now = datetime.now(UTC).replace(microsecond=0)
    challenge = Challenge(
        nonce=secrets.token_hex(32),
        issued_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        not_after_utc=f"{now + timedelta(days=request.days):%Y-%m-%dT%H:%M:%SZ}",
        criteria=criteria,
        suite=suite,
        note=request.note,
        buyer="" if request.key is None else _pem(request.key),
    )
    content = to_json(challenge)
    if request.key is not None:
        first = Opened(challenge=sha256(content), utc=challenge.issued_utc)
        _write_new(ledger_path(request.out), ledger.write(first, request.key) + b"\n")
    _write_new(request.out, content)
    return challenge


def _pem(key: Key) -> str:
    return key.certificate.public_bytes(Encoding.PEM).decode()


def _write_new(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        message = f"{path} is there already: a nonce is used once, so name another with --out"
        raise OutputError(message) from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None


# ------------------------------------------------------------------ attempts


def begin(challenge: Path, request: Path, key: Key, *, hours: float, out: Path | None) -> Begun:
    """Count an attempt at a challenge and sign its receipt, whose window is so many hours.

    Raises UsageError for a window that is none, another key than the challenge's, a clock that is
    wrong, or an attempt too many; EvidenceError for a request of another challenge, a plan that has
    its receipt, or a ledger that is not whole.
    """
    if not 0 < hours <= LONGEST_HOURS:
        raise UsageError(f"--hours is {hours:g}: give more than 0 and at most {LONGEST_HOURS}")
    with opened(challenge) as book:
        book.check_key(key)
        wanted = _request(request)
        if wanted.challenge != book.digest:
            raise EvidenceError(f"{request} is of a run under another challenge than {challenge}")
        now = book.now()
        if reason := window.request_refusal(wanted, book.challenge, now):
            raise UsageError(reason)
        receipt = _receipt(book, wanted, now, hours)
        path = out or challenge.with_name(f"{challenge.stem}.receipt-{receipt.attempt}.json")
        if path.exists():
            raise OutputError(f"{path} is there already: name another with --out")
        envelope = ledger.write(receipt, key)
        book.append(envelope)
    write(path, envelope)
    return Begun(receipt=receipt, path=path, text=short_form.write_receipt(receipt, envelope))


def close(
    challenge: Path, bundle: Path, key: Key, *, trusted: Sequence[bytes], allow_development: bool
) -> Returned:
    """Verify the bundle of an attempt and note that it came back, with its verdict.

    Raises EvidenceError for a bundle that is not sound, of no attempt of this ledger, too late or
    back already.
    """
    with opened(challenge) as book:
        book.check_key(key)
        now = book.now()
        verification = verify.verify_confined(
            bundle,
            Terms(
                trusted=trusted,
                allow_development=allow_development,
                expectations=Expectations(challenge=book.content, ledger=book.data),
                moment=now,
            ),
        )
        number, journal, verdict = _sound(bundle, verification)
        if number in book.ledger.returned:
            raise EvidenceError(f"attempt {number} is back already, in this very bundle")
        returned = Returned(
            challenge=book.digest,
            journal=journal,
            attempt=number,
            verdict=verdict,
            utc=utc_words(now),
            prev=book.ledger.head,
        )
        book.append(ledger.write(returned, key))
    return returned


def table(challenge: Path, moment: datetime | None = None) -> LedgerTable:
    """All attempts of a challenge at a moment (default: now); EvidenceError unless it is whole."""
    with opened(challenge) as book:
        return LedgerTable(
            challenge=book.digest,
            buyer=book.buyer.subject.rfc4514_string(),
            not_after_utc=book.challenge.not_after_utc,
            most_attempts=MOST_ATTEMPTS,
            attempts=tuple(
                _row(receipt, book.ledger.returned.get(number), moment or datetime.now(UTC))
                for number, receipt in book.ledger.receipts.items()
            ),
        )


# ------------------------------------------------------------------ their parts


def _request(path: Path) -> AttemptRequest:
    data = input_file.read(path, fix="name the node's request")
    return confined_reader.record(
        AttemptRequest, str(path), lambda: _request_in(data, path), death=EvidenceError
    )


def _request_in(data: bytes, path: Path) -> AttemptRequest:
    if short_form.is_short(data, short_form.REQUEST):
        return short_form.read_request(data)
    try:
        return from_json(AttemptRequest, data.removesuffix(b"\n"), name=str(path))
    except EvidenceError as fault:
        raise EvidenceError(
            f"{fault}; name the RUN.request.json of the node, or a file with its line"
        ) from None


def _receipt(book: Book, wanted: AttemptRequest, now: datetime, hours: float) -> Receipt:
    """The next receipt; its window ends with the challenge's at the latest."""
    for other in book.ledger.receipts.values():
        if other.plan == wanted.plan:
            raise EvidenceError(
                f"the run {wanted.run_id} has its receipt, as attempt {other.attempt}: a plan is "
                "begun once, so plan a new run"
            )
    number = len(book.ledger.receipts) + 1
    if number > MOST_ATTEMPTS:
        raise UsageError(
            f"all {MOST_ATTEMPTS} attempts of {book.path} are begun: draw a new challenge"
        )
    end = min(now + timedelta(hours=hours), window.moment_of(book.challenge.not_after_utc))
    if end < now + timedelta(seconds=wanted.seconds):
        raise UsageError(
            f"the run is expected to take {wanted.seconds / 3600:.2g} h with its pauses, and its "
            f"window would end at {utc_words(end)}: give more --hours, or draw a longer challenge"
        )
    return Receipt(
        challenge=book.digest,
        plan=wanted.plan,
        run_id=wanted.run_id,
        attempt=number,
        nonce=secrets.token_hex(32),
        utc=utc_words(now),
        not_after_utc=utc_words(end),
        prev=book.ledger.head,
    )


def _sound(path: Path, verification: Verification) -> tuple[int, str, VerdictWord]:
    """Attempt, journal and verdict of a bundle that verifies; EvidenceError for any other."""
    for fault in verification.faults:
        raise EvidenceError(f"{path} is not noted: {fault}")
    if verification.attempt is None or verification.journal is None or verification.verdict is None:
        raise EvidenceError(f"{path} is not noted: its verdict is not derived; name the folder")
    return verification.attempt, verification.journal, verification.verdict


def _row(receipt: Receipt, back: Returned | None, now: datetime) -> AttemptRow:
    is_over = now > window.moment_of(receipt.not_after_utc)
    waiting: State = "failed" if is_over else "under way"
    return AttemptRow(
        attempt=receipt.attempt,
        run_id=receipt.run_id,
        begun_utc=receipt.utc,
        not_after_utc=receipt.not_after_utc,
        state=waiting if back is None else "returned",
        verdict=None if back is None else back.verdict,
        returned_utc=None if back is None else back.utc,
    )
