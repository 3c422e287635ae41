"""An attempt at a challenge: what a node asks, what the buyer answers, what came of it.

The buyer's ledger is a chain of the last three of these, each signed with his key: that the
challenge was opened, each receipt that he gave, and each bundle that came back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record
from appliance.records.verdict import VerdictWord


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest(Record):
    """RUN.request.json: a planned run that asks for the buyer's receipt before its first launch.

    `challenge`, `plan`, `criteria` and `suite` are the sha256 of the files that the run was planned
    with. `seconds` is how long it is expected to take, with its pauses.
    """

    schema: Literal["bench/attempt-request/1"] = "bench/attempt-request/1"
    challenge: str
    plan: str
    run_id: str
    created_utc: str
    seconds: int
    criteria: str
    suite: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A challenge was drawn, whose file has the sha256 `challenge`."""

    challenge: str
    utc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The buyer's answer to a plan: it may run, as attempt number `attempt`, until `not_after_utc`.

    `nonce` is 32 bytes in hexadecimal that nobody knew before. `prev` is the sha256 of the ledger's
    entry before this one, so each receipt commits the buyer to all that came before.
    """

    challenge: str
    plan: str
    run_id: str
    attempt: int
    nonce: str
    utc: str
    not_after_utc: str
    prev: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The bundle of an attempt came back and was verified; `journal` is its journal's sha256."""

    challenge: str
    journal: str
    attempt: int
    verdict: VerdictWord
    utc: str
    prev: str


Entry = Opened | Receipt | Returned
