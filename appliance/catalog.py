"""Reads the TOML and JSON data files (suites, criteria, peaks, baselines) into records.

A name is looked for among the files that the appliance ships; a path is read as it is. An
unknown key, a wrong type or an impossible value is a UsageError in one sentence, with the
nearest right word where there is one. Nothing in these files is ever evaluated as code.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from appliance.errors import UsageError
from appliance.records import (
    Baseline,
    Baselines,
    Criteria,
    Criterion,
    Peaks,
    Suite,
    SuiteCase,
    adapter,
)

ROOT = Path(__file__).parents[1]
SUITES = ROOT / "workloads" / "suites"
CRITERIA = ROOT / "appliance" / "criteria"
DEVICES = ROOT / "appliance" / "devices"
BASELINES = ROOT / "appliance" / "baselines"
FUNCTIONAL_KINDS = ("completion", "numeric", "determinism")

R = TypeVar("R")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """' (did you mean "x"?)' for a near miss among `choices`, else the choices themselves."""
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f' (did you mean "{near[0]}"?)'
    return f" (there are: {', '.join(known)})" if known else ""


def list_suites() -> tuple[str, ...]:
    """Names of the suites that are shipped."""
    return tuple(sorted(path.stem for path in SUITES.glob("*.toml")))


def list_criteria() -> tuple[str, ...]:
    """Names of the criteria files that are shipped."""
    return tuple(sorted(path.stem for path in CRITERIA.glob("*.toml")))


def load_suite(name_or_path: str) -> tuple[Suite, bytes]:
    """A suite and the bytes that it was read from, whose digest the plan keeps."""
    path, data = _find("suite", name_or_path, SUITES)
    suite = parse(Suite, data, path.name)
    _check_suite(suite, path.name)
    return suite, data


def load_criteria(name_or_path: str) -> tuple[Criteria, bytes]:
    """Criteria and the bytes that they were read from, which go into the bundle."""
    path, data = _find("criteria", name_or_path, CRITERIA)
    return parse_criteria(data, path.name), data


def parse_criteria(data: bytes, name: str) -> Criteria:
    """Criteria from the bytes of a file called `name`; UsageError if a limit cannot be judged."""
    criteria = parse(Criteria, data, name)
    _unique(name, "criterion", [criterion.id for criterion in criteria.criterion])
    for criterion in criteria.criterion:
        fault = _fault(criterion)
        if fault:
            raise UsageError(f'{name}: criterion "{criterion.id}" {fault}')
    return criteria


def load_peaks(models: Sequence[str]) -> Peaks:
    """The makers' figures for these models; empty where none is known."""
    files = sorted(DEVICES.glob("*.toml"))
    known = [peak for path in files for peak in parse(Peaks, path.read_bytes(), path.name).peak]
    return Peaks(peak=tuple(peak for peak in known if peak.model in models))


def load_baselines(models: Sequence[str]) -> Baselines:
    """Our measured figures for these models; empty where none exists."""
    found: list[Baseline] = []
    for path in sorted(BASELINES.glob("*.json")):
        found += parse_json(Baselines, path.read_bytes(), path.name).baseline
    return Baselines(baseline=tuple(item for item in found if item.model in models))


def parse(kind: type[R], data: bytes, name: str) -> R:
    """One record from TOML; UsageError names the file, the line or the key, and the fix."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    return parse_json(kind, json.dumps(_with_words(table), default=str).encode(), name)


def parse_json(kind: type[R], data: bytes, name: str) -> R:
    """One record from JSON, strictly."""
    try:
        record: R = adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{name}: {_sentence(kind, first)}") from None
    return record


def _find(what: str, name_or_path: str, folder: Path) -> tuple[Path, bytes]:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        path = folder / f"{name_or_path}.toml"
        if not path.is_file():
            hint = did_you_mean(name_or_path, (file.stem for file in folder.glob("*.toml")))
            raise UsageError(f'there is no {what} called "{name_or_path}"{hint}')
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} file {path} cannot be read ({error.strerror})") from None


def _with_words(value: object) -> object:
    """The same table with non-finite numbers as the words that records read."""
    if isinstance(value, dict):
        return {key: _with_words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_words(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _sentence(kind: type[object], fault: Any) -> str:
    *parents, last = [*fault["loc"], ""][:-1] or ["the file"]
    where = ".".join(str(part) for part in (*parents, last))
    if fault["type"] == "unexpected_keyword_argument":
        return f'unknown key "{where}"{did_you_mean(str(last), _keys(kind, parents))}'
    if fault["type"] in ("missing_argument", "missing_keyword_only_argument", "missing"):
        return f'the key "{where}" is missing'
    return f'the key "{where}" is wrong: {fault["msg"].lower()}'


def _keys(kind: Any, parents: Sequence[object]) -> list[str]:
    """Names of the keys that may stand at this place of a record."""
    for part in parents:
        if isinstance(part, int):
            continue
        kind = next((field.type for field in fields(kind) if field.name == part), None)
        kind = {"tuple[SuiteCase, ...]": SuiteCase, "tuple[Criterion, ...]": Criterion}.get(
            str(kind), kind
        )
        if not is_dataclass(kind):
            from appliance import records  # noqa: PLC0415 - annotations are words until asked

            kind = getattr(records, str(kind), None)
        if kind is None:
            return []
    return [field.name for field in fields(kind)]


def _unique(name: str, what: str, ids: Sequence[str]) -> None:
    twice = sorted({item for item in ids if ids.count(item) > 1})
    if twice:
        raise UsageError(f'{name}: the {what} "{twice[0]}" stands there twice; rename one')


def _check_suite(suite: Suite, name: str) -> None:
    if not suite.case:
        raise UsageError(f"{name} plans nothing: it needs at least one [[case]]")
    _unique(name, "case", [case.id for case in suite.case])
    looks = suite.protocol.looks
    if not looks or list(looks) != sorted(set(looks)) or looks[0] < 1:
        raise UsageError(f'{name}: the key "protocol.looks" must rise from 1 or more')
    limits = [suite.time_limit_seconds, suite.protocol.block_seconds]
    for case in suite.case:
        limits += [case.expected_seconds, case.reference_seconds]
        limits += [case.time_limit_seconds, case.memory_limit_gib]
        if case.launches is not None and case.launches < 1:
            raise UsageError(f'{name}: case "{case.id}" must have at least 1 launch')
    if not all(math.isfinite(limit) and limit > 0 for limit in limits):
        raise UsageError(f"{name}: every time and memory limit must be a positive number")
    if min(suite.protocol.blocks, suite.protocol.block_steps) < 1:
        raise UsageError(f"{name}: a launch needs at least one block of one step")


def _fault(criterion: Criterion) -> str:
    """Why this criterion cannot be judged, or nothing."""
    limits = [limit for limit in (criterion.at_least, criterion.at_most) if limit is not None]
    if criterion.kind in FUNCTIONAL_KINDS:
        if not criterion.required or limits or criterion.metric:
            return "is functional: it is always required and takes no limit"
        return ""
    if len(limits) != 1 or not criterion.metric:
        return 'needs a "metric" and one of "at_least" and "at_most"'
    if not math.isfinite(limits[0]) or limits[0] <= 0:
        return f"has the limit {limits[0]}, which nothing can meet: give a positive number"
    wants_most = criterion.metric == "step_seconds"
    if wants_most != (criterion.at_most is not None):
        word = "at_most" if wants_most else "at_least"
        return f'judges {criterion.metric}, so its limit must be "{word}"'
    return ""
