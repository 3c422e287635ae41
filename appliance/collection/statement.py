"""The one signed statement of a collection: an in-toto statement over the digests of all bundles.

Its subjects are the last file of every bundle that counts, those of failed attempts too, the
ledger with all that was refused, the campaign and the tables. The last file of a bundle signs the
pages and the statement over the data, so whoever has this statement can hold any file to it. It is
an in-toto Statement v1 in a DSSE envelope: tools of others read it, and openssl checks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from appliance.challenge import campaign as campaigns
from appliance.collection import ledger, tables
from appliance.collection.campaigns import CERTIFICATE, Wanted
from appliance.collection.standing import Fleet
from appliance.errors import EvidenceError
from appliance.records.json import sha256
from appliance.signing import certificates, dsse
from appliance.signing.keys import Key
from appliance.storage import bundle as bundles
from appliance.storage import input_file
from appliance.version import VERSION

FILE = "collection.dsse.json"
PREDICATE = "bench:fleet/v1"
SAYS = frozenset(
    {
        "accepted",
        "attempts",
        "bench_version",
        "campaign",
        "criteria",
        "criteria_digest",
        "nodes",
        "not_after_utc",
        "open",
        "planned_utc",
        "refused",
        "rejected",
        "suite",
        "suite_digest",
    }
)
"""What the statement says of the campaign and its nodes, in words."""
COUNTS = ("accepted", "attempts", "nodes", "open", "refused", "rejected")
AGAIN = "collect again"
LARGEST = 2**30
"""Bytes of the ledger or a table; those of 100,000 bundles have a tenth of it."""


def write(folder: Path, wanted: Wanted, fleet: Fleet, key: Key) -> Path:
    """Sign all that the folder holds; the path of the statement, with the certificate beside it."""
    subjects = {campaigns.FILE: wanted.digest, ledger.FILE: _digest(folder / ledger.FILE)}
    subjects |= {
        f"{tables.FOLDER}/{path.name}": _digest(path)
        for path in sorted((folder / tables.FOLDER).glob("*.parquet"))
    }
    subjects |= dict(_bundles(fleet))
    states = [one.state for one in fleet.standings]
    campaign = fleet.campaign
    predicate = {
        "accepted": str(states.count("accepted")),
        "attempts": str(sum(len(one.attempts) for one in fleet.standings)),
        "bench_version": VERSION,
        "campaign": campaign.name,
        "criteria": campaign.criteria,
        "criteria_digest": campaign.criteria_digest,
        "nodes": str(len(states)),
        "not_after_utc": campaign.not_after_utc,
        "open": str(states.count("open")),
        "planned_utc": campaign.created_utc,
        "refused": str(len(fleet.refused)),
        "rejected": str(states.count("rejected")),
        "suite": campaign.suite,
        "suite_digest": campaign.suite_digest,
    }
    stated = dsse.Statement(predicate_type=PREDICATE, subjects=subjects, predicate=predicate)
    bundles.write(folder / FILE, dsse.sign_statement(stated, key))
    bundles.write(folder / CERTIFICATE, key.certificate.public_bytes(Encoding.PEM))
    return folder / FILE


def check(folder: Path) -> dsse.Statement:
    """The statement of a collection, if its ledger and tables are those that were signed.

    By the certificate beside it, whose holder is for the reader to trust. EvidenceError otherwise.
    """
    path = folder / CERTIFICATE
    certificate = certificates.load(
        input_file.read(path, fix=AGAIN, follow=False),
        EvidenceError(f"{path} is no certificate in PEM form: {AGAIN}"),
    )
    if not dsse.is_supported(certificate):
        raise EvidenceError(f"{path} has a kind of key that bench does not sign with: {AGAIN}")
    data = input_file.read(folder / FILE, fix=AGAIN, follow=False)
    stated = dsse.open_statement(
        data, certificate, PREDICATE, FILE, holder=f"that of {CERTIFICATE}"
    )
    if stated.predicate.keys() != SAYS or not _are_counts(stated.predicate):
        raise EvidenceError(f"{FILE} in {folder} says other things than a collection does: {AGAIN}")
    own = [ledger.FILE, *(f"{tables.FOLDER}/{name}.parquet" for name in tables.TABLES)]
    for name in own:
        if name not in stated.subjects:
            raise EvidenceError(f"{FILE} in {folder} does not sign {name}: {AGAIN}")
        if _digest(folder / name) != stated.subjects[name]:
            raise EvidenceError(f"{folder / name} is not the file that was signed: {AGAIN}")
    return stated


def _are_counts(predicate: Mapping[str, str]) -> bool:
    return all(re.fullmatch("[0-9]{1,9}", predicate[name], re.ASCII) for name in COUNTS)


def _bundles(fleet: Fleet) -> Iterator[tuple[str, str]]:
    for standing in fleet.standings:
        for attempt in standing.attempts:
            name = f"{standing.node.name}/{attempt.run.run_id}/{bundles.REPORT}"
            yield name, attempt.entry.digest


def _digest(path: Path) -> str:
    return sha256(input_file.read(path, fix=AGAIN, follow=False, most=LARGEST))
