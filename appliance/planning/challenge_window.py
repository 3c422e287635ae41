"""Whether a run is fresh: a buyer's challenge, the seeds that derive from it, and its window.

Freshness is by nonce, as in RFC 9334: nobody can have prepared for inputs that derive from 32
bytes which the buyer drew after suite and criteria were settled. All seeds of a run are HKDF of
the run's seed, and under a challenge that seed is HKDF of the nonce, so `verify` computes it
again. When a run was made is told by the node's own clock; that it came back in time is for the
buyer to see on his.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from appliance.errors import EvidenceError
from appliance.planning.seeds import derive, is_secret
from appliance.records.journal import Line
from appliance.records.json import from_json
from appliance.records.order import Challenge
from appliance.records.plan import Plan

_DIGEST = re.compile("([0-9a-f]{64})?")
LABEL, LENGTH = "run", 32


def parse(data: bytes, name: str = "challenge.json") -> Challenge:
    """Read a challenge; EvidenceError for one that is not whole."""
    challenge = from_json(Challenge, data, name=name)
    if not is_secret(challenge.nonce):
        raise EvidenceError(f"{name}: its nonce must be 32 bytes in hexadecimal")
    for key in ("criteria", "suite"):
        if not _DIGEST.fullmatch(getattr(challenge, key)):
            raise EvidenceError(f"{name}: {key} must be a sha256 in hexadecimal, or empty")
    if time_of(challenge.not_after_utc, name) <= time_of(challenge.issued_utc, name):
        raise EvidenceError(f"{name}: it ends before it was issued")
    return challenge


def utc_words(moment: datetime) -> str:
    """A moment as challenges, requests and receipts write it, to the second."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def run_seed(challenge: Challenge) -> str:
    """The run's seed of 32 bytes in hexadecimal, derived from the nonce."""
    return derive(challenge.nonce, LABEL, LENGTH).hex()


def refusal(challenge: Challenge, moment: datetime, criteria: str, suite: str) -> str:
    """Why a run may not begin under this challenge at this moment, or nothing.

    `criteria` and `suite` are the sha256 of the files that it would use.
    """
    if moment < time_of(challenge.issued_utc, "the challenge"):
        return (
            f"the challenge was issued at {challenge.issued_utc}, later than this node's clock "
            f"({utc_words(moment)}): set the clock right"
        )
    if moment > time_of(challenge.not_after_utc, "the challenge"):
        return (
            f"the challenge ended at {challenge.not_after_utc}, and by this node's clock it is "
            f"{utc_words(moment)}: ask the buyer for a new one, or set the clock right"
        )
    for kind, wanted, actual in (
        ("criteria", challenge.criteria, criteria),
        ("suite", challenge.suite, suite),
    ):
        if wanted and wanted != actual:
            return f"the challenge asks for the {kind} file with sha256 {wanted}, this is {actual}"
    return ""


def too_long(challenge: Challenge, begin: datetime, seconds: float) -> str:
    """Why a run of so many seconds cannot end under this challenge, or nothing."""
    left = (time_of(challenge.not_after_utc, "the challenge") - begin).total_seconds()
    if seconds <= left:
        return ""
    return (
        f"the run takes about {seconds:.0f} s with its pauses, and the challenge ends in "
        f"{max(0.0, left):.0f} s, at {challenge.not_after_utc}: plan less, or ask the buyer for a "
        "longer one"
    )


def check(plan: Plan, lines: Sequence[Line], challenge: Challenge) -> None:
    """EvidenceError unless the run's seed is the challenge's and it was made in its window."""
    if bool(plan.num_attempts) != challenge.is_counted:
        raise EvidenceError(
            "plan.json counts its attempts otherwise than the challenge asks: plan again under it"
        )
    if plan.seed != run_seed(challenge):
        raise EvidenceError("plan.json: its seed does not derive from the buyer's challenge")
    if plan.rerun_of:
        return  # a dispute is settled whenever it comes up
    times = {
        time_of(utc, "the run"): utc for utc in (plan.created_utc, *(one.utc for one in lines))
    }
    for moment in (min(times), max(times)):
        utc = times[moment]
        reason = refusal(challenge, moment, plan.digests["criteria"], plan.digests["suite"])
        if reason:
            raise EvidenceError(f"the run at {utc} is not under its challenge: {reason}")


def time_of(text: str, name: str) -> datetime:
    """A time in ISO 8601 with its zone, of what is called `name`; EvidenceError for any other."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EvidenceError(f"{name}: {text!r} is no time in ISO 8601") from None
    if moment.tzinfo is None:
        raise EvidenceError(f"{name}: {text!r} does not say its time zone")
    return moment.astimezone(UTC)
