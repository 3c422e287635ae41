"""When an attempt at a challenge may begin and must have ended, and the inputs that it makes.

The buyer's receipt gives a planned run a few hours. They begin with the plan and do not stand still
while the run is interrupted: whoever may pause for as long as he likes waits for a better moment.
Times of the run are by the node's clock, which may be a little behind the buyer's, but must not be
set while the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from appliance.challenge.entries import AttemptRequest, Receipt
from appliance.errors import EvidenceError
from appliance.planning.challenge_window import time_of, utc_words
from appliance.planning.seeds import derive
from appliance.records.journal import AttemptBegun, Line, RunResumed, RunStarted, SessionBegan
from appliance.records.order import Challenge
from appliance.records.plan import Plan

CLOCK_SKEW = timedelta(minutes=5)
"""By which the node's clock may be behind the buyer's, and may be slewed during a run."""
LENGTH = 32  # bytes of a seed


def inputs_seed(plan: Plan, lines: Iterable[Line]) -> str:
    """The seed of a run's inputs: the plan's, and under a receipt one that its nonce changes.

    Order and variants stand in the plan that the buyer answered, so the nonce cannot change them;
    the inputs it does, and none of them could be computed before it came.
    """
    for line in lines:
        if isinstance(line.event, AttemptBegun):
            return derive(plan.seed, f"attempt:{line.event.nonce}", LENGTH).hex()
    return plan.seed


def request_refusal(request: AttemptRequest, challenge: Challenge, now: datetime) -> str:
    """Why no attempt may begin for this plan now, by the buyer's clock; or nothing."""
    planned = moment_of(request.created_utc)
    if planned < moment_of(challenge.issued_utc) - CLOCK_SKEW:
        return f"the run was planned at {request.created_utc}, before the challenge was issued"
    if planned > now + CLOCK_SKEW:
        return (
            f"the run was planned at {request.created_utc}, later than this machine's clock: "
            "set right whichever clock is wrong, and plan again"
        )
    if now > moment_of(challenge.not_after_utc):
        return f"the challenge ended at {challenge.not_after_utc}: draw a new one"
    for kind in ("criteria", "suite"):
        wanted, actual = getattr(challenge, kind), getattr(request, kind)
        if wanted and wanted != actual:
            return f"the challenge asks for the {kind} file with sha256 {wanted}, not {actual}"
    return ""


def start_refusal(receipt: Receipt, now: datetime) -> str:
    """Why a run may not begin or go on under this receipt now, by the node's clock; or nothing."""
    if now < moment_of(receipt.utc) - CLOCK_SKEW:
        return (
            f"the receipt is of {receipt.utc}, later than this node's clock ({utc_words(now)}): "
            "set the clock right"
        )
    if now > moment_of(receipt.not_after_utc):
        return (
            f"attempt {receipt.attempt} ended at {receipt.not_after_utc} and counts as failed: "
            "plan a new run and ask for its receipt"
        )
    return ""


def check(plan: Plan, lines: Sequence[Line], receipt: Receipt, challenge: Challenge) -> None:
    """EvidenceError unless the run was planned, made and paused inside the receipt's window."""
    begin, end = moment_of(receipt.utc), moment_of(receipt.not_after_utc)
    if not moment_of(challenge.issued_utc) <= begin < end <= moment_of(challenge.not_after_utc):
        raise EvidenceError("the receipt's window is not inside that of its challenge")
    if moment_of(plan.created_utc) > begin + CLOCK_SKEW:
        raise EvidenceError(
            f"the run was planned at {plan.created_utc}, after its receipt of {receipt.utc}"
        )
    is_bound = False
    for number, line in enumerate(lines, 1):
        is_bound |= isinstance(line.event, AttemptBegun)
        moment = moment_of(line.utc)
        if moment > end or (is_bound and moment < begin - CLOCK_SKEW):
            raise EvidenceError(
                f"journal.jsonl line {number} is of {line.utc}, outside the window of attempt "
                f"{receipt.attempt} ({receipt.utc} to {receipt.not_after_utc})"
            )
    _check_clock(lines)


def _check_clock(lines: Sequence[Line]) -> None:
    """EvidenceError where the time of day was set back, or set at all while the run went on.

    Beside it each line has a clock that nobody can set. It starts anew with the machine, so between
    two programs of one run only a step back shows.
    """
    offset, last = timedelta(0), datetime.fromtimestamp(0, UTC)
    for number, line in enumerate(lines, 1):
        moment = moment_of(line.utc)
        now = _since_epoch(moment) - timedelta(microseconds=line.monotonic_ns // 1000)
        if isinstance(line.event, RunStarted | RunResumed | SessionBegan):
            offset = now
        is_back = moment < last - CLOCK_SKEW
        if is_back or abs(now - offset) > CLOCK_SKEW:
            raise EvidenceError(
                f"journal.jsonl line {number}: the node's clock was set while the run was under "
                f"way, {'back ' if is_back or now < offset else ''}to {line.utc}"
            )
        last = moment


def _since_epoch(moment: datetime) -> timedelta:
    return moment - datetime.fromtimestamp(0, UTC)


def moment_of(utc: str) -> datetime:
    """A time of an attempt; EvidenceError for what is none."""
    return time_of(utc, "the attempt")
