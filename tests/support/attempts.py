"""Challenges whose attempts are counted, with ledgers and receipts as a buyer writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from support.builders import healthy_events
from support.bundles import Draft, analysed, as_drawn, healthy

from appliance.challenge import ledger
from appliance.challenge.entries import AttemptRequest, Entry, Opened, Receipt, Returned
from appliance.planning import challenge_window
from appliance.planning.criterion_scope import MOST_ATTEMPTS
from appliance.records.journal import AttemptBegun
from appliance.records.json import sha256, to_json
from appliance.records.order import Challenge
from appliance.signing import keys
from appliance.storage import bundle

ISSUED, BEGUN, OVER = "2026-11-20T00:00:00Z", "2026-11-21T12:00:00Z", "2026-11-21T18:00:00Z"


@cache
def buyer() -> keys.Key:
    return keys.development_key()


@cache
def challenge() -> Challenge:
    return Challenge(
        nonce="5a" * 32,
        issued_utc=ISSUED,
        not_after_utc="2026-12-20T00:00:00Z",
        criteria="",
        suite="",
        note="order 4711",
        buyer=buyer().certificate.public_bytes(Encoding.PEM).decode(),
    )


def digest() -> str:
    return sha256(to_json(challenge()))


def a_receipt(attempt: int = 1, *, prev: str = "0" * 64, **changes: str) -> Receipt:
    """Receipt of an attempt, each for a plan and with a nonce of its own."""
    fixed = {
        "challenge": digest(),
        "plan": f"{attempt:064x}",
        "run_id": f"20261121T120000Z-{attempt:06x}",
        "nonce": f"{attempt + 100:064x}",
        "utc": BEGUN,
        "not_after_utc": OVER,
        "prev": prev,
    }
    return Receipt(attempt=attempt, **{**fixed, **changes})


def opened() -> Opened:
    return Opened(challenge=digest(), utc=ISSUED)


def a_return(attempt: int, utc: str = BEGUN, journal: str = "7" * 64) -> Returned:
    return Returned(
        challenge=digest(), journal=journal, attempt=attempt, verdict="ACCEPTED", utc=utc, prev=""
    )


def chained(entries: Sequence[Entry], key: keys.Key | None = None) -> bytes:
    """These entries as a ledger, each naming the one before it."""
    lines: list[bytes] = []
    for entry in entries:
        follows = isinstance(entry, Receipt | Returned)
        after = replace(entry, prev=sha256(lines[-1])) if lines and follows else entry
        lines.append(ledger.write(after, key or buyer()))
    return b"".join(line + b"\n" for line in lines)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A run under a challenge: its draft with the receipt bound, and the buyer's ledger."""

    draft: Draft
    ledger: bytes


@cache
def counted(attempt: int = 1) -> Counted:
    """A healthy run that was made as this attempt."""
    draft = healthy()
    digests = {**draft.plan.digests, "challenge": digest()}
    seed = challenge_window.run_seed(challenge())
    plan = as_drawn(replace(draft.plan, seed=seed, digests=digests, num_attempts=MOST_ATTEMPTS))
    others = [a_receipt(number) for number in range(1, attempt)]
    own = a_receipt(attempt, plan=sha256(to_json(plan)), run_id=plan.run_id)
    book = chained([opened(), *others, own])
    events = tuple(analysed(plan, healthy_events(plan)))
    made = replace(draft, plan=plan, events=events)
    return Counted(draft=bound(made, book.split(b"\n")[-2]), ledger=book)


def bound(draft: Draft, envelope: bytes) -> Draft:
    """The draft with this receipt in its bundle and its journal."""
    receipt = ledger.read_receipt(envelope, buyer().certificate, "the receipt")
    event = AttemptBegun(attempt=receipt.attempt, receipt=sha256(envelope), nonce=receipt.nonce)
    others = {bundle.CHALLENGE: to_json(challenge()), bundle.RECEIPT: envelope}
    first, *rest = draft.events
    return replace(draft, events=(first, event, *rest), others={**draft.others, **others})


def a_request(folder: Path, challenge_digest: str, utc: str, number: int = 1) -> Path:
    """A node's request on disk, planned at `utc`, under the challenge with this sha256."""
    moment = utc.translate(str.maketrans("", "", "-:"))
    request = AttemptRequest(
        challenge=challenge_digest,
        plan=f"{number:064x}",
        run_id=f"{moment}-{number:06x}",
        created_utc=utc,
        seconds=600,
        criteria="a" * 64,
        suite="b" * 64,
    )
    path = folder / f"{number}.request.json"
    path.write_bytes(to_json(request))
    return path
