"""The node's side of an attempt: it asks for the buyer's receipt, and binds it before launch 1.

A run under a challenge that counts attempts is planned and then waits, since the plan's digest is
what the buyer answers. Its request lies beside its folder, which holds the evidence alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from appliance.challenge import ledger, short_form, window
from appliance.challenge.entries import AttemptRequest, Receipt
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.ipc import confined_reader
from appliance.planning import challenge_window
from appliance.planning.sessions import seconds_of_run
from appliance.records.journal import AttemptBegun
from appliance.records.json import sha256, to_json
from appliance.records.plan import Plan
from appliance.storage import bundle, input_file, plain_files

STDIN = Path("-")
RECEIPT_FIX = "name the file that `bench challenge begin` wrote, or one with its line"


@dataclass(frozen=True, kw_only=True)
class Awaiting:
    """A planned run that waits for its receipt: its folder, and what it asks."""

    folder: Path
    request: AttemptRequest

    @property
    def path(self) -> Path:
        """The file of the request, beside the folder."""
        return request_path(self.folder)

    @property
    def text(self) -> str:
        """The request in its short form."""
        return short_form.write_request(self.request)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A receipt that answers a run's plan, with the bytes of its file."""

    receipt: Receipt
    data: bytes

    @property
    def event(self) -> AttemptBegun:
        """What the journal says of it."""
        one = self.receipt
        return AttemptBegun(attempt=one.attempt, receipt=sha256(self.data), nonce=one.nonce)


def request_path(folder: Path) -> Path:
    """Where the request of a run is: beside its folder, so that it is no part of the bundle."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.request.json")


def ask(folder: Path, plan: Plan, files: Mapping[str, bytes]) -> Awaiting:
    """Write the request of a planned run; the same each time. OutputError if it cannot be."""
    request = AttemptRequest(
        challenge=plan.digests["challenge"],
        plan=sha256(files[bundle.PLAN]),
        run_id=plan.run_id,
        created_utc=plan.created_utc,
        seconds=math.ceil(seconds_of_run(plan)),
        criteria=plan.digests["criteria"],
        suite=plan.digests["suite"],
    )
    path = request_path(folder)
    try:
        plain_files.replace(path, to_json(request))
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None
    return Awaiting(folder=folder, request=request)


def bound(folder: Path, plan: Plan, files: Mapping[str, bytes], given: Path | None) -> Bound | None:
    """The receipt of a run, as its folder has it or a person gives it; None where it waits for one.

    UsageError for one where another is bound, EvidenceError for one that the buyer did not sign for
    this plan.
    """
    path = folder / bundle.RECEIPT
    stored = input_file.read(path) if path.exists() else None
    if given is None and stored is None:
        return None
    data = stored if given is None else _whole(_given(given), plan, files)
    if data is None or (stored is not None and stored != data):
        raise UsageError(f"{folder} was begun with another receipt: leave --receipt out")
    return Bound(receipt=check(data, plan, files), data=data)


def check(data: bytes, plan: Plan, files: Mapping[str, bytes]) -> Receipt:
    """The receipt in these bytes, if the buyer of the challenge signed it for this plan."""
    return confined_reader.record(
        Receipt, "the receipt", lambda: _receipt(data, plan, files), death=EvidenceError
    )


def _receipt(data: bytes, plan: Plan, files: Mapping[str, bytes]) -> Receipt:
    challenge = challenge_window.parse(files[bundle.CHALLENGE])
    try:
        receipt = ledger.read_receipt(data, ledger.buyer_of(challenge), "the receipt")
    except EvidenceError as fault:
        raise EvidenceError(f"{fault}; {RECEIPT_FIX}") from None
    if receipt.challenge != sha256(files[bundle.CHALLENGE]):
        raise EvidenceError("the receipt is of another challenge than the run was planned under")
    if (receipt.plan, receipt.run_id) != (sha256(files[bundle.PLAN]), plan.run_id):
        raise EvidenceError(
            f"the receipt is for the run {receipt.run_id}, and this one is {plan.run_id}: a "
            "receipt is for one plan and used once, so ask the buyer for one for this run"
        )
    return receipt


def refuse_now(receipt: Receipt) -> None:
    """UsageError unless the node's clock is inside the receipt's window."""
    if reason := window.start_refusal(receipt, datetime.now(UTC)):
        raise UsageError(reason)


def _given(path: Path) -> bytes:
    """What a person names, types or scans."""
    if path != STDIN:
        return input_file.read(path, fix="name the buyer's receipt")
    text = sys.stdin.readline()
    if not text.strip():
        raise UsageError("no receipt was typed: go on with it by --resume FOLDER --receipt FILE")
    return text.encode()


def _whole(data: bytes, plan: Plan, files: Mapping[str, bytes]) -> bytes:
    """The envelope of a receipt, put together where its short form was given."""
    if not short_form.is_short(data, short_form.RECEIPT):
        return data.removesuffix(b"\n")
    return confined_reader.content(
        "the receipt", lambda: _envelope(data, plan, files), death=EvidenceError
    )


def _envelope(data: bytes, plan: Plan, files: Mapping[str, bytes]) -> bytes:
    challenge = challenge_window.parse(files[bundle.CHALLENGE])
    return short_form.read_receipt(
        data,
        challenge=sha256(files[bundle.CHALLENGE]),
        plan=sha256(files[bundle.PLAN]),
        run_id=plan.run_id,
        buyer=ledger.buyer_of(challenge),
    )
