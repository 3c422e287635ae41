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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from appliance import given
from appliance.errors import UsageError
from appliance.records import (
    MARGINS,
    Baseline,
    Baselines,
    Criteria,
    Criterion,
    DataFile,
    Datasets,
    DeviceFile,
    Figure,
    Peak,
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
FUNCTIONAL_KINDS = ("completion", "integrity", "numeric", "determinism")
CHECK_KINDS = ("exact", "trajectory", "collective")
LIMIT_KEYS = ("at_least", "at_most", "equals", "fraction_of_peak", "within_of_baseline")
RATES = ("units_per_second", "flops_per_second", "bytes_per_second")
UNITS: Mapping[str, tuple[str, float]] = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "FLOP/s": ("FLOP/s", 1.0),
    "GFLOP/s": ("FLOP/s", 1e9),
    "TFLOP/s": ("FLOP/s", 1e12),
    "PFLOP/s": ("FLOP/s", 1e15),
    "B/s": ("B/s", 1.0),
    "MB/s": ("B/s", 1e6),
    "GB/s": ("B/s", 1e9),
    "TB/s": ("B/s", 1e12),
    "steps": ("steps", 1.0),
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "TiB": ("B", 2.0**40),
    "bit/s": ("bit/s", 1.0),
    "Mbit/s": ("bit/s", 1e6),
    "Gbit/s": ("bit/s", 1e9),
    "T/s": ("T/s", 1.0),
    "MT/s": ("T/s", 1e6),
    "Hz": ("Hz", 1.0),
    "kHz": ("Hz", 1e3),
    "MHz": ("Hz", 1e6),
    "GHz": ("Hz", 1e9),
    "W": ("W", 1.0),
    "kW": ("W", 1e3),
    "°C": ("°C", 1.0),
    "bits": ("bits", 1.0),
    "processors": ("processors", 1.0),
}
"""Units in which people may write: the SI unit and how many of it one is."""
FACT_UNITS: Mapping[str, str] = {
    "bytes": "B",
    "bytes per second": "B/s",
    "bytes/s": "B/s",
    "bytes_per_second": "B/s",
    "transfers/s": "T/s",
    "hertz": "Hz",
    "watts": "W",
    "celsius": "°C",
    "seconds": "s",
}
"""The units of facts that are written out: what they are called in `UNITS`."""
METRIC_UNITS: Mapping[str, str] = {
    "step_seconds": "s",
    "first_step_seconds": "s",
    "latency_seconds": "s",
    "seconds_to_target": "s",
    "steps_to_target": "steps",
    "flops_per_second": "FLOP/s",
    "bytes_per_second": "B/s",
    "units_per_second": "",  # the workload's own, which a limit need not name
    "stall_rate": "",
    "stall_share": "",
    "slow_launch_rate": "",
    "drift_per_30_minutes": "",
    "throughput_ratio": "",
}
"""The SI unit of each metric that is judged by times."""
KIND_METRICS = {
    "perf": (
        "step_seconds",
        "first_step_seconds",
        "seconds_to_target",
        "steps_to_target",
        "throughput_ratio",
        *RATES,
    ),
    "tail": ("stall_rate", "stall_share", "latency_seconds", "slow_launch_rate"),
    "drift": ("drift_per_30_minutes",),
}
PARTS = ("stall_rate", "stall_share", "slow_launch_rate", "drift_per_30_minutes")  # limits below 1
WITHOUT_BASELINE = (
    "first_step_seconds",
    "seconds_to_target",
    "steps_to_target",
    "throughput_ratio",
)
ORDER_LINE = "order:"  # how the requirements of an order are named, which no criterion may be
LARGEST_RISK = 0.05
LARGEST_MARGIN = 10.0
CASE_ID = re.compile(r"\w[\w.-]{0,79}", re.ASCII)  # "@", "/" part it from device and launch
MOST_LAUNCHES = 10_000  # of a case; a plan names each
LARGEST_INT = 2**53 - 1  # beyond it JSON numbers are not exact
MEMORY_CLASSES = (16, 24, 48, 80, 141, 192)  # GiB by which a suite may give parameters
LEAST_LAUNCHES, LEAST_DEVICES = 5, 2  # of a baseline: below, a spread is a guess
LEAST_LOG_SECONDS, LARGEST_LOG_SECONDS = math.log(1e-9), math.log(1e6)
FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8")
QUANTITIES: Mapping[str, str] = {
    **{f"{name}_flops_per_second": "FLOP/s" for name in FORMATS},
    **{f"{name}_matrix_flops_per_second": "FLOP/s" for name in ("float64", "float32")},
    "int8_operations_per_second": "OP/s",
    "memory_bytes_per_second": "B/s",
    "memory_bytes": "B",
}
"""What a device file may state, with its unit; matrix units of 64 and 32 bits are kept apart."""

