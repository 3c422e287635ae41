"""Which attempt at its challenge a run is: the receipt beside plan and journal, and the ledger.

A run is only as good as the number of others that were made to get it. The buyer's receipt gives
that number, fixed before the first launch; his ledger says that no other run used the receipt and
that the bundle came back in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from appliance.challenge import ledger, window
from appliance.challenge.entries import Receipt
from appliance.errors import EvidenceError
from appliance.planning import challenge_window
from appliance.records.journal import AttemptBegun, Line
from appliance.records.json import sha256
from appliance.records.plan import Plan
from appliance.storage import bundle as bundles

UNKNOWN = "the number of attempts is unknown: no receipt of a buyer counts this run"


def check_receipt(plan: Plan, lines: Sequence[Line], files: Mapping[str, bytes]) -> Receipt | None:
    """The receipt that the run was made by, None where nobody counts; EvidenceError for a fault."""
    data = files.get(bundles.RECEIPT)
    if not plan.num_attempts:
        if data is not None:
            raise EvidenceError(f"{bundles.RECEIPT} is there, and the plan counts no attempts")
        return None
    if bundles.CHALLENGE not in files or data is None:
        raise EvidenceError(f"{bundles.RECEIPT} is missing, and the plan needs one: ask for it")
    challenge = challenge_window.parse(files[bundles.CHALLENGE])
    receipt = ledger.read_receipt(data, ledger.buyer_of(challenge), bundles.RECEIPT)
    if receipt.challenge != sha256(files[bundles.CHALLENGE]):
        raise EvidenceError(f"{bundles.RECEIPT} is of another challenge than the run's")
    event = AttemptBegun(attempt=receipt.attempt, receipt=sha256(data), nonce=receipt.nonce)
    bound = [line.event for line in lines if isinstance(line.event, AttemptBegun)]
    if bound != [event]:
        raise EvidenceError(f"journal.jsonl was begun by another receipt than {bundles.RECEIPT}")
    if plan.rerun_of:
        return receipt  # of the run in dispute, whose inputs it repeats
    if (receipt.plan, receipt.run_id) != (sha256(files[bundles.PLAN]), plan.run_id):
        raise EvidenceError(
            f"{bundles.RECEIPT} is for the run {receipt.run_id}, not for this plan: a receipt is "
            "used once"
        )
    window.check(plan, lines, receipt, challenge)
    return receipt


def check_ledger(
    receipt: Receipt, data: bytes, files: Mapping[str, bytes], moment: datetime
) -> str:
    """What the ledger says of the attempt, in a clause; EvidenceError unless it may count.

    `moment` is the buyer's time.
    """
    challenge = challenge_window.parse(files[bundles.CHALLENGE])
    entries = ledger.read_ledger(data, ledger.buyer_of(challenge), receipt.challenge)
    number = receipt.attempt
    if entries.envelopes.get(number) != files[bundles.RECEIPT]:
        raise EvidenceError(
            f"the ledger does not have the receipt of attempt {number}: it was cut or written anew"
        )
    count = f"{len(entries.receipts)} begun, {len(entries.returned)} returned"
    back = entries.returned.get(number)
    if back is not None and back.journal != bundles.digest_of(files[bundles.JOURNAL]):
        raise EvidenceError(
            f"attempt {number} came back with another journal: a receipt was reused"
        )
    if back is None and moment > window.moment_of(receipt.not_after_utc):
        raise EvidenceError(
            f"attempt {number} never came back by {receipt.not_after_utc}, so it counts as failed"
        )
    state = f"returned {back.utc}" if back else "not yet returned (bench challenge close)"
    return f"ledger whole: {count}; this one {state}"
