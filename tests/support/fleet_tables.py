"""Collections of any size without a bundle: the numbers of a planted fleet as tables and statement.

The ledger's lines are built instead of read from bundles, all else is the product's own. For
tests of what is made from lines that were verified already: outliers, tables, pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from support.synthetic_fleet import (
    DRIVER,
    NODE_SD,
    NONCE,
    OTHER,
    Planted,
    campaign_with,
    node_name,
)

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode
from appliance.collection import ledger, standing, statement, tables
from appliance.collection.campaigns import Wanted
from appliance.collection.outliers import Analysis
from appliance.collection.rows import CaseRow, DeviceRow, Entry, Finding, MetricRow, RunRow
from appliance.collection.standing import Fleet
from appliance.records.verdict import VerdictWord
from appliance.signing import keys
from appliance.signing.keys import Key

CASES = {"gemm": 0.0108, "gemm_exact": 0.0056}
SHARED = 0.7
"""Part of a node's own spread that all of its cases have in common."""
CAMPAIGN_DIGEST = "c" * 64


def digest(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


def campaign(names: Sequence[str], racks: Sequence[str], *, retests: int = 1) -> Campaign:
    nodes = [
        CampaignNode(
            name=name,
            rack=rack,
            serial=None,
            devices=None,
            order=None,
            nonce=campaigns.node_nonce(NONCE, name),
        )
        for name, rack in zip(names, racks, strict=True)
    ]
    return campaign_with(
        nodes,
        name="planted",
        created=datetime(2026, 11, 24, tzinfo=UTC),
        suite=("tiny", "a" * 64),
        criteria=("functional", "b" * 64),
        retests=retests,
    )


def run(
    node: str,
    *,
    number: int = 1,
    verdict: VerdictWord = "ACCEPTED",
    seconds: dict[str, float] | None = None,
    driver: str = DRIVER,
    serial: str | None = "",
    sessions: int = 1,
) -> RunRow:
    """One run of a node; `serial` "" gives it one of its own."""
    times = CASES if seconds is None else seconds
    return RunRow(
        run_id=f"20261125T01261{number}Z-{digest(node)[:6]}",
        created_utc=f"2026-11-25T01:26:1{number}Z",
        seconds=6.0,
        bench_version="1.0",
        sessions=sessions,
        verdict=verdict,
        signer="CN=Maker",
        role="vendor",
        journal=digest("journal", node, number),
        statement=digest("statement", node, number),
        system_serial=None,
        num_launches=12,
        num_failed=0 if verdict == "ACCEPTED" else 1,
        failures=() if verdict == "ACCEPTED" else ("gemm@cpu:0: outside its bound",),
        devices=(
            DeviceRow(
                device="cpu:0",
                vendor="cpu",
                model="A processor",
                serial=f"SN-{node}" if serial == "" else serial,
                memory_bytes=2**34,
            ),
        ),
        components={"device driver": driver, "kernel": "6.1.0", "torch": "2.13.0"},
        cases=tuple(
            CaseRow(
                case=f"{name}@cpu:0",
                name=name,
                workload=name,
                device="cpu:0",
                planned=6,
                completed=6,
                failed_checks=0,
                ruling="pass",
                withheld="",
            )
            for name in times
        ),
        metrics=tuple(
            MetricRow(
                case=f"{name}@cpu:0",
                name=name,
                device="cpu:0",
                metric="step_seconds",
                value=value,
                unit="s",
                low=value * 0.99,
                high=value * 1.01,
                count=5,
            )
            for name, value in times.items()
        ),
    )


def entry(node: str, made: RunRow, *, source: str = "") -> Entry:
    return Entry(
        source=source or f"/bundles/{node}/{made.run_id}",
        digest=digest("bundle", node, made.run_id, source),
        num_bytes=350_000,
        finding=Finding(node=node, reason="", sentence="", run=made),
    )


def planted_fleet(faults: Planted, seed: int) -> Fleet:
    """A fleet with these faults; the forged nodes have no bundle that counts."""
    draw = np.random.default_rng(seed)
    names = [node_name(number) for number in range(faults.num_nodes)]
    racks = [f"rack-{faults.rack(number):03d}" for number in range(faults.num_nodes)]
    shared = draw.standard_normal(faults.num_nodes)
    own = draw.standard_normal((len(CASES), faults.num_nodes))
    logs = NODE_SD * (SHARED * shared + np.sqrt(1 - SHARED**2) * own)
    entries = []
    for number, name in enumerate(names):
        factor = faults.factor(number)
        times = {
            case: base * factor * float(np.exp(logs[index, number]))
            for index, (case, base) in enumerate(CASES.items())
        }
        driver = OTHER if number in faults.other_driver else DRIVER
        made = entry(name, run(name, seconds=times, driver=driver))
        if number in faults.forged:
            finding = Finding(
                node=name, reason="not_verified", sentence="journal.jsonl was changed", run=None
            )
            made = replace(made, finding=finding)
        entries.append(made)
    return standing.fleet(campaign(names, racks), entries)


def collection(folder: Path, fleet: Fleet, key: Key | None = None) -> Analysis:
    """The tables and the statement of a fleet as `bench fleet collect` leaves them."""
    with ledger.opened(folder, CAMPAIGN_DIGEST):
        pass
    analysis = tables.write(folder, fleet)
    wanted = Wanted(
        campaign=fleet.campaign,
        digest=CAMPAIGN_DIGEST,
        folder=folder,
        suite="tiny",
        orders={},
        by_nonce={},
    )
    statement.write(folder, wanted, fleet, key or keys.development_key())
    return analysis
