"""The buyer's ledger of a challenge: every attempt that was begun, and what came back of it.

One entry a line, each a DSSE envelope signed with the buyer's key, each naming the sha256 of the
entry before; the first names the challenge. A receipt is such an entry, so who holds one can show
that an earlier attempt was left out of the ledger. What a chain cannot show is that its end was cut
off: there a receipt that the ledger lacks does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from cryptography import x509

from appliance.challenge.entries import Entry, Opened, Receipt, Returned
from appliance.errors import EvidenceError
from appliance.records.json import sha256
from appliance.records.order import Challenge
from appliance.signing import certificates, dsse
from appliance.signing.dsse import SigningKey, Statement

ENTRY = "bench:challenge-entry/v1"
NAME = "the ledger"
RESTORE = "restore it from the copy that was kept of it"
KINDS: Mapping[str, type[Entry]] = {"opened": Opened, "begun": Receipt, "returned": Returned}
FILES = {"challenge": "challenge.json", "plan": "plan.json", "journal": "journal.jsonl"}
"""Fields of an entry that are digests of files, which are the statement's subjects."""
_TIME = r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ"
FORMS = {
    "attempt": "[1-9]|10",
    "run_id": r"\d{8}T\d{6}Z-[0-9a-f]{6}",
    "nonce": "[0-9a-f]{64}",
    "prev": "[0-9a-f]{64}",
    "utc": _TIME,
    "not_after_utc": _TIME,
    "verdict": "ACCEPTED|REJECTED|INCONCLUSIVE",
}
"""The one form of each other field."""


def buyer_of(challenge: Challenge) -> x509.Certificate:
    """Whose key signs the receipts of a counted challenge; EvidenceError if that cannot be."""
    certificate = certificates.load(
        challenge.buyer.encode(),
        EvidenceError("challenge.json: its buyer is no certificate in PEM form"),
    )
    if not dsse.is_supported(certificate):
        raise EvidenceError("challenge.json: the buyer's key is neither P-256 nor RSA of 3072 bits")
    return certificate


# ------------------------------------------------------------------ one entry


def statement(entry: Entry) -> Statement:
    """What is signed of an entry."""
    values: dict[str, Any] = asdict(entry)
    subjects = {file: values.pop(name) for name, file in FILES.items() if name in values}
    (kind,) = (word for word, one in KINDS.items() if isinstance(entry, one))
    predicate = {"entry": kind, **{name: str(value) for name, value in values.items()}}
    return Statement(predicate_type=ENTRY, subjects=subjects, predicate=predicate)


def write(entry: Entry, key: SigningKey) -> bytes:
    """The entry in its envelope: a line of the ledger, or the file of a receipt."""
    return dsse.sign_statement(statement(entry), key)


def read(data: bytes, buyer: x509.Certificate, name: str) -> Entry:
    """The entry in an envelope called `name`; EvidenceError unless the buyer signed it."""
    holder = "the one of the buyer in challenge.json"
    signed = dsse.open_statement(data, buyer, ENTRY, name, holder=holder)
    words = dict(signed.predicate)
    kind = KINDS.get(words.pop("entry", ""))
    names = {file: field for field, file in FILES.items()}
    values: dict[str, Any] = {
        **words,
        **{names.get(file, file): digest for file, digest in signed.subjects.items()},
    }
    is_whole = kind is not None and values.keys() == {one.name for one in fields(kind)}
    if kind is None or not is_whole or not all(_is_formed(*item) for item in words.items()):
        raise EvidenceError(f"{name} is no entry of a challenge's ledger")
    if "attempt" in values:
        values["attempt"] = int(values["attempt"])
    return kind(**values)


def _is_formed(name: str, value: str) -> bool:
    return name in FORMS and re.fullmatch(FORMS[name], value, re.ASCII) is not None


def read_receipt(data: bytes, buyer: x509.Certificate, name: str) -> Receipt:
    """The receipt in a file called `name`; EvidenceError for anything else."""
    entry = read(data.removesuffix(b"\n"), buyer, name)
    if not isinstance(entry, Receipt):
        raise EvidenceError(f"{name} is an entry of the ledger, and no receipt")
    return entry


# ------------------------------------------------------------------ the chain


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """A ledger whose chain is whole; `receipts` and `returned` are by the attempt's number.

    `envelopes` has the bytes of each receipt, `head` is the sha256 of the last entry and `utc` its
    time.
    """

    receipts: Mapping[int, Receipt]
    returned: Mapping[int, Returned]
    envelopes: Mapping[int, bytes]
    head: str
    utc: str


def read_ledger(data: bytes, buyer: x509.Certificate, challenge: str) -> Ledger:
    """The ledger of the challenge with this sha256; EvidenceError at its first fault."""
    try:
        return _whole(data, buyer, challenge)
    except EvidenceError as fault:
        raise EvidenceError(f"{fault}; {RESTORE}") from None


def _whole(data: bytes, buyer: x509.Certificate, challenge: str) -> Ledger:
    if not data.endswith(b"\n"):
        raise EvidenceError(f"{NAME} is empty or its last entry is cut short")
    lines = data.split(b"\n")[:-1]
    opened = read(lines[0], buyer, f"{NAME}'s entry 1")
    if not isinstance(opened, Opened) or opened.challenge != challenge:
        raise EvidenceError(f"{NAME} is of another challenge")
    receipts: dict[int, Receipt] = {}
    returned: dict[int, Returned] = {}
    envelopes: dict[int, bytes] = {}
    head, utc = sha256(lines[0]), opened.utc
    for number, line in enumerate(lines[1:], 2):
        name = f"{NAME}'s entry {number}"
        entry = read(line, buyer, name)
        if isinstance(entry, Opened) or (entry.prev, entry.challenge) != (head, challenge):
            raise EvidenceError(
                f"{name} does not follow the one before it: an entry was removed, moved or added"
            )
        if entry.utc < utc:
            raise EvidenceError(f"{name} is of {entry.utc}, earlier than the entry before it")
        if isinstance(entry, Receipt):
            _take_receipt(entry, receipts, name)
            envelopes[entry.attempt] = line
        else:
            _take_return(entry, receipts, returned, name)
        head, utc = sha256(line), entry.utc
    return Ledger(receipts=receipts, returned=returned, envelopes=envelopes, head=head, utc=utc)


def _take_receipt(entry: Receipt, receipts: dict[int, Receipt], name: str) -> None:
    if entry.attempt != len(receipts) + 1:
        raise EvidenceError(f"{name} begins attempt {entry.attempt}, and not {len(receipts) + 1}")
    for other in receipts.values():
        if entry.plan == other.plan or entry.nonce == other.nonce:
            raise EvidenceError(f"{name} uses the plan or the nonce of attempt {other.attempt}")
    receipts[entry.attempt] = entry


def _take_return(
    entry: Returned, receipts: Mapping[int, Receipt], returned: dict[int, Returned], name: str
) -> None:
    if entry.attempt not in receipts or entry.attempt in returned:
        raise EvidenceError(f"{name} returns attempt {entry.attempt}, which is not under way")
    if entry.utc > receipts[entry.attempt].not_after_utc:
        raise EvidenceError(f"{name} returns attempt {entry.attempt} after its window")
    returned[entry.attempt] = entry
