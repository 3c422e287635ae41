"""One bundle, read by a confined child of a warm process: whose it is, and its rows.

A worker is a fork that has loaded all that verifying needs and is otherwise like the parent. For
each bundle it forks a confined child (ipc/confined_child.py), which reads the files once, looks up
whose challenge they were made under, makes every check of `bench verify` against what the campaign
asks of that node, and answers with rows. So a parser that a stranger's file takes over has neither
a network nor a file to write, and nothing of one bundle is in the memory of the next.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.challenge.campaign import CampaignNode
from appliance.collection.campaigns import Wanted
from appliance.collection.extracting import run_row
from appliance.collection.rows import Finding, RefusalReason
from appliance.errors import BenchError, EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.planning import challenge_window
from appliance.records.json import from_json, to_json
from appliance.storage import bundle as bundles
from appliance.storage import limits
from appliance.verification import evidence_path, verify
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification

SECONDS = 60
"""Processor time of a child; a check has its own limit by the bundle's size."""
LARGEST = 64 * limits.MIB
"""Of one bundle; a fleet's bundle of a suite has some MB."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What bundles are held to, and whose signatures count."""

    wanted: Wanted
    trusted: tuple[bytes, ...]
    allow_development: bool

    def read(self, path: Path) -> Finding:
        """What the bundle at `path` comes to; any fault of it is a finding and no error."""
        limit = confined_child.Limits(seconds=SECONDS, mapped_bytes=LARGEST)
        try:
            answer = confined_child.call(path.name, lambda: to_json(self._examine(path)), limit)
            return from_json(Finding, answer, name="the answer")
        except (EvidenceError, UsageError) as error:
            return _refused("", "unreadable", str(error))

    def _examine(self, path: Path) -> Finding:
        gc.disable()  # a child that lives for one bundle collects nothing
        given = evidence_path.given(path, LARGEST)
        if not given.is_whole:
            return _refused("", "unreadable", "it is no whole bundle: collect folders or zips")
        node, sentence = self._node(given.files())
        if node is None:
            return _refused("", "foreign", sentence)
        verification, bundle = verify.examine(
            given,
            Terms(
                trusted=self.trusted,
                allow_development=self.allow_development,
                expectations=self.wanted.expectations(node),
            ),
        )
        fault = _fault(verification)
        if fault or bundle is None:
            return _refused(node.name, "not_verified", fault or "its records cannot be read")
        run = run_row(bundle)
        return Finding(node=node.name, reason="", sentence="", run=run)

    def _node(self, files: Mapping[str, bytes]) -> tuple[CampaignNode | None, str]:
        """The node whose challenge the bundle names, or why it is of none."""
        name = self.wanted.campaign.name
        if bundles.CHALLENGE not in files:
            return None, f"it was made under no challenge, so not for the campaign {name}"
        try:
            challenge = challenge_window.parse(files[bundles.CHALLENGE])
        except BenchError as error:
            return None, str(error)
        node = self.wanted.by_nonce.get(challenge.nonce)
        if node is None:
            note = f' ("{challenge.note}")' if challenge.note else ""
            return None, f"it was made under another challenge{note}, not for the campaign {name}"
        return node, ""


def _refused(node: str, reason: RefusalReason, sentence: str) -> Finding:
    return Finding(node=node, reason=reason, sentence=sentence, run=None)


def _fault(verification: Verification) -> str:
    """Why the bundle is no evidence of the campaign, or nothing."""
    if verification.faults:
        return verification.faults[0]
    if verification.verdict is not None:
        return ""
    reasons: Sequence[str] = verification.not_compared or ("its verdict cannot be derived",)
    return f"left open: {reasons[0]}"
