"""The runs of a node under its campaign: each verified, once, and what came of it.

A verified bundle is not verified again at every glance: what came of it is stored beside the runs,
under the names, sizes and times of its files and under whom the reader trusts. That serves the
table of an operator; who relies on a verdict (`fleet gate`) verifies anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import CampaignNode
from appliance.errors import BenchError, EvidenceError
from appliance.fleet.folder import CampaignFolder
from appliance.records.json import Record, from_json, sha256, to_json
from appliance.records.system import System
from appliance.records.verdict import VerdictWord
from appliance.storage import bundle, limits, plain_files
from appliance.verification import verify
from appliance.verification.terms import Expectations, Terms
from appliance.version import VERSION

STORED = "verified.json"
LARGEST = 4 * 2**20
RunState = Literal["verified", "refused", "unfinished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun(Record):
    """A run of a node: `verdict` where its bundle verifies, else the `sentence` that says why not.

    `utc` is when its last file was written, by this machine's clock or that of its file server.
    """

    run_id: str
    state: RunState
    verdict: VerdictWord | None
    sentence: str
    utc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns(Record):
    """verified.json: what came of runs, by the fingerprint of their files."""

    schema: Literal["bench/verified-runs/1"] = "bench/verified-runs/1"
    runs: Mapping[str, NodeRun]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Who reads the runs of a campaign: whom he trusts, and whether what he stored will do."""

    folder: CampaignFolder
    trusted: Sequence[bytes] = ()
    allow_development: bool = False
    uses_stored: bool = True

    def runs(self, node: CampaignNode) -> tuple[NodeRun, ...]:
        """The node's runs by the time at which they began, each verified."""
        stored = self._stored(node) if self.uses_stored else {}
        found: dict[str, NodeRun] = {}
        for path in run_folders(self.folder.runs(node.name)):
            print_ = self._fingerprint(path)
            found[print_] = stored.get(print_) or self._run(node, path)
        kept = {key: run for key, run in found.items() if run.state == "verified"}
        if self.uses_stored and kept != stored:
            self._store(node, kept)
        return tuple(found.values())

    def _run(self, node: CampaignNode, path: Path) -> NodeRun:
        utc = _written(path)
        if not (path / bundle.REPORT).is_file():
            return NodeRun(
                run_id=path.name, state="unfinished", verdict=None, sentence="not signed", utc=utc
            )
        try:
            verdict = self.verified(node, path)
        except BenchError as fault:
            return NodeRun(
                run_id=path.name, state="refused", verdict=None, sentence=str(fault), utc=utc
            )
        return NodeRun(run_id=path.name, state="verified", verdict=verdict, sentence="", utc=utc)

    def verified(self, node: CampaignNode, path: Path) -> VerdictWord:
        """The verdict of a bundle of this node under this campaign; EvidenceError for any other."""
        campaign = self.folder.campaign
        verification = verify.verify_confined(
            path,
            Terms(
                trusted=self.trusted,
                allow_development=self.allow_development,
                expectations=Expectations(
                    criteria_digest=campaign.criteria_digest,
                    suite=str(self.folder.suite),
                    order=self.folder.order_of(node),
                    challenge=campaigns.challenge_of(campaign, node),
                ),
            ),
        )
        for fault in verification.faults:
            raise EvidenceError(fault)
        if verification.verdict is None:
            raise EvidenceError("its verdict could not be derived again")
        check_parts(node, path)
        return verification.verdict

    # -------------------------------------------------------------- what is stored

    def _fingerprint(self, path: Path) -> str:
        """Of the bundle's files as the folder lists them, the campaign, and who is trusted."""
        files = sorted(
            (one.name, one.stat().st_size, one.stat().st_mtime_ns)
            for one in path.iterdir()
            if one.is_file()
        )
        words = [VERSION, self.folder.digest, str(self.allow_development), path.name]
        words += [sha256(pem) for pem in self.trusted]
        return sha256(repr((words, files)).encode())

    def _stored(self, node: CampaignNode) -> Mapping[str, NodeRun]:
        path = self.folder.node_folder(node.name) / STORED
        with suppress(OSError, BenchError):  # it is made again
            return from_json(StoredRuns, plain_files.read(path, LARGEST), name=str(path)).runs
        return {}

    def _store(self, node: CampaignNode, runs: Mapping[str, NodeRun]) -> None:
        with suppress(OSError):  # a folder that is read alone, or a full disk: verified again
            path = self.folder.node_folder(node.name) / STORED
            plain_files.replace(path, to_json(StoredRuns(runs=runs)))


def run_folders(runs: Path) -> list[Path]:
    """Folders of runs, by the times in their names; working folders are passed over."""
    try:
        paths = sorted(runs.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.is_dir() and not path.name.startswith(".")]


def check_parts(node: CampaignNode, path: Path) -> None:
    """EvidenceError where the bundle's devices or system are not those of the inventory."""
    if node.serial is None and node.devices is None:
        return
    most = limits.of_name(bundle.SYSTEM)
    system = from_json(System, plain_files.read(path / bundle.SYSTEM, most), name=bundle.SYSTEM)
    fact = system.identity.host.get("system_serial")
    serial = None if fact is None or fact.value is None else str(fact.value)
    devices = [device.serial for device in system.identity.devices]
    if sentence := campaigns.other_parts(node, devices, serial):
        raise EvidenceError(sentence)


def _written(path: Path) -> str:
    seconds = max((one.stat().st_mtime for one in path.iterdir()), default=0.0)
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"
