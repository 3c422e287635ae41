"""A request and a receipt in one line of capitals and digits: for a QR code, a scanner or hands.

Nodes are air-gapped, so a camera may be the courier. Whoever reads the line holds the challenge,
and the node its plan, so neither file travels again: a receipt is its few free fields and the
buyer's signature, from which the very envelope is put together that he signed. The first bytes of
the plan's digest and a checksum tell a receipt for another plan from a mistyped one; what proves is
the signature.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509

from appliance.challenge import ledger
from appliance.challenge.entries import AttemptRequest, Receipt
from appliance.errors import EvidenceError
from appliance.planning.challenge_window import utc_words
from appliance.records.json import sha256
from appliance.signing import dsse

REQUEST, RECEIPT = "BENCHQ1:", "BENCHR1:"
"""How the two begin. All of it is in the alphanumeric characters of a QR code."""
CHECKSUM = PREFIX = 4  # bytes
LONGEST = 4096  # characters


def is_short(data: bytes, kind: str) -> bool:
    """Whether this is a short form of the kind REQUEST or RECEIPT."""
    return data[:LONGEST].lstrip().upper().startswith(kind.encode())


# ------------------------------------------------------------------ requests


def write_request(request: AttemptRequest) -> str:
    """The request in its short form."""
    digests = (request.challenge, request.plan, request.criteria, request.suite)
    return _written(
        REQUEST,
        b"".join(map(bytes.fromhex, digests))
        + _seconds(request.created_utc).to_bytes(5, "big")
        + bytes.fromhex(request.run_id.rpartition("-")[2])
        + request.seconds.to_bytes(4, "big"),
    )


def read_request(text: bytes) -> AttemptRequest:
    """The request of a short form; EvidenceError for what is none."""
    part = _Parts(_content(text, REQUEST, "the request"))
    challenge, plan, criteria, suite = (part.take(32).hex() for _ in range(4))
    created = _moment(int.from_bytes(part.take(5), "big"))
    suffix = part.take(3).hex()
    seconds = int.from_bytes(part.take(4), "big")
    if part.rest or created is None:
        raise EvidenceError("the request is no short form of one")
    return AttemptRequest(
        challenge=challenge,
        plan=plan,
        run_id=f"{created:%Y%m%dT%H%M%SZ}-{suffix}",
        created_utc=utc_words(created),
        seconds=seconds,
        criteria=criteria,
        suite=suite,
    )


# ------------------------------------------------------------------ receipts


def write_receipt(receipt: Receipt, envelope: bytes) -> str:
    """The receipt, of which this is the envelope, in its short form."""
    begin, end = _seconds(receipt.utc), _seconds(receipt.not_after_utc)
    return _written(
        RECEIPT,
        bytes.fromhex(receipt.plan)[:PREFIX]
        + bytes([receipt.attempt])
        + begin.to_bytes(5, "big")
        + (end - begin).to_bytes(4, "big")
        + bytes.fromhex(receipt.prev)
        + bytes.fromhex(receipt.nonce)
        + dsse.signature_of(envelope),
    )


def read_receipt(
    text: bytes, *, challenge: str, plan: str, run_id: str, buyer: x509.Certificate
) -> bytes:
    """The envelope of a receipt for this plan from its short form; its signature is not checked.

    `challenge` and `plan` are the sha256 of the node's files. EvidenceError for what is no receipt,
    or one for another plan.
    """
    part = _Parts(_content(text, RECEIPT, "the receipt"))
    if part.take(PREFIX) != bytes.fromhex(plan)[:PREFIX]:
        raise EvidenceError(f"the receipt is for another plan than that of the run {run_id}")
    attempt = part.take(1)[0]
    begin = int.from_bytes(part.take(5), "big")
    end = begin + int.from_bytes(part.take(4), "big")
    moments = _moment(begin), _moment(end)
    prev, nonce = part.take(32).hex(), part.take(32).hex()
    if moments[0] is None or moments[1] is None:
        raise EvidenceError("the receipt is no short form of one")
    receipt = Receipt(
        challenge=challenge,
        plan=plan,
        run_id=run_id,
        attempt=attempt,
        nonce=nonce,
        utc=utc_words(moments[0]),
        not_after_utc=utc_words(moments[1]),
        prev=prev,
    )
    return dsse.assembled(ledger.statement(receipt), buyer, part.rest)


# ------------------------------------------------------------------ text and bytes


def _seconds(utc: str) -> int:
    return int(datetime.fromisoformat(utc).timestamp())


def _moment(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


@dataclass
class _Parts:
    """Bytes that are taken from the front."""

    rest: bytes

    def take(self, count: int) -> bytes:
        if len(self.rest) < count:
            raise EvidenceError("the short form is cut short: scan or type it again")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken


def _written(kind: str, content: bytes) -> str:
    whole = content + bytes.fromhex(sha256(kind.encode() + content))[:CHECKSUM]
    return kind + base64.b32encode(whole).decode().rstrip("=")


def _content(text: bytes, kind: str, name: str) -> bytes:
    """What a short form says, whatever spaces, line ends or small letters it was typed with."""
    letters = re.sub(rb"\s", b"", text[:LONGEST]).upper().removeprefix(kind.encode())
    try:
        whole = base64.b32decode(letters + b"=" * (-len(letters) % 8))
    except binascii.Error:
        raise EvidenceError(f"{name} is mistyped: scan or type it again") from None
    content = whole[:-CHECKSUM]
    # Written again rather than compared in bytes: the last letter has bits that no byte holds.
    if _written(kind, content) != kind + letters.decode():
        raise EvidenceError(f"{name} is mistyped: scan or type it again")
    return content
