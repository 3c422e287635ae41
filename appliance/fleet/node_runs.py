"""The runs of a node under its campaign: each verified, once, and what came of it.

A verified bundle is not verified again at every glance: what came of it is stored beside the runs,
under the names, sizes and times of its files and under whom the reader trusts. That serves the
table of an operator; who relies on a verdict (`fleet gate`) verifies anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode
from appliance.errors import ApplianceError, BenchError, EvidenceError
from appliance.fleet import decision
from appliance.fleet.decision import Decision
from appliance.fleet.folder import CampaignFolder
from appliance.fleet.warming import warm
from appliance.ipc.forked_pool import forked_pool
from appliance.records.json import Record, SafeInt, from_json, sha256, to_json
from appliance.records.plan import Plan
from appliance.records.system import System
from appliance.records.verdict import VerdictWord
from appliance.storage import bundle, plain_files
from appliance.verification import verify
from appliance.verification.terms import Expectations, Terms
from appliance.version import VERSION

STORED = "verified.json"
LARGEST = 4 * 2**20
FEWEST_PARALLEL = 4
"""Of bundles that are new: verifying fewer is done before other processes are ready for it."""
RunState = Literal["verified", "refused", "unfinished"]


_readers: list[Reader] = []
"""In a process of the pool the one reader; empty elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRun(Record):
    """What a verified bundle says: its run, when it was planned, and the verdict derived again.

    `journal` is the sha256 of its journal, which the copy of a run has as well.
    """

    run_id: str
    created_utc: str
    sessions: SafeInt
    verdict: VerdictWord
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun(Record):
    """A run of a node by its folder: what its bundle says, else the `sentence` why it counts not.

    `utc` is when its last file was written, by this machine's clock or that of its file server.
    """

    folder: str
    state: RunState
    verified: VerifiedRun | None
    sentence: str
    utc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns(Record):
    """verified.json: what came of runs, by the fingerprint of their files."""

    schema: Literal["bench/verified-runs/2"] = "bench/verified-runs/2"
    runs: Mapping[str, NodeRun]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Who reads the runs of a campaign: whom he trusts, and whether what he stored will do."""

    folder: CampaignFolder
    trusted: Sequence[bytes] = ()
    allow_development: bool = False
    uses_stored: bool = True

    def runs(self, node: CampaignNode) -> tuple[NodeRun, ...]:
        """The node's runs by their folders' names, each verified; a copy of one is refused."""
        stored = self._stored(node) if self.uses_stored else {}
        found: dict[str, NodeRun] = {}
        for path in run_folders(self.folder.runs(node.name)):
            print_ = self._fingerprint(path)
            found[print_] = stored.get(print_) or self._run(node, path)
        kept = {key: run for key, run in found.items() if run.state == "verified"}
        if self.uses_stored and kept != stored:
            self._store(node, kept)
        return tuple(_without_copies(found.values()))

    def num_new(self, node: CampaignNode) -> int:
        """How many finished runs of the node `runs` would verify."""
        stored = self._stored(node) if self.uses_stored else {}
        paths = run_folders(self.folder.runs(node.name))
        return sum(
            self._fingerprint(path) not in stored
            for path in paths
            if (path / bundle.REPORT).is_file()
        )

    def _run(self, node: CampaignNode, path: Path) -> NodeRun:
        begun = NodeRun(
            folder=path.name, state="unfinished", verified=None, sentence="", utc=_written(path)
        )
        if not (path / bundle.REPORT).is_file():
            return replace(begun, sentence="not signed")
        try:
            return replace(begun, state="verified", verified=self.verified(node, path))
        except BenchError as fault:
            return replace(begun, state="refused", sentence=str(fault))

    def verified(self, node: CampaignNode, path: Path) -> VerifiedRun:
        """A bundle of this node under this campaign; EvidenceError for any other."""
        campaign = self.folder.campaign
        verification, files = verify.read_confined(
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
        if verification.verdict is None or verification.journal is None:
            raise EvidenceError("its verdict could not be derived again")
        check_parts(node, from_json(System, files[bundle.SYSTEM], name=bundle.SYSTEM))
        plan = from_json(Plan, files[bundle.PLAN], name=bundle.PLAN)
        return VerifiedRun(
            run_id=plan.run_id,
            created_utc=plan.created_utc,
            sessions=plan.sessions,
            verdict=verification.verdict,
            journal=verification.journal,
        )

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


def runs_of(reader: Reader, nodes: Sequence[CampaignNode]) -> Iterator[tuple[NodeRun, ...]]:
    """The runs of each node, in their order; many that are new are verified in parallel.

    ApplianceError where a process that verifies was ended from outside.
    """
    if sum(map(reader.num_new, nodes)) < FEWEST_PARALLEL:
        yield from map(reader.runs, nodes)
        return
    warm()
    num_processes = len(os.sched_getaffinity(0))
    with forked_pool(num_processes, lambda: _readers.__setitem__(slice(None), [reader])) as pool:
        try:
            yield from pool.map(_runs, nodes)
        except BrokenProcessPool:
            raise ApplianceError(
                "a process that reads bundles was ended from outside: free memory and call this "
                "again, which goes on where this stopped"
            ) from None


def _runs(node: CampaignNode) -> tuple[NodeRun, ...]:
    (reader,) = _readers
    return reader.runs(node)


def run_folders(runs: Path) -> list[Path]:
    """Folders of runs, by the times in their names; working folders are passed over."""
    try:
        paths = sorted(runs.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.is_dir() and not path.name.startswith(".")]


def _without_copies(runs: Iterable[NodeRun]) -> Iterator[NodeRun]:
    """Each run once; the same journal in a second folder is refused, as a collection does."""
    seen: dict[str, str] = {}
    for run in runs:
        if run.verified is None:
            yield run
            continue
        first = seen.setdefault(run.verified.journal, run.folder)
        is_copy = first != run.folder
        sentence = f"the same run lies at {first}"
        yield replace(run, state="refused", verified=None, sentence=sentence) if is_copy else run


def decided(campaign: Campaign, runs: Iterable[NodeRun]) -> tuple[Decision, list[VerifiedRun]]:
    """What a node's runs come to, and those that verify in the order of the decision's numbers."""
    verified = decision.in_order([run.verified for run in runs if run.verified is not None])
    return decision.decide(campaign, verified), verified


def check_parts(node: CampaignNode, system: System) -> None:
    """EvidenceError where the bundle's devices or system are not those of the inventory."""
    fact = system.identity.host.get("system_serial")
    serial = None if fact is None or fact.value is None else str(fact.value)
    devices = [device.serial for device in system.identity.devices]
    if sentence := campaigns.other_parts(node, devices, serial):
        raise EvidenceError(sentence)


def _written(path: Path) -> str:
    seconds = max((one.stat().st_mtime for one in path.iterdir()), default=0.0)
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"