LONGEST_TITLE = 120
"""Characters; what stands in every table must leave room for the rest."""
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
    _check_risks(criteria, name)
    criteria = replace(criteria, margins={**MARGINS, **criteria.margins})
    _unique(name, "criterion", [criterion.id for criterion in criteria.criterion])
    for number, criterion in enumerate(criteria.criterion, 1):
        unseen = _text_fault({"id": criterion.id, "title": criterion.title})
        if unseen:
            raise UsageError(f"{name}: criterion {number} {unseen}")
        if criterion.id.startswith(ORDER_LINE):
            raise UsageError(f'{name}: criterion "{criterion.id}" is named like a line of an order')
        fault = _fault(criterion)
        if fault:
            raise UsageError(f'{name}: criterion "{criterion.id}" {fault}')
    return criteria


def load_peaks(models: Sequence[str]) -> Peaks:
    """The makers' figures for these models; empty where none is known.

    UsageError for a figure in another unit than its quantity has, for one that is not a positive
    number, and for a model or a quantity that stands there twice.
    """
    peaks: list[Peak] = []
    owners: dict[str, str] = {}
    for path in sorted(DEVICES.glob("*.toml")):
        device = parse(DeviceFile, path.read_bytes(), path.name)
        _check_device(device, path.name)
        for model in device.models:
            if model in owners:
                raise UsageError(f'"{model}" stands in {owners[model]} and in {path.name}')
            owners[model] = path.name
            if model in models:
                peaks += [_peak(model, figure) for figure in device.figure]
    return Peaks(peak=tuple(peaks))


def load_baselines(models: Sequence[str], path: Path | None = None) -> Baselines:
    """Our measured figures: those that are shipped for these models, or all of the file `path`.

    A baseline of a named file is kept whatever its model, so that the judge can say what differs.
    UsageError for a figure that cannot be one (not positive, not finite, of too few launches).
    """
    if path is not None:
        return parse_baselines(given.read(path, what="baseline file"), path.name)
    found: list[Baseline] = []
    for shipped in sorted(BASELINES.glob("*.json")):
        found += parse_baselines(shipped.read_bytes(), shipped.name).baseline
    return Baselines(baseline=tuple(item for item in found if item.key.model in models))


def parse_baselines(data: bytes, name: str) -> Baselines:
    """Baselines from the bytes of a file called `name`, each of them sound."""
    baselines = parse_json(Baselines, data, name)
    check_baselines(baselines, name)
    return baselines


def check_baselines(baselines: Baselines, name: str) -> None:
    """UsageError for a baseline of a file called `name` with which nothing can be compared."""
    for number, baseline in enumerate(baselines.baseline, 1):
        fault = _baseline_fault(baseline)
        if fault:
            where = f'{name}: baseline {number}, of the case "{baseline.key.case}",'
            raise UsageError(f"{where} {fault}: make it again")
        if baseline in baselines.baseline[: number - 1]:
            raise UsageError(f"{name}: baseline {number} stands there twice; remove one")


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
        table = tomllib.loads(data.decode("utf-8-sig"))  # editors may put a mark before the text
        # A date is no value of any record: as a table it is refused wherever it stands.
        text = json.dumps(table, default=lambda date: {"date": str(date)})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise UsageError(f"{name} has a number of thousands of digits: write it shorter") from None
    except RecursionError:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from None
    return parse_json(kind, text, name)


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
    return path, given.read(path, what=f"{what} file")


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


OF_SEVERAL_TYPES = {"parameters": (2, ""), "value": (1, ", or a list of them")}
"""Keys behind which a fault names a type: how many parts of its place are the file's own."""


