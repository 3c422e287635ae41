"""Qualified records: appliance/qualified, a file for each model of device and stack of libraries.

They are written by `bench qualify` and scripts/record_repeats.py, and never by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from appliance.errors import UsageError
from appliance.records.plan import Case
from appliance.records.qualified import (
    IdleNeighbour,
    IdlePair,
    ObservedCase,
    Qualified,
    QualifiedRecord,
    ReferenceRate,
)
from appliance.records.system import Device
from appliance.storage.toml_file import ROOT, parse_json

QUALIFIED = ROOT / "appliance" / "qualified"
MOST_REPEATS = 10**9


def load_qualified(models: Sequence[str], folder: Path = QUALIFIED) -> Qualified:
    """The shipped records on these models by which is ruled; empty where nothing is known.

    They are those of repeats, and of processes that waited.
    UsageError for a record by which nothing can be ruled, or two of the same.
    """
    files = _files(folder)
    selected = Qualified(
        record=tuple(item for one in files for item in one.record if item.model in models),
        idle=tuple(item for one in files for item in one.idle if item.model in models),
    )
    check_qualified(selected, folder.name)
    return selected


def load_observed(
    models: Sequence[str] | None = None, folder: Path = QUALIFIED
) -> tuple[ObservedCase, ...]:
    """What was observed of cases on these models, or on all; by it nothing is ruled."""
    observed = (item for one in _files(folder) for item in one.observed)
    return tuple(item for item in observed if models is None or item.model in models)


def load_records(folder: Path = QUALIFIED) -> Qualified:
    """All that is shipped, of every model."""
    files = _files(folder)
    return Qualified(
        record=tuple(item for one in files for item in one.record),
        observed=tuple(item for one in files for item in one.observed),
        idle=tuple(item for one in files for item in one.idle),
    )


def _files(folder: Path) -> Sequence[Qualified]:
    return _shipped() if folder == QUALIFIED else _parsed(folder)


@cache
def _shipped() -> Sequence[Qualified]:
    """Those of the package, read once: a program that verifies many bundles asks for each."""
    return _parsed(QUALIFIED)


def _parsed(folder: Path) -> Sequence[Qualified]:
    return [parse_qualified(path.read_bytes(), path.name) for path in sorted(folder.glob("*.json"))]


def load_for_run(cases: Sequence[Case], devices: Sequence[Device]) -> Qualified:
    """What a bundle of these cases carries: the records of its models, and rates of its cases."""
    models = [device.model for device in devices]
    rates = reference_rates(load_observed(models), cases, devices)
    return replace(load_qualified(models), rate=rates)


def reference_rates(
    observed: Iterable[ObservedCase], cases: Sequence[Case], devices: Sequence[Device]
) -> tuple[ReferenceRate, ...]:
    """The rates that were observed of the same work as one of the cases, on its device's model."""
    models = {device.id: device.model for device in devices}
    return tuple(
        ReferenceRate(
            workload=one.workload,
            version=one.version,
            parameters=one.parameters,
            model=one.model,
            stack=one.stack,
            num_devices=len(one.devices),
            units_per_second=one.units_per_second,
            unit=one.unit,
            disturbed=one.disturbed,
            recorded_utc=one.recorded_utc,
            bench_version=one.bench_version,
        )
        for one in observed
        if one.units_per_second is not None
        and any(is_same_work(one, case, models.get(case.device)) for case in cases)
    )


def is_same_work(one: ObservedCase | ReferenceRate, case: Case, model: str | None) -> bool:
    """Whether it is of this very work on this model: what a case is called does not matter."""
    is_same = (one.workload, one.version, one.model) == (case.workload, case.version, model)
    return is_same and dict(one.parameters) == dict(case.parameters)


def file_name(model: str, stack: Mapping[str, str]) -> str:
    """What the file of a model with a stack is called: MODEL--torch-VERSION.json."""
    version = stack.get("torch", "unknown")
    return f"{slug(model)}--torch-{slug(version)}.json"


def slug(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "unnamed"


def by_file(qualified: Qualified) -> dict[str, Qualified]:
    """The records as the files that they are checked in as, by name."""
    names = dict.fromkeys(map(_file_of, qualified.record))
    names |= dict.fromkeys(map(_file_of, qualified.observed))
    names |= dict.fromkeys(map(_file_of, qualified.idle))

    def of(name: str) -> Qualified:
        def is_in(one: QualifiedRecord | ObservedCase | IdleNeighbour) -> bool:
            return _file_of(one) == name

        return Qualified(
            record=tuple(filter(is_in, qualified.record)),
            observed=tuple(filter(is_in, qualified.observed)),
            idle=tuple(filter(is_in, qualified.idle)),
        )

    return {name: of(name) for name in names}


def _file_of(one: QualifiedRecord | ObservedCase | IdleNeighbour) -> str:
    return file_name(one.model, one.stack)


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
    cases: list[tuple[object, ...]] = []
    for one in qualified.observed:
        where = f'{name}: what was observed of case "{one.case}" on {one.model}'
        if not one.stack or not all(one.stack.values()) or not one.devices:
            raise UsageError(f"{where} names no library stack or no device: qualify it again")
        place = (one.case, one.size, one.version, one.model, dict(one.stack))
        if place in cases:
            raise UsageError(f"{where} stands there twice for one library stack; remove one")
        cases.append(place)
    for rate in qualified.rate:
        if not 0.0 < rate.units_per_second < math.inf or not rate.stack or rate.num_devices < 1:
            where = f'{name}: the rate of workload "{rate.workload}" on {rate.model}'
            raise UsageError(f"{where} is none, or of no device or library stack: leave it out")
    _check_idle(qualified.idle, name)


def _check_idle(idle: Iterable[IdleNeighbour], name: str) -> None:
    """UsageError for a record of a process that waited by which nothing can be ruled."""
    seen: list[tuple[str, str]] = []
    for one in idle:
        where = f"{name}: the record of a process that waited on {one.model}"
        if not one.stack or not all(one.stack.values()) or not one.device or not one.source:
            raise UsageError(f"{where} names no library stack, device or source: qualify it again")
        times = [value for pairs in one.pairs.values() for p in pairs for value in _seconds(p)]
        if not times or not all(0.0 < value < math.inf for value in times):
            raise UsageError(f"{where} has no pairs, or a time that is none: qualify it again")
        if (one.model, one.source) in seen:
            raise UsageError(f"{where} stands there twice of one source; remove one")
        seen.append((one.model, one.source))


def _seconds(pair: IdlePair) -> tuple[float, float]:
    return pair.alone, pair.beside


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
