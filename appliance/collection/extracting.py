"""From the records of a verified bundle to its rows: pure, and run where it was verified."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from appliance.collection.rows import CaseRow, DeviceRow, MetricRow, RunRow
from appliance.errors import EvidenceError
from appliance.records.json import sha256
from appliance.records.plan import Case
from appliance.records.system import Facts, Identity
from appliance.records.verdict import CaseResult, RulingWord, Verdict
from appliance.storage import bundle as bundles
from appliance.storage.bundle import Bundle

FIRMWARE = ("driver", "vbios", "firmware", "microcode")
"""Facts of a device that are versions of what runs on it."""
HOST = ("kernel", "bios_version", "distribution", "image_digest", "board_version")
NOT_VERSIONS = ("torch_threads",)
"""Of the software's facts, those that are settings of the run."""
MOST_FAILURES = 5
BADNESS: dict[RulingWord, int] = {"not_applicable": 0, "pass": 1, "inconclusive": 2, "fail": 3}


def run_row(bundle: Bundle) -> RunRow:
    """The rows of one run; EvidenceError where it was not judged and signed."""
    verdict, signer = bundle.verdict, bundle.signer
    if verdict is None or signer is None:
        raise EvidenceError("the bundle says neither who signed nor what was decided")
    plan, identity = bundle.plan, bundle.system.identity
    by_id = {case.id: case for case in plan.cases}
    results = [result for result in verdict.cases if result.case in by_id]
    return RunRow(
        run_id=plan.run_id,
        created_utc=plan.created_utc,
        seconds=_seconds(plan.created_utc, bundle.lines[-1].utc) if bundle.lines else 0.0,
        bench_version=plan.bench_version,
        sessions=plan.sessions,
        verdict=verdict.verdict,
        signer=signer.subject,
        role=signer.role,
        journal=sha256(bundle.files[bundles.JOURNAL]),
        statement=sha256(bundle.files[bundles.STATEMENT]),
        system_serial=_text(identity.host, "system_serial"),
        num_launches=verdict.num_made,
        num_failed=verdict.num_failed,
        failures=tuple(_failures(verdict)),
        devices=tuple(_devices(identity)),
        components=dict(_components(identity)),
        cases=tuple(_case(by_id[one.case], one, verdict) for one in results),
        metrics=tuple(row for one in results for row in _metrics(by_id[one.case], one)),
    )


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _text(facts: Facts, name: str) -> str | None:
    value = facts[name].value if name in facts else None
    return None if value is None else str(value)


def _failures(verdict: Verdict) -> list[str]:
    """Why the run is not accepted: the first required rulings that are no pass."""
    open_rulings = [
        ruling
        for ruling in verdict.rulings
        if ruling.required and ruling.ruling in {"fail", "inconclusive"}
    ]
    ordered = sorted(open_rulings, key=lambda ruling: -BADNESS[ruling.ruling])
    return [f"{one.case or one.criterion}: {one.explanation}" for one in ordered[:MOST_FAILURES]]


def _devices(identity: Identity) -> Iterator[DeviceRow]:
    for device in identity.devices:
        yield DeviceRow(
            device=device.id,
            vendor=device.vendor,
            model=device.model,
            serial=device.serial,
            memory_bytes=device.memory_bytes,
        )


def _components(identity: Identity) -> Iterator[tuple[str, str]]:
    """Every version by name; of several devices with other versions, all that there are."""
    for name in sorted(identity.software):
        value = _text(identity.software, name)
        if value is not None and name not in NOT_VERSIONS:
            yield name, value
    for name in HOST:
        value = _text(identity.host, name)
        if value is not None:
            yield name, value
    for name in FIRMWARE:
        values = {_text(device.facts, name) for device in identity.devices}
        if known := sorted(value for value in values if value is not None):
            yield f"device {name}", ", ".join(known)


def _name(case: Case) -> str:
    """The case without its device: what is compared between nodes."""
    return case.id.partition("@")[0]


def _device(case: Case) -> str:
    return case.id.partition("@")[2] or case.device


def _case(case: Case, result: CaseResult, verdict: Verdict) -> CaseRow:
    rulings = [one.ruling for one in verdict.rulings if one.case == case.id]
    return CaseRow(
        case=case.id,
        name=_name(case),
        workload=case.workload,
        device=_device(case),
        planned=result.num_planned,
        completed=result.num_completed,
        failed_checks=sum(check.num_outside for check in result.checks),
        ruling=max(rulings, key=BADNESS.__getitem__, default=""),
        withheld=result.withheld,
    )


def _metrics(case: Case, result: CaseResult) -> Iterator[MetricRow]:
    for estimate in result.estimates:
        yield MetricRow(
            case=case.id,
            name=_name(case),
            device=_device(case),
            metric=estimate.name,
            value=estimate.value,
            unit=estimate.unit,
            low=estimate.low,
            high=estimate.high,
            count=estimate.count,
        )
