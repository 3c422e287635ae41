"""A fleet's campaign: which nodes are accepted, by which files, and one challenge for each of them.

A campaign is planned once, signed, and never changed after: what came of it is in the bundles of
its nodes. Its nonce of 32 bytes is drawn after suite and criteria are settled, and the nonce of a
node's challenge derives from it and from the node's name. So a bundle that was made under this
challenge is of this campaign and of this node, and of no other: `verify --challenge` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cryptography import x509

from appliance.errors import EvidenceError, UsageError
from appliance.planning.challenge_window import time_of, utc_words
from appliance.planning.seeds import derive, is_secret
from appliance.records.json import FiniteFloat, Record, SafeInt, from_json, to_json
from appliance.records.order import Challenge
from appliance.signing import dsse, keys

FILE = "campaign.dsse.json"
PAYLOAD_TYPE = "application/vnd.bench.campaign+json"
LARGEST = 64 * 2**20
"""Bytes of a campaign's file; 10,000 nodes of eight devices have 6 MB."""
NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""A host's name as Slurm takes it without brackets: it is a folder's and an option's word too."""
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,39})")
NO_SERIAL = "not reported"
_DIGEST = re.compile("[0-9a-f]{64}")

LauncherKind = Literal["bench", "docker", "pyxis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher(Record):
    """What a node's job starts: an installed program, or an image by docker or by pyxis.

    `program` is the path of `bench` on the nodes (in the image for pyxis), `image` the image's
    name, empty for an installed program. `vendor` and `data` are options of the run, and `key` with
    `certificate` the files on the nodes that runs are signed with; empty texts leave them out.
    """

    kind: LauncherKind
    program: str
    image: str
    vendor: str
    data: str
    key: str
    certificate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestRule(Record):
    """What a rejected node may do: run again so often, each time with so many sessions.

    It is accepted if one of these runs is; 0 retests leave the first verdict as it is.
    """

    retests: SafeInt
    sessions: SafeInt


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRisk(Record):
    """How many healthy nodes will be rejected wrongly, and the risk that a bad one is accepted.

    `rejection` is the risk that one healthy node is rejected by one run, and `expected` how many of
    `num_nodes` that makes. `after_retests` is the risk that it is rejected in its first run and in
    all its retests, whose noise is independent, and `expected_after` the nodes. `acceptance` is the
    most that the risk of a wrong pass can come to, with all retests and retries. `most_expected` is
    what the buyer allows of `expected_after`, None for no bound.
    """

    num_nodes: SafeInt
    rejection: FiniteFloat
    expected: FiniteFloat
    after_retests: FiniteFloat
    expected_after: FiniteFloat
    acceptance: FiniteFloat
    most_expected: FiniteFloat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignNode(Record):
    """One node: its name in Slurm, its place, what it should be, and its nonce.

    `rack` is empty where the inventory has none. `serial` is that of the system and `devices` those
    of its devices, None where nobody says. `order` is the sha256 of the node's own order, None
    where the campaign's holds or there is none.
    """

    name: str
    rack: str
    serial: str | None
    devices: tuple[str, ...] | None
    order: str | None
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(Record):
    """The signed payload of campaign.dsse.json.

    `suite` and `criteria` are names, with the sha256 of the files beside them. `pause` is the time
    between sessions, as in 4h. `minutes` is the time limit of a job. `retries` is how often a job
    may be submitted again that ended without a verdict; each counts as an attempt. Empty texts
    leave reservation and partition to Slurm.
    """

    schema: Literal["bench/campaign/1"] = "bench/campaign/1"
    name: str
    created_utc: str
    not_after_utc: str
    nonce: str
    bench_version: str
    suite: str
    suite_digest: str
    criteria: str
    criteria_digest: str
    order_digest: str | None
    sessions: SafeInt
    pause: str
    concurrency: SafeInt
    minutes: SafeInt
    reservation: str
    partition: str
    retries: SafeInt
    retest: RetestRule
    risk: FleetRisk
    launcher: Launcher
    nodes: tuple[CampaignNode, ...]

    def node(self, name: str) -> CampaignNode | None:
        """The node of that name, None if the campaign has none."""
        return next((one for one in self.nodes if one.name == name), None)


# ------------------------------------------------------------------ the inventory


def other_parts(
    node: CampaignNode, devices: Sequence[str | None], system_serial: str | None
) -> str:
    """Why hardware with these serials is not what the inventory has for the node; empty if it is.

    `devices` are the serials of all devices, None for one that reports none. Where the inventory
    names a node's devices there must be these and no more, and where it names its system, that one.
    """
    found = sorted(serial or NO_SERIAL for serial in devices)
    if node.devices is not None and found != sorted(node.devices):
        return (
            f"its devices are {', '.join(found) or 'none'}, and the inventory has "
            f"{', '.join(sorted(node.devices))} for {node.name}"
        )
    if node.serial is not None and system_serial != node.serial:
        return (
            f"its system's serial is {system_serial or NO_SERIAL}, and the inventory has "
            f"{node.serial} for {node.name}"
        )
    return ""


# ------------------------------------------------------------------ nonces and challenges


def check_clock(campaign: Campaign, now: datetime) -> None:
    """UsageError for a moment before the campaign was planned: the clock here is wrong, or was."""
    if now < time_of(campaign.created_utc, "the campaign"):
        raise UsageError(
            f"the campaign was planned at {campaign.created_utc}, later than this machine's clock "
            f"({utc_words(now)}): set the clock right"
        )


def node_nonce(campaign_nonce: str, node: str) -> str:
    """The nonce of a node, 32 bytes in hexadecimal (HKDF-SHA256, RFC 5869).

    The secret is the campaign's nonce, the info "bench:campaign-node:" and the node's name.
    """
    return derive(campaign_nonce, f"campaign-node:{node}", 32).hex()


def challenge_of(campaign: Campaign, node: CampaignNode) -> bytes:
    """The node's challenge.json, which `accept --challenge` and `verify --challenge` take."""
    return to_json(
        Challenge(
            nonce=node.nonce,
            issued_utc=campaign.created_utc,
            not_after_utc=campaign.not_after_utc,
            criteria=campaign.criteria_digest,
            suite=campaign.suite_digest,
            note=f"campaign {campaign.name}, node {node.name}",
            buyer="",
        )
    )


# ------------------------------------------------------------------ the signed file


def write(campaign: Campaign, key: dsse.SigningKey) -> bytes:
    """The campaign in its envelope: the bytes of campaign.dsse.json."""
    return dsse.envelope(PAYLOAD_TYPE, to_json(campaign), key)


def read(data: bytes, certificate: x509.Certificate, name: str = FILE) -> Campaign:
    """The campaign in an envelope that this certificate's key signed; EvidenceError for any other.

    Whether the certificate is to be trusted is for the caller to say (`keys.check_trust`).
    """
    holder = "the one of the campaign's certificate"
    payload = dsse.open_envelope(data, certificate, name, holder=holder, wanted=PAYLOAD_TYPE)
    campaign = from_json(Campaign, payload, name=name)
    _check(campaign, name)
    return campaign


def read_trusted(data: bytes, trusted: Sequence[bytes], name: str = FILE) -> Campaign:
    """The campaign that one of these certificates (PEM) signed; EvidenceError if none did."""
    certificate = keys.signer_among(trusted, data, name, wanted=PAYLOAD_TYPE)
    return read(data, certificate, name)


def _check(campaign: Campaign, name: str) -> None:
    """EvidenceError unless names, digests, nonces and numbers can be those of a campaign."""
    if not NAME.fullmatch(campaign.name):
        raise EvidenceError(f"{name}: {campaign.name!r} is no name of a campaign")
    if not is_secret(campaign.nonce):
        raise EvidenceError(f"{name}: its nonce must be 32 bytes in hexadecimal")
    if time_of(campaign.not_after_utc, name) <= time_of(campaign.created_utc, name):
        raise EvidenceError(f"{name}: it ends before it was planned")
    digests = [campaign.suite_digest, campaign.criteria_digest, campaign.order_digest]
    digests += [node.order for node in campaign.nodes]
    if not all(_DIGEST.fullmatch(digest) for digest in digests if digest is not None):
        raise EvidenceError(f"{name}: a digest in it is no sha256 in hexadecimal")
    counts = (campaign.sessions, campaign.concurrency, campaign.minutes, campaign.retest.sessions)
    if min(counts) < 1 or min(campaign.retries, campaign.retest.retests) < 0:
        raise EvidenceError(f"{name}: sessions, concurrency, minutes and retries must be counts")
    _check_nodes(campaign, name)


def _check_nodes(campaign: Campaign, name: str) -> None:
    names = [node.name for node in campaign.nodes]
    if not names or names != sorted(set(names)):
        raise EvidenceError(f"{name}: its nodes must be named once each, in the order of names")
    if campaign.risk.num_nodes != len(names):
        raise EvidenceError(f"{name}: its risk is of {campaign.risk.num_nodes} nodes")
    for node in campaign.nodes:
        if not NODE_NAME.fullmatch(node.name):
            raise EvidenceError(f"{name}: {node.name!r} is no name of a node")
        if node.nonce != node_nonce(campaign.nonce, node.name):
            raise EvidenceError(f"{name}: the nonce of {node.name} is not the campaign's")
