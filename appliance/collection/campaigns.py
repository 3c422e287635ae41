"""The campaign that bundles are collected for: trusted, with the files that its nodes were held to.

What a bundle must have been made for follows from the campaign alone: the challenge of its node,
the digests of criteria and suite, the order. The suite's file is needed where the suite is not one
that bench ships, so that the cases of a bundle can be compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode
from appliance.errors import UsageError
from appliance.records.json import sha256
from appliance.signing import keys
from appliance.storage import input_file, suite_file
from appliance.verification.terms import Expectations

CERTIFICATE, SUITE, ORDER, NODES = "certificate.pem", "suite.toml", "order.toml", "nodes"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A trusted campaign; `suite` is a name, path or digest as `bench verify` takes it.

    `digest` is the sha256 of campaign.dsse.json, `orders` are the bytes of orders by their sha256.
    """

    campaign: Campaign
    digest: str
    folder: Path
    suite: str
    orders: Mapping[str, bytes]
    by_nonce: Mapping[str, CampaignNode] = field(repr=False)

    def expectations(self, node: CampaignNode) -> Expectations:
        """What a bundle of this node must have been made for."""
        order = node.order or self.campaign.order_digest
        return Expectations(
            criteria_digest=self.campaign.criteria_digest,
            suite=self.suite,
            order=None if order is None else self.orders[order],
            challenge=campaigns.challenge_of(self.campaign, node),
        )


def load(path: Path, trusted: Sequence[bytes], *, allow_development: bool) -> Wanted:
    """The campaign of a folder or a campaign.dsse.json.

    Its signer must be trusted like that of a bundle. Raises UsageError for a file that is missing
    or a clock that is behind the campaign, EvidenceError for a campaign that is not whole or not by
    a trusted signer.
    """
    file = path / campaigns.FILE if path.is_dir() else path
    data = input_file.read(
        file, what="campaign", fix="name the folder that `bench fleet plan` made"
    )
    beside = file.with_name(CERTIFICATE)
    known = [*trusted, *([input_file.read(beside)] if beside.is_file() else [])]
    certificate = keys.signer_among(known, data, file.name, wanted=campaigns.PAYLOAD_TYPE)
    now = datetime.now(UTC)
    keys.check_trust(certificate, trusted, allow_development=allow_development, moment=now)
    campaign = campaigns.read(data, certificate, file.name)
    campaigns.check_clock(campaign, now)
    return Wanted(
        campaign=campaign,
        digest=sha256(data),
        folder=file.parent,
        suite=_suite(campaign, file.parent),
        orders=_orders(campaign, file.parent),
        by_nonce={node.nonce: node for node in campaign.nodes},
    )


def _suite(campaign: Campaign, folder: Path) -> str:
    """The suite's shipped name, or the path of the campaign's own file."""
    shipped = suite_file.digests()
    for name, digest in shipped.items():
        if digest == campaign.suite_digest:
            return name
    path = folder / SUITE
    data = input_file.read(path, what="suite", fix="it stands beside the campaign's file")
    if sha256(data) != campaign.suite_digest:
        raise UsageError(f"{path} is not the suite of the campaign {campaign.name}: put it back")
    return str(path)


def _orders(campaign: Campaign, folder: Path) -> dict[str, bytes]:
    """The bytes of every order that the campaign names, by digest."""
    wanted = {node.order: folder / NODES / node.name / ORDER for node in campaign.nodes}
    wanted[campaign.order_digest] = folder / ORDER
    orders = {}
    for digest, path in wanted.items():
        if digest is None:
            continue
        data = input_file.read(path, what="order", fix="it stands beside the campaign's file")
        if sha256(data) != digest:
            raise UsageError(
                f"{path} is not the order of the campaign {campaign.name}: put it back"
            )
        orders[digest] = data
    return orders
