"""The verb `fleet gate`: whether a node has a valid verdict, for health checks and epilogs.

Nothing that was stored is believed: the node's bundles are verified here. A verdict is valid if its
bundle verifies, is of this node under this campaign, accepts it by the campaign's rule
(fleet/decision.py), and is not too old.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from appliance.challenge.campaign import CampaignNode
from appliance.errors import EvidenceError, UsageError
from appliance.fleet import node_runs, slurm
from appliance.fleet.folder import CampaignFolder
from appliance.fleet.node_runs import Reader, VerifiedRun
from appliance.fleet.on_node import HERE
from appliance.planning.challenge_window import time_of
from appliance.records.json import Record
from appliance.records.verdict import EXIT_CODES, VerdictWord

NO_VERDICT = 3
AGE_UNITS = {"h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Record):
    """Whether a node may take jobs: `exit_code` 0 if so, 1 rejected, 3 no valid verdict."""

    schema: Literal["bench/fleet-gate/1"] = "bench/fleet-gate/1"
    node: str
    verdict: VerdictWord | None
    run_id: str | None
    planned_utc: str | None
    sentence: str
    exit_code: int


def here() -> str:
    """This node's name as Slurm has it: of its daemon, or of the host without its domain."""
    return os.environ.get(HERE) or os.environ.get("SLURM_NODENAME") or _host()


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def seconds_of(age: str) -> float:
    """Seconds of an age such as 12h or 30d. Raises UsageError."""
    matched = re.fullmatch(r"([1-9][0-9]{0,4})([hd])", age)
    if matched is None:
        raise UsageError(f'--max-age is "{age}": give hours or days, as in 12h or 30d')
    return float(matched[1]) * AGE_UNITS[matched[2]]


def ask(
    folder: CampaignFolder,
    node: CampaignNode,
    reader: Reader,
    *,
    most_seconds: float | None,
    takes_open: bool,
) -> Answer:
    """Whether the node has a valid verdict. `takes_open`: one without any verdict may pass.

    `most_seconds` is how old the run may be, None for any age.
    """
    decided, runs = node_runs.decided(folder.campaign, reader.runs(node))
    if not runs:
        code = 0 if takes_open else NO_VERDICT
        return _answer(node, None, f"{node.name} has no verified bundle yet", code)
    decisive = decided.decided_by or max(decided.decisive, default=len(runs))
    run = runs[decisive - 1]
    age = datetime.now(UTC) - time_of(run.created_utc, run.run_id)
    if most_seconds is not None and age > timedelta(seconds=most_seconds):
        sentence = (
            f"the verdict of {node.name} is of {run.created_utc}, which is too old: run it again"
        )
        return _answer(node, run, sentence, NO_VERDICT)
    sentence = f"{node.name} is {run.verdict} by the run {run.run_id}"
    if decided.state == "accepted":
        return _answer(node, run, sentence, 0)
    code = EXIT_CODES["REJECTED"] if decided.decisive else NO_VERDICT
    return _answer(node, run, f"{sentence}: {decided.reason}", code)


def drain(folder: CampaignFolder, node: str, reason: str) -> None:
    """Take the node out of use with a reason, unless it is already. Operators of Slurm may."""
    status = slurm.nodes().get(node)
    if status is None:
        raise EvidenceError(f"Slurm does not know the node {node}")
    if not status.state.startswith(("drain", "draining")):
        slurm.drain(node, f"bench: {reason}, campaign {folder.campaign.name}")


def _answer(node: CampaignNode, run: VerifiedRun | None, sentence: str, code: int) -> Answer:
    return Answer(
        node=node.name,
        verdict=None if run is None else run.verdict,
        run_id=None if run is None else run.run_id,
        planned_utc=None if run is None else run.created_utc,
        sentence=sentence,
        exit_code=code,
    )


def reader_of(
    folder: CampaignFolder, trusted: Sequence[bytes], *, allow_development: bool
) -> Reader:
    """A reader that verifies anew."""
    return Reader(
        folder=folder, trusted=trusted, allow_development=allow_development, uses_stored=False
    )
