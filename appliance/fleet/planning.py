"""The verb `fleet plan`: from a campaign's file and an inventory to a signed folder.

The folder appears whole or not at all: it is made under another name beside its place.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode
from appliance.errors import OutputError, UsageError
from appliance.fleet import folder as folders
from appliance.fleet import risk as risks
from appliance.fleet.campaign_toml import CampaignFile
from appliance.fleet.inventory import InventoryNode
from appliance.planning.challenge_window import utc_words
from appliance.records.criteria import Criteria
from appliance.records.json import sha256
from appliance.signing.keys import Key
from appliance.storage import criteria_file, input_file, order_file, suite_file
from appliance.storage.plain_files import UNFINISHED
from appliance.version import VERSION


@dataclass(frozen=True, kw_only=True)
class Files:
    """The bytes of what nodes are accepted by, the suite's name, and the criteria as read."""

    suite_name: str
    suite: bytes
    criteria: bytes
    order: bytes | None
    parsed: Criteria


def plan(
    file: CampaignFile,
    nodes: Sequence[InventoryNode],
    orders: Mapping[str, bytes],
    out: Path,
    key: Key,
) -> Campaign:
    """Draw the campaign's nonce, sign it, and write its folder `out`.

    UsageError for a file that is wrong, an order of no node, or a risk above what the buyer allows;
    OutputError where the folder is there already or cannot be written.
    """
    files = _files(file)
    strangers = sorted(orders.keys() - {node.name for node in nodes})
    if strangers:
        raise UsageError(f"there is an order for {strangers[0]}, which the inventory does not have")
    campaign = _campaign(file, files, nodes, orders)
    certificate = key.certificate.public_bytes(Encoding.PEM)
    content = {
        campaigns.FILE: campaigns.write(campaign, key),
        folders.CERTIFICATE: certificate,
        folders.SUITE: files.suite,
        folders.CRITERIA: files.criteria,
        **({} if files.order is None else {folders.ORDER: files.order}),
    }
    for node in campaign.nodes:
        place = f"{folders.NODES}/{node.name}"
        content[f"{place}/{folders.CHALLENGE}"] = campaigns.challenge_of(campaign, node)
        if node.name in orders:
            content[f"{place}/{folders.ORDER}"] = orders[node.name]
    _write(out, content, [node.name for node in campaign.nodes])
    return campaign


def _files(file: CampaignFile) -> Files:
    suite, suite_data = suite_file.load_suite(file.suite)
    parsed, criteria = criteria_file.load_criteria(file.criteria)
    order = None
    if file.order is not None:
        order = input_file.read(Path(file.order), what="order")
        order_file.read(order, file.order)
    return Files(
        suite_name=suite.name, suite=suite_data, criteria=criteria, order=order, parsed=parsed
    )


def _campaign(
    file: CampaignFile,
    files: Files,
    nodes: Sequence[InventoryNode],
    orders: Mapping[str, bytes],
) -> Campaign:
    nonce = secrets.token_hex(32)
    now = datetime.now(UTC).replace(microsecond=0)
    return Campaign(
        name=file.name,
        created_utc=utc_words(now),
        not_after_utc=utc_words(now + timedelta(days=file.days)),
        nonce=nonce,
        bench_version=VERSION,
        suite=files.suite_name,
        suite_digest=sha256(files.suite),
        criteria=files.parsed.name,
        criteria_digest=sha256(files.criteria),
        order_digest=None if files.order is None else sha256(files.order),
        sessions=file.sessions,
        pause=file.pause,
        concurrency=file.concurrency,
        minutes=file.minutes,
        reservation=file.reservation,
        partition=file.partition,
        retries=file.retries,
        retest=file.retest_rule,
        risk=risks.fleet_risk(
            files.parsed,
            len(nodes),
            file.retest_rule,
            file.retries,
            rejection=file.risk.rejection,
            most_expected=file.risk.most_expected,
        ),
        launcher=file.launch,
        nodes=tuple(_node(node, nonce, orders.get(node.name)) for node in nodes),
    )


def _node(node: InventoryNode, nonce: str, order: bytes | None) -> CampaignNode:
    return CampaignNode(
        name=node.name,
        rack=node.rack,
        serial=node.serial,
        devices=node.devices,
        order=None if order is None else sha256(order),
        nonce=campaigns.node_nonce(nonce, node.name),
    )


# ------------------------------------------------------------------ writing


def _write(out: Path, content: Mapping[str, bytes], nodes: Sequence[str]) -> None:
    """The folder, whole or not at all."""
    out = out.absolute()
    making = out.with_name(f"{UNFINISHED}{secrets.token_hex(8)}-{out.name}")
    try:
        if os.path.lexists(out):
            raise OutputError(f"{out} is there already: a campaign is planned once, name another")
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(out)
        for name in nodes:
            for inner in (folders.RUNS, folders.JOBS):
                (making / folders.NODES / name / inner).mkdir(parents=True)
        for name, data in content.items():
            _write_file(making / name, data)
        making.rename(out)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        reason = error.strerror or "unknown reason"
        raise OutputError(f"{out} cannot be written ({reason})") from None


def _remove_unfinished(out: Path) -> None:
    """What a plan of this name left when it was killed."""
    for path in out.parent.glob(f"{UNFINISHED}*-{out.name}"):
        shutil.rmtree(path, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
