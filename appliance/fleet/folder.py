"""A campaign's folder: what was signed, each node's challenge, its runs, and a lock for writers.

    campaign.dsse.json, certificate.pem           the campaign, and whose key signed it
    suite.toml, criteria.toml, order.toml         the files by which nodes are accepted
    nodes/NODE/challenge.json, order.toml         of the node alone
    nodes/NODE/runs/RUN_ID/                       its bundles
    nodes/NODE/jobs/                              what its jobs printed, and which attempts began
    submissions.jsonl                             what was given to the scheduler

It lies where every node sees it. Nothing of it but the bundles is evidence.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import sha256
from appliance.signing import certificates, keys
from appliance.storage import limits, plain_files

CERTIFICATE = "certificate.pem"
SUITE, CRITERIA, ORDER = "suite.toml", "criteria.toml", "order.toml"
CHALLENGE = "challenge.json"
NODES, RUNS, JOBS = "nodes", "runs", "jobs"
LOCK = ".lock"


@dataclass(frozen=True, kw_only=True)
class CampaignFolder:
    """A campaign whose files are those that were signed; `digest` is of its signed file."""

    path: Path
    campaign: Campaign
    digest: str
    order: bytes | None
    signer: str

    @property
    def job_name(self) -> str:
        """What all jobs of the campaign are called; no other campaign has the name."""
        return f"bench-{self.campaign.name}-{self.digest[:12]}"

    @property
    def suite(self) -> Path:
        return self.path / SUITE

    def node(self, name: str) -> CampaignNode:
        """The node of that name; UsageError if the campaign has none."""
        node = self.campaign.node(name)
        if node is None:
            raise UsageError(f'the campaign {self.campaign.name} has no node "{name}"')
        return node

    def node_folder(self, name: str) -> Path:
        return self.path / NODES / name

    def runs(self, name: str) -> Path:
        return self.node_folder(name) / RUNS

    def jobs(self, name: str) -> Path:
        return self.node_folder(name) / JOBS

    def order_of(self, node: CampaignNode) -> bytes | None:
        """The order that the node must meet, its own or the campaign's; None if there is none.

        EvidenceError if its own is not the one that was signed.
        """
        if node.order is None:
            return self.order
        return _signed(self.node_folder(node.name) / ORDER, node.order)

    def order_path(self, node: CampaignNode) -> Path | None:
        """Where that order is."""
        if node.order is not None:
            return self.node_folder(node.name) / ORDER
        return None if self.order is None else self.path / ORDER


def opened(
    path: Path, trusted: Sequence[bytes] = (), *, allow_development: bool = False
) -> CampaignFolder:
    """The campaign in a folder, signed by somebody who is trusted.

    EvidenceError if the signature, the signer or a signed file is wrong; UsageError if there is no
    campaign, or it is of a time that this machine's clock has not reached.
    """
    folder, certificate = _read(path)
    now = datetime.now(UTC)
    signer = keys.check_trust(certificate, trusted, allow_development=allow_development, moment=now)
    campaigns.check_clock(folder.campaign, now)
    return replace(folder, signer=signer)


def opened_on_node(path: Path) -> CampaignFolder:
    """The campaign in a folder, for who makes a run under it and judges nobody's trust."""
    return _read(path)[0]


def _read(path: Path) -> tuple[CampaignFolder, x509.Certificate]:
    data = _file(path / campaigns.FILE, campaigns.LARGEST)
    certificate = _certificate(path / CERTIFICATE)
    campaign = campaigns.read(data, certificate, str(path / campaigns.FILE))
    _signed(path / SUITE, campaign.suite_digest)
    _signed(path / CRITERIA, campaign.criteria_digest)
    order = None
    if campaign.order_digest is not None:
        order = _signed(path / ORDER, campaign.order_digest)
    folder = CampaignFolder(
        path=path.resolve(),
        campaign=campaign,
        digest=sha256(data),
        order=order,
        signer="",
    )
    return folder, certificate


def _certificate(path: Path) -> x509.Certificate:
    data = _file(path, limits.CERTIFICATE)
    return certificates.load(data, EvidenceError(f"{path} is no certificate in PEM form"))


def _signed(path: Path, digest: str) -> bytes:
    """A file that the campaign names by its digest."""
    data = _file(path, limits.TOML)
    if sha256(data) != digest:
        raise EvidenceError(f"{path} is not the file that the campaign was signed with: restore it")
    return data


def _file(path: Path, largest: int) -> bytes:
    try:
        return plain_files.read(path, largest)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise UsageError(
            f"{path} cannot be read ({reason}): name the folder that `bench fleet plan` wrote"
        ) from None


@contextmanager
def locked(folder: CampaignFolder) -> Iterator[None]:
    """Nobody else submits or cancels meanwhile; UsageError if somebody does.

    The kernel gives the lock back whatever becomes of its holder.
    """
    path = folder.path / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise OutputError(f"{path} cannot be opened ({error.strerror})") from None
    try:
        _lock(descriptor, folder.path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"another `bench fleet` works on {path}: wait until it has ended"
        ) from None
