"""A campaign's signed file: one challenge a node, and nothing else is read."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode, FleetRisk, Launcher, RetestRule
from appliance.errors import EvidenceError
from appliance.planning import challenge_window
from appliance.signing import keys

NONCE = "5f" * 32


def _node(name: str, nonce: str | None = None) -> CampaignNode:
    return CampaignNode(
        name=name,
        rack="r1",
        serial=None,
        devices=None,
        order=None,
        nonce=nonce or campaigns.node_nonce(NONCE, name),
    )


def _campaign(*names: str) -> Campaign:
    return Campaign(
        name="spring",
        created_utc="2026-04-01T00:00:00Z",
        not_after_utc="2026-05-01T00:00:00Z",
        nonce=NONCE,
        bench_version="1.0",
        suite="smoke",
        suite_digest="a" * 64,
        criteria="functional",
        criteria_digest="b" * 64,
        order_digest=None,
        sessions=1,
        pause="0s",
        concurrency=2,
        minutes=60,
        reservation="",
        partition="",
        retries=1,
        retest=RetestRule(retests=1, sessions=2),
        risk=FleetRisk(
            num_nodes=len(names),
            rejection=0.008,
            expected=0.008 * len(names),
            after_retests=0.000064,
            expected_after=0.000064 * len(names),
            acceptance=0.03,
            most_expected=None,
        ),
        launcher=Launcher(
            kind="bench", program="bench", image="", vendor="", data="", key="", certificate=""
        ),
        nodes=tuple(map(_node, names)),
    )


def test_the_nonce_of_a_node_is_hkdf_of_the_campaigns_and_its_name() -> None:
    """RFC 5869 with the standard library alone: extract without salt, expand one block."""
    extracted = hmac.new(bytes(32), bytes.fromhex(NONCE), hashlib.sha256).digest()
    info = b"bench:campaign-node:n1" + b"\x01"
    expanded = hmac.new(extracted, info, hashlib.sha256).hexdigest()
    assert campaigns.node_nonce(NONCE, "n1") == expanded
    assert campaigns.node_nonce(NONCE, "n2") != expanded
    assert campaigns.node_nonce("60" * 32, "n1") != expanded


def test_a_campaign_is_read_as_it_was_signed_and_by_its_signer_alone() -> None:
    key, other = keys.development_key(), keys.development_key()
    campaign = _campaign("n1", "n2")
    data = campaigns.write(campaign, key)
    assert campaigns.read(data, key.certificate) == campaign
    pem = key.certificate.public_bytes(Encoding.PEM)
    assert campaigns.read_trusted(data, [pem]) == campaign
    with pytest.raises(EvidenceError, match="another key"):
        campaigns.read(data, other.certificate)
    with pytest.raises(EvidenceError, match="none whose certificate you trust"):
        campaigns.read_trusted(data, [other.certificate.public_bytes(Encoding.PEM)])


def test_a_nodes_challenge_is_one_that_a_run_takes() -> None:
    campaign = _campaign("n1")
    challenge = challenge_window.parse(campaigns.challenge_of(campaign, campaign.nodes[0]))
    assert challenge.nonce == campaign.nodes[0].nonce
    assert (challenge.suite, challenge.criteria) == ("a" * 64, "b" * 64)
    assert not challenge.is_counted
    assert challenge.note == "campaign spring, node n1"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "Spring time"}, "no name of a campaign"),
        ({"nonce": "00"}, "32 bytes"),
        ({"not_after_utc": "2026-04-01T00:00:00Z"}, "ends before"),
        ({"suite_digest": "A" * 64}, "no sha256"),
        ({"sessions": 0}, "must be counts"),
        ({"retries": -1}, "must be counts"),
        ({"nodes": ()}, "once each"),
        ({"nodes": (_node("n2"), _node("n1"))}, "once each"),
        ({"nodes": (_node("n1"), _node("n1"))}, "once each"),
        ({"nodes": (_node("n1"),)}, "its risk is of 2 nodes"),
        ({"nodes": (_node("n1"), _node("n2;reboot"))}, "no name of a node"),
        ({"nodes": (_node("n1"), _node("n2", "0" * 64))}, "not the campaign's"),
    ],
)
def test_a_signed_campaign_that_cannot_be_one_is_refused(
    wrong: dict[str, object], sentence: str
) -> None:
    key = keys.development_key()
    data = campaigns.write(replace(_campaign("n1", "n2"), **wrong), key)  # type: ignore[arg-type]
    with pytest.raises(EvidenceError, match=sentence):
        campaigns.read(data, key.certificate)


@pytest.mark.parametrize(
    ("devices", "system", "sentence"),
    [
        (("b", "a"), "S1", ""),
        (("a", "c"), "S1", "its devices are a, c, and the inventory has a, b for n1"),
        (("a",), "S1", "its devices are a, and the inventory has a, b for n1"),
        (("a", "b", "c"), "S1", "its devices are a, b, c, and the inventory has a, b for n1"),
        (("a", None), "S1", "its devices are a, not reported, and the inventory has a, b for n1"),
        ((), "S1", "its devices are none, and the inventory has a, b for n1"),
        (("a", "b"), "S2", "its system's serial is S2, and the inventory has S1 for n1"),
        (("a", "b"), None, "its system's serial is not reported, and the inventory has S1 for n1"),
    ],
)
def test_parts_are_those_of_the_inventory_and_no_others(
    devices: tuple[str | None, ...], system: str | None, sentence: str
) -> None:
    node = replace(_node("n1"), devices=("b", "a"), serial="S1")
    assert campaigns.other_parts(node, devices, system) == sentence
    assert campaigns.other_parts(_node("n1"), devices, system) == "", "nobody says what it has"
