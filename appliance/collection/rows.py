"""What is kept of a bundle: the rows that the tables are made of, and why a bundle does not count.

A row is written by the child that verified the bundle and read strictly by the parent, as that
child has read what a stranger wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.records.json import BigInt, Number, Record
from appliance.records.verdict import VerdictWord

RefusalReason = Literal[
    "",
    "unreadable",
    "not_verified",
    "foreign",
    "double",
    "other_node",
    "unfinished",
]
"""Why a bundle does not count.

unreadable: no bundle can be read there; not_verified: a check of `bench verify` fails, or it leaves
open what the campaign asks; foreign: made under no challenge, or under that of another campaign;
double: the same run lies elsewhere too; other_node: its hardware is that of another node;
unfinished: a run without its last file, which may still come.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow(Record):
    """One device of a node; None is what was not reported."""

    device: str
    vendor: str
    model: str
    serial: str | None
    memory_bytes: BigInt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow(Record):
    """One case of a run: its launches, and the worst of its rulings.

    `name` is the case without its device, by which nodes are compared.
    """

    case: str
    name: str
    workload: str
    device: str
    planned: int
    completed: int
    failed_checks: int
    ruling: str
    withheld: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow(Record):
    """One estimate of a case, with its interval where there is one."""

    case: str
    name: str
    device: str
    metric: str
    value: Number
    unit: str
    low: Number | None
    high: Number | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(Record):
    """One verified run. `components` are versions of software and firmware by name.

    `failures` are the first sentences of what kept the run from being accepted; `statement` is the
    sha256 of statement.dsse.json, `journal` of journal.jsonl. `seconds` is from the plan to the
    last line of the journal, by the node's clock.
    """

    run_id: str
    created_utc: str
    seconds: Number
    bench_version: str
    sessions: int
    verdict: VerdictWord
    signer: str
    role: str
    journal: str
    statement: str
    system_serial: str | None
    num_launches: int
    num_failed: int
    failures: tuple[str, ...]
    devices: tuple[DeviceRow, ...]
    components: Mapping[str, str]
    cases: tuple[CaseRow, ...]
    metrics: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    """What one reading of a bundle came to; `run` is None where it does not count.

    `node` is the one whose challenge the bundle was made under, empty where there is none.
    """

    node: str
    reason: RefusalReason
    sentence: str
    run: RunRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Record):
    """One line of the ledger: a bundle as it was read. `digest` is the sha256 of its last file.

    `source` is where it lies; `digest` is that of report.dsse.json, or of the zip. `trust` is the
    digest of whose signatures counted when it was read (`Request.trust`), empty in ledgers of bench
    0.9 and before.
    """

    source: str
    digest: str
    num_bytes: BigInt
    finding: Finding
    trust: str = ""