def _sentence(kind: type[object], fault: Any) -> str:
    """What is wrong with a file, in the words of the file and none of the reader's."""
    place: tuple[str | int, ...] = fault["loc"] or ("the file",)
    while len(place) > 1 and isinstance(place[-1], str) and "[" in place[-1]:
        place = place[:-1]  # one of the types that a value may have
    *parents, last = place
    for key, (depth, more) in OF_SEVERAL_TYPES.items():
        if key in parents:  # what follows the name is one of the types that it may have
            *parents, last = place[: place.index(key) + depth]
            return f"{_key(parents, last)} must be a finite number, a text, true or false{more}"
    if fault["type"] == "unexpected_keyword_argument":
        return f"unknown {_key(parents, last)}{did_you_mean(str(last), _keys(kind, parents))}"
    if fault["type"] == "missing":
        return f"{_key(parents, last)} is missing"
    if fault["type"] == "literal_error":
        choices = re.findall("'([^']*)'", fault["ctx"]["expected"])
        hint = did_you_mean(str(fault["input"]), choices)
        return f'{_key(parents, last)} cannot be "{fault["input"]}"{hint}'
    wanted = MUST_BE.get(fault["type"])
    if last == "within_of_baseline":
        wanted = 'a number like 0.03, or "class"'
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


def _peak(model: str, figure: Figure) -> Peak:
    return Peak(
        model=model,
        quantity=figure.quantity,
        value=figure.value,
        unit=figure.unit,
        per=figure.per,
        is_confirmed=figure.is_confirmed,
        source=figure.source,
    )


def _check_device(device: DeviceFile, name: str) -> None:
    if not device.models or not all(device.models):
        raise UsageError(f'{name}: key "models" must name the device as its maker\'s tools do')
    _unique(name, "model", device.models)
    _unique(name, "quantity", [figure.quantity for figure in device.figure])
    for figure in device.figure:
        unit = QUANTITIES.get(figure.quantity)
        if unit is None:
            hint = did_you_mean(figure.quantity, QUANTITIES)
            raise UsageError(f'{name}: there is no quantity "{figure.quantity}"{hint}')
        if figure.unit != unit:
            raise UsageError(
                f'{name}: {figure.quantity} is in "{unit}", not in "{figure.unit}": convert it'
            )
        _positive(f"{name}, {figure.quantity}", "value", figure.value)
        if not figure.source.strip():
            raise UsageError(f"{name}: {figure.quantity} needs its source")


def _baseline_fault(baseline: Baseline) -> str:
    """Why nothing can be compared with this baseline, or nothing."""
    positive = {"launch_sd": baseline.launch_sd, "smallest_margin": baseline.smallest_margin}
    for key, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            return f"has {key} {value}, which must be a positive number"
    if not LEAST_LOG_SECONDS <= baseline.log_seconds <= LARGEST_LOG_SECONDS:
        return f"has log_seconds {baseline.log_seconds}, which is no time of a step"
    launches, runs = baseline.num_launches, baseline.num_runs
    if launches < LEAST_LAUNCHES or not 1 <= runs <= launches:
        return f"is of {launches} launches in {runs} runs, which is too few"
    if not baseline.devices or not baseline.bundles:
        return "names no device or no bundle"
    return _population_fault(baseline)


def _population_fault(baseline: Baseline) -> str:
    is_population = baseline.kind == "population"
    spread, tolerance = baseline.device_sd, baseline.tolerance
    if is_population is (spread is None) or is_population is (tolerance is None):
        return "must have device_sd and a tolerance limit as a population, and else neither"
    if spread is None or tolerance is None:
        return ""
    figures = (spread, tolerance.k, tolerance.log_limit)
    if not all(map(math.isfinite, figures)) or spread <= 0 or len(baseline.devices) < LEAST_DEVICES:
        return "has a spread of devices that is no positive number, or of one device"
    return "" if tolerance.log_limit >= baseline.log_seconds else "has its limit below its mean"


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
    check_protocol(suite.protocol, name)
    _positive(name, "time_limit_seconds", suite.time_limit_seconds)
    for case in suite.case:
        _check_case(case, f'{name}, case "{case.id}"')


