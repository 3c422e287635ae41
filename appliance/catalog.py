"""Reads the TOML and JSON data files (suites, criteria, peaks, baselines) into records.

A name is looked for among the files that the appliance ships; a path is read as it is. An
unknown key, a wrong type or an impossible value is a UsageError in one sentence, with the
nearest right word where there is one. Nothing in these files is ever evaluated as code.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from appliance.errors import UsageError
from appliance.records import (
    Baseline,
    Baselines,
    Criteria,
    Criterion,
    DataFile,
    Datasets,
    Peaks,
    Protocol,
    Suite,
    SuiteCase,
    adapter,
)

ROOT = Path(__file__).parents[1]
SUITES = ROOT / "workloads" / "suites"
CRITERIA = ROOT / "appliance" / "criteria"
DEVICES = ROOT / "appliance" / "devices"
BASELINES = ROOT / "appliance" / "baselines"
DATASETS = ROOT / "workloads" / "datasets.toml"
FUNCTIONAL_KINDS = ("completion", "numeric", "determinism")
CASE_ID = re.compile(r"\w[\w.-]*", re.ASCII)  # "@" and "/" part a case from device and launch
LARGEST_INT = 2**53 - 1  # beyond it JSON numbers are not exact

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
    for peak in known:
        _positive(f'peak "{peak.quantity}" of {peak.model}', "value", peak.value)
    return Peaks(peak=tuple(peak for peak in known if peak.model in models))


def load_baselines(models: Sequence[str]) -> Baselines:
    """Our measured figures for these models; empty where none exists."""
    found: list[Baseline] = []
    for path in sorted(BASELINES.glob("*.json")):
        found += parse_json(Baselines, path.read_bytes(), path.name).baseline
    return Baselines(baseline=tuple(item for item in found if item.model in models))


def load_datasets(path: Path = DATASETS) -> Datasets:
    """The data sets that workloads may name; UsageError if a file is not pinned."""
    try:
        datasets = parse(Datasets, path.read_bytes(), path.name)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    _unique(path.name, "data set", [dataset.name for dataset in datasets.dataset])
    for dataset in datasets.dataset:
        _unique(path.name, f"file of {dataset.name}", [file.name for file in dataset.file])
        if bool(dataset.file) == bool(dataset.package) or not _is_file_name(dataset.name):
            raise UsageError(f'{path.name}: "{dataset.name}" needs files or else a package')
        for file in dataset.file:
            if not _is_pinned(file):
                raise UsageError(
                    f"{path.name}: {dataset.name}/{file.name} needs its https address, its size "
                    "and its sha256"
                )
    return datasets


def parse(kind: type[R], data: bytes, name: str) -> R:
    """One record from TOML; UsageError names the file, the line or the key, and the fix."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from None
    # A date is no value of any record: as a table it is refused wherever it stands.
    return parse_json(kind, json.dumps(table, default=lambda date: {"date": str(date)}), name)


def parse_json(kind: type[R], data: bytes | str, name: str) -> R:
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


MUST_BE = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "mapping_type": "a table",
    "dict_type": "a table",
    "dataclass_type": "a table",
}


def _sentence(kind: type[object], fault: Any) -> str:
    """What is wrong with a file, in the words of the file and none of the reader's."""
    place: tuple[str | int, ...] = fault["loc"] or ("the file",)
    *parents, last = place
    if "parameters" in parents:  # what follows the parameter's name is one of its possible types
        *parents, last = place[: place.index("parameters") + 2]
        return f"{_key(parents, last)} must be a finite number, a text, true or false"
    if fault["type"] == "unexpected_keyword_argument":
        return f"unknown {_key(parents, last)}{did_you_mean(str(last), _keys(kind, parents))}"
    if fault["type"] == "missing":
        return f"{_key(parents, last)} is missing"
    if fault["type"] == "literal_error":
        choices = re.findall("'([^']*)'", fault["ctx"]["expected"])
        hint = did_you_mean(str(fault["input"]), choices)
        return f'{_key(parents, last)} cannot be "{fault["input"]}"{hint}'
    wanted = MUST_BE.get(fault["type"])
    if wanted is None:
        return f"{_key(parents, last)} is wrong: {fault['msg'].lower()}"
    return f"{_key(parents, last)} must be {wanted}"


def _key(parents: Sequence[object], last: object) -> str:
    """'key "mode" of protocol', 'key "id" of case 3'; people count from one."""
    name = f'key "{last}"' if isinstance(last, str) else f"item {_from_one(last)}"
    return f"{name} of {' '.join(map(_from_one, parents))}" if parents else name


def _from_one(part: object) -> str:
    return str(part + 1) if isinstance(part, int) else str(part)


def _keys(kind: Any, parents: Sequence[object]) -> list[str]:
    """Names of the keys that may stand at this place of a record."""
    for part in parents:
        if isinstance(part, str):
            hint = get_type_hints(kind)[part]
            kind = next(iter(get_args(hint)), hint)  # of a tuple, what it holds
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def _unique(name: str, what: str, ids: Sequence[str]) -> None:
    twice = sorted({item for item in ids if ids.count(item) > 1})
    if twice:
        raise UsageError(f'{name}: the {what} "{twice[0]}" stands there twice; rename one')


def _is_file_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name))


def _is_pinned(file: DataFile) -> bool:
    return (
        _is_file_name(file.name)
        and bool(file.urls)
        and all(url.startswith(("https://", "http://127.0.0.1:")) for url in file.urls)
        and bool(re.fullmatch(r"[0-9a-f]{64}", file.sha256))
        and file.size_bytes > 0
    )


def _check_suite(suite: Suite, name: str) -> None:
    if not suite.case:
        raise UsageError(f"{name} plans nothing: it needs at least one [[case]]")
    _unique(name, "case", [case.id for case in suite.case])
    _check_protocol(suite.protocol, name)
    _positive(name, "time_limit_seconds", suite.time_limit_seconds)
    for case in suite.case:
        _check_case(case, f'{name}, case "{case.id}"')


def _check_protocol(protocol: Protocol, name: str) -> None:
    looks = protocol.looks
    if not looks or list(looks) != sorted(set(looks)) or looks[0] < 1:
        raise UsageError(f'{name}: key "looks" of protocol must rise from 1 or more')
    if min(protocol.blocks, protocol.block_steps) < 1:
        raise UsageError(f"{name}: a launch needs at least one block of one step")
    if protocol.warmup_steps < 0:
        raise UsageError(f'{name}: key "warmup_steps" of protocol must be 0 or more')
    _positive(name, "block_seconds", protocol.block_seconds)


def _check_case(case: SuiteCase, name: str) -> None:
    if not CASE_ID.fullmatch(case.id):
        raise UsageError(f"{name}: an id may have letters, digits, dot, dash and underscore only")
    for key in ("expected_seconds", "reference_seconds", "time_limit_seconds", "memory_limit_gib"):
        _positive(name, key, getattr(case, key))
    if case.launches is not None and case.launches < 1:
        raise UsageError(f"{name} must have at least 1 launch")
    for key, value in case.parameters.items():
        if not isinstance(value, str) and abs(value) > LARGEST_INT:
            raise UsageError(f'{name}: parameter "{key}" is beyond 2**53; give a smaller number')


def _positive(name: str, key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f'{name}: key "{key}" is {value}; it must be a positive number')


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
