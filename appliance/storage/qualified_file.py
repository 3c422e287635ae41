"""Qualified records: appliance/qualified, each file written by scripts/record_repeats.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from appliance.errors import UsageError
from appliance.records.qualified import Qualified, QualifiedRecord
from appliance.storage.toml_file import ROOT, parse_json

QUALIFIED = ROOT / "appliance" / "qualified"
MOST_REPEATS = 10**9


def load_qualified(models: Sequence[str], folder: Path = QUALIFIED) -> Qualified:
    """The shipped records of these models; empty where nothing is known.

    UsageError for a record by which nothing can be ruled, or two of the same.
    """
    records: list[QualifiedRecord] = []
    for path in sorted(folder.glob("*.json")):
        records += parse_qualified(path.read_bytes(), path.name).record
    selected = Qualified(record=tuple(item for item in records if item.model in models))
    check_qualified(selected, folder.name)
    return selected


def parse_qualified(data: bytes, name: str) -> Qualified:
    """Records from the bytes of a file called `name`, each of them sound."""
    qualified = parse_json(Qualified, data, name)
    check_qualified(qualified, name)
    return qualified


def check_qualified(qualified: Qualified, name: str) -> None:
    """UsageError for a record of a file called `name` by which nothing can be ruled."""
    seen: list[tuple[object, ...]] = []
    for record in qualified.record:
        where = f'{name}: the record of workload "{record.workload}" on {record.model}'
        fault = _fault(record)
        if fault:
            raise UsageError(f"{where} {fault}: record it again with scripts/record_repeats.py")
        key = (record.workload, record.version, record.model, dict(record.stack))
        if key in seen:
            raise UsageError(f"{where} stands there twice for one library stack; remove one")
        seen.append(key)


def _fault(record: QualifiedRecord) -> str:
    """Why nothing can be ruled by this record, or nothing."""
    if not record.stack or not all(record.stack.values()):
        return "names no library stack"
    if record.form == "no_deterministic_form":
        return "counts clean repeats of what has no deterministic form" if record.num_clean else ""
    if not 1 <= record.num_clean <= MOST_REPEATS:
        return f"is of {record.num_clean} clean repeats, from which no rate follows"
    if not record.devices or len(set(record.devices)) != len(record.devices):
        return "names no device, or one of them twice"
    return "" if record.sources else "names no journal that shows it"