def check_protocol(protocol: Protocol, name: str) -> None:
    """UsageError, which begins with `name`, for a protocol by which nothing can be measured."""
    looks = protocol.looks
    if not looks or list(looks) != sorted(set(looks)) or looks[0] < 1:
        raise UsageError(f'{name}: key "looks" of protocol must rise from 1 or more')
    if looks[-1] > MOST_LAUNCHES:
        raise UsageError(
            f'{name}: key "looks" of protocol ends at {looks[-1]} launches; end at '
            f"{MOST_LAUNCHES} or fewer"
        )
    if min(protocol.blocks, protocol.block_steps) < 1:
        raise UsageError(f"{name}: a launch needs at least one block of one step")
    for key in ("warmup_steps", "warmup_seconds"):
        value = getattr(protocol, key)
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f'{name}: key "{key}" of protocol must be 0 or more')
    _positive(name, "calibration_seconds", protocol.calibration_seconds)
    _positive(name, "block_seconds", protocol.block_seconds)


def _check_case(case: SuiteCase, name: str) -> None:
    if not CASE_ID.fullmatch(case.id):
        raise UsageError(
            f"{name}: an id may have letters, digits, dot, dash and underscore, 80 in all"
        )
    keys = ("expected_seconds", "reference_seconds", "time_limit_seconds", "memory_limit_gib")
    for key in keys:
        _positive(name, key, getattr(case, key))
    if not (math.isfinite(case.weight) and case.weight >= 0):
        raise UsageError(f'{name}: key "weight" is {case.weight}; it must be 0 or more')
    _check_place(case, name)
    if case.launches is not None and case.launches < 1:
        raise UsageError(f"{name} must have at least 1 launch")
    for parameters in (case.parameters, *(one.parameters for one in case.memory)):
        for key, value in parameters.items():
            if not isinstance(value, str) and abs(value) > LARGEST_INT:
                raise UsageError(
                    f'{name}: parameter "{key}" is beyond 2**53; give a smaller number'
                )


def _check_place(case: SuiteCase, name: str) -> None:
    """What the case asks of the node can be asked."""
    for key in ("num_devices", "num_nodes", "agents"):
        if getattr(case, key) < 1:
            raise UsageError(f'{name}: key "{key}" must be 1 or more')
    if case.agents > 1 and case.scope != "job":
        raise UsageError(f"{name} has {case.agents} agents, of which only a job has several")
    classes = [one.gib for one in case.memory]
    if classes != sorted(set(classes)) or not set(classes) <= set(MEMORY_CLASSES):
        known = ", ".join(map(str, MEMORY_CLASSES))
        raise UsageError(f"{name}: its memory classes must rise and be among {known} GiB")


def _positive(name: str, key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f'{name}: key "{key}" is {value}; it must be a positive number')


def _check_risks(criteria: Criteria, name: str) -> None:
    for key in ("alpha_pass", "alpha_fail"):
        risk = getattr(criteria, key)
        if not 0.0 < risk <= LARGEST_RISK:
            raise UsageError(f'{name}: key "{key}" is {risk}; it must lie between 0 and 0.05')
    for bound, margin in criteria.margins.items():
        if bound not in MARGINS:
            raise UsageError(
                f'{name}: unknown key "{bound}" of margins{did_you_mean(bound, MARGINS)}'
            )
        if not 0.0 < margin <= LARGEST_MARGIN:
            raise UsageError(
                f'{name}: key "{bound}" of margins is {margin}; it must be a positive number'
            )


def _text_fault(texts: Mapping[str, str]) -> str:
    """A name that no table has room for, or that hides something from whoever reads it."""
    for key, text in texts.items():
        if not 0 < len(text.strip()) <= LONGEST_TITLE:
            return f'needs a key "{key}" of 1 to {LONGEST_TITLE} characters'
        if not text.isprintable():
            return f'has a character in its key "{key}" that cannot be seen: take it out'
    return ""


def _fault(criterion: Criterion) -> str:
    """Why this criterion cannot be judged, or nothing."""
    limits = [key for key in LIMIT_KEYS if getattr(criterion, key) is not None]
    if criterion.kind in FUNCTIONAL_KINDS:
        if not criterion.required or limits or criterion.metric:
            return "is functional: it is always required and takes no limit"
        return ""
    if criterion.kind in CHECK_KINDS:
        return "takes no limit: its checks have their own bounds" if limits else ""
    if not criterion.metric:
        return 'needs a "metric"'
    for fault in (_metric_fault, _number_fault, _choice_fault, _quantile_fault, _against_fault):
        found = fault(criterion, limits)
        if found:
            return found
    return ""


def _metric_fault(criterion: Criterion, _: Sequence[str]) -> str:
    """A metric that this kind does not judge, or a limit in a unit that is not the metric's."""
    if criterion.kind == "health" and criterion.unit:
        return (
            f'writes {criterion.metric} in "{criterion.unit}": leave the unit out; counters are '
            "numbers, and readings are in the unit that their name ends in"
        )
    metrics = KIND_METRICS.get(criterion.kind)
    if metrics is None:
        return ""
    if criterion.metric not in metrics:
        hint = did_you_mean(criterion.metric, metrics)
        return f'is of kind {criterion.kind}, which does not judge "{criterion.metric}"{hint}'
    wanted = METRIC_UNITS[criterion.metric]
    units = [unit for unit, (standard, _) in UNITS.items() if standard == wanted]
    if criterion.unit and criterion.unit not in units:
        known = f"use {', '.join(units)}" if units else "leave the unit out"
        return f'writes {criterion.metric} in "{criterion.unit}": {known}'
    return ""


def _number_fault(criterion: Criterion, limits: Sequence[str]) -> str:
    """A limit that is no number, or one that everything or nothing can meet."""
    for key in (*limits, *(("margin",) if criterion.margin is not None else ())):
        value = getattr(criterion, key)
        if isinstance(value, bool | str):
            continue
        if not math.isfinite(value):
            return f'has {value} for "{key}": give a finite number'
        if value <= 0 and criterion.kind not in ("health", "inventory"):
            return f"has the limit {value}, which nothing can meet: give a positive number"
        if key == "fraction_of_peak" and value > 1:
            return f"asks for {value} of the peak, which nothing can reach: give at most 1"
        if criterion.metric in PARTS and value >= 1:
            return f"has the limit {value}, which everything meets: give a part below 1"
    return ""


def _choice_fault(criterion: Criterion, limits: Sequence[str]) -> str:
    """Not exactly one limit of those that the kind and the metric take."""
    allowed = {
        "perf": ("at_most", "at_least", "fraction_of_peak", "within_of_baseline"),
        "health": ("at_least", "at_most"),
        "inventory": ("equals", "at_least", "at_most"),
    }.get(criterion.kind, ("at_most",))
    if len(limits) != 1 or limits[0] not in allowed:
        names = " and ".join(f'"{key}"' for key in allowed)
        return f"needs {'one of ' if len(allowed) > 1 else ''}{names} and no other limit"
    limit = limits[0]
    if criterion.kind == "perf" and limit in ("at_most", "at_least"):
        word = "at_least" if criterion.metric in (*RATES, "throughput_ratio") else "at_most"
        if limit != word:
            return f'judges {criterion.metric}, so its limit must be "{word}"'
    is_rate_of_peak = criterion.metric in ("flops_per_second", "bytes_per_second")
    if limit == "fraction_of_peak" and not is_rate_of_peak:
        return f"has no peak to be compared with: {criterion.metric} is no rate of operations"
    if limit == "within_of_baseline" and criterion.metric in WITHOUT_BASELINE:
        return f"has no baseline: {criterion.metric} takes an absolute limit"
    return ""


def _against_fault(criterion: Criterion, _: Sequence[str]) -> str:
    is_ratio = criterion.metric == "throughput_ratio"
    if is_ratio and not criterion.against.strip():
        return 'needs "against", the case that the speed is compared with'
    if criterion.against and not is_ratio:
        return f'judges {criterion.metric}, which takes no "against"'
    return ""


def _quantile_fault(criterion: Criterion, _: Sequence[str]) -> str:
    is_wanted = criterion.metric == "latency_seconds"
    if is_wanted and (criterion.quantile is None or not 0.0 < criterion.quantile < 1.0):
        return 'needs a "quantile" between 0 and 1, like 0.99'
    if not is_wanted and criterion.quantile is not None:
        return f'judges {criterion.metric}, which takes no "quantile"'
    for name in ("if_absent", "if_not_observed"):
        if getattr(criterion, name) == "not_applicable" and criterion.kind != "health":
            return f'is no criterion of health, which alone takes "{name}"'
    return ""
