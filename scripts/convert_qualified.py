"""Converts checks and times of bench 0.4.0 on a real device into a record of appliance/qualified.

    scripts/convert_qualified.py FOLDER [--out FOLDER]

FOLDER holds checks-small and full-size (.jsonl.gz, one JSON document a line); their parameters by
today's names and the operations of a step are those of tests/recorded/h100/checks.jsonl.gz, which
scripts/convert_checks.py made of them. Versions of workloads, errors and bounds are those of then.
Two builds from one seed were compared in one process, so nothing of it counts as a clean repeat,
and memory is what torch's allocator held at most. Then `scripts/record_repeats.py` writes the page.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.evidence.qualification import device_digest, stack  # noqa: E402 - after the path
from appliance.planning import workload_manifest  # noqa: E402 - the same
from appliance.qualifying.observation import not_made  # noqa: E402 - the same
from appliance.records.json import from_json, sha256, to_json  # noqa: E402 - the same
from appliance.records.qualified import (  # noqa: E402 - the same
    ObservedCase,
    ObservedCheck,
    Qualified,
)
from appliance.records.suite import SuiteCase  # noqa: E402 - the same
from appliance.records.system import System  # noqa: E402 - the same
from appliance.storage import bundle  # noqa: E402 - the same
from appliance.storage.qualified_file import (  # noqa: E402 - the same
    QUALIFIED,
    by_file,
    parse_qualified,
)

RECORDED = ROOT / "tests" / "recorded" / "h100"
FILES = {"small": "checks-small.jsonl.gz", "full": "full-size.jsonl.gz"}
PHASES = {"first": "first", "late": "last"}
BENCH = "0.4.0"
Row = dict[str, Any]
Key = tuple[str, str]


def read(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def key(name: str, parameters: Mapping[str, Any]) -> Key:
    """What is one row: the workload with the parameters that were given."""
    return name, json.dumps(parameters, sort_keys=True)


def checks(rows: Sequence[Row]) -> Iterator[ObservedCheck]:
    """Each check of a row, with the comparison that was nearest to its bound of then."""
    for row in rows:
        made = [(phase, float(error), float(bound)) for _, phase, error, bound, _ in row["made"]]
        _, error, bound = max(made, key=lambda one: one[1] / one[2] if one[2] else one[1])
        yield ObservedCheck(
            name=row["check"],
            error=error,
            bound=bound,
            phases=tuple(dict.fromkeys(PHASES[phase] for phase, _, _ in made)),
            num_made=len(made),
            num_outside=sum(not 0.0 <= error <= bound for _, error, bound in made),
        )


def observed(size: str, name: Key, table: Sequence[Row], raw: Sequence[Row]) -> Row:
    """The fields of a row that the records say something of."""
    of_row = [row for row in raw if key(row["name"], row["params"]) == name]
    own = [row for row in table if key(row["workload"], row["parameters"]) == name]
    compared = [row for row in own if row["record"] == size]
    again = [row for row in own if row["record"] == "again"] if size == "small" else []
    timed = [row for row in own if row["record"] == "timed"] if size == "full" else []
    faults = [row for row in of_row if row["kind"] in ("error", "timeout")]
    peaks = [row["peak"] for row in of_row if "peak" in row]
    seconds = timed[0]["median_seconds"] if timed else None
    work = timed[0]["work"] if timed else {"units": 0.0, "unit": "", "flops": None}
    settled = [row["differing_bytes_deterministic"] for row in again]
    settled = [value for value in settled if value is not None]
    return {
        "parameters": (compared or timed)[0]["ran"] if compared or timed else json.loads(name[1]),
        "checks": tuple(checks(compared)),
        "num_seeds": len({seed for row in compared for seed, *_ in row["made"]}),
        "outcomes": _outcomes(of_row, faults),
        "fault": "; ".join(dict.fromkeys(_sentence(row) for row in faults))[:300],
        "same_by_default": all(row["differing_bytes"] == 0 for row in again) if again else None,
        "num_default": 2 if again else 0,
        "same_when_deterministic": all(one == 0 for one in settled) if settled else None,
        "num_deterministic": 2 if settled else 0,
        "step_seconds": seconds,
        "num_steps": sum(row["n"] for row in of_row if row["kind"] == "timed"),
        "units_per_second": work["units"] / seconds if seconds else None,
        "unit": work["unit"],
        "flops_per_second": work["flops"] / seconds if seconds and work["flops"] else None,
        "device_memory_bytes": max(peaks, default=None),
    }


def _outcomes(rows: Sequence[Row], faults: Sequence[Row]) -> dict[str, int]:
    completed = sum(row["kind"] == "built" for row in rows)
    completed -= sum(row["kind"] == "timeout" for row in faults)
    counts = {"completed": max(0, completed)}
    for row in faults:
        is_refused = str(row.get("error")).startswith("ParameterError")
        outcome = (
            "not_run" if is_refused else "crashed" if row["kind"] == "error" else "interrupted"
        )
        counts[outcome] = counts.get(outcome, 0) + 1
    return {outcome: count for outcome, count in counts.items() if count}


def _sentence(row: Row) -> str:
    return str(row.get("error", "its checks were stopped for lack of time"))


def converted(folder: Path) -> Qualified:
    """The record of the device."""
    system = from_json(System, (RECORDED / "system.json").read_bytes(), name="system.json")
    device = system.identity.devices[0]
    manifest = workload_manifest.load()
    table = read(RECORDED / "checks.jsonl.gz")
    cases: list[ObservedCase] = []
    for size, file in FILES.items():
        raw = [row for row in read(folder / file) if "name" in row]
        versions = {row["workload"]: row["version"] for row in table if "version" in row}
        for name in dict.fromkeys(key(row["name"], row["params"]) for row in raw):
            workload, given = name[0], json.loads(name[1])
            words = [str(value) for item, value in given.items() if item == "dtype"]
            seen = observed(size, name, table, raw)
            blank = _blank("-".join([workload, *words]), workload, size=size, reason="")
            blank |= {
                "version": versions.get(workload, manifest[workload].version),
                "model": device.model,
                "stack": stack(system, device, manifest[workload].libraries),
                "devices": (device_digest(system, device),),
                "sources": (f"h100/{file}, sha256 {sha256((folder / file).read_bytes())}",),
                "recorded_utc": system.conditions.utc,
                "bench_version": BENCH,
            }
            cases.append(ObservedCase(**{**blank, **seen}))
    return Qualified(record=(), observed=tuple(cases))


def _blank(case: str, workload: str, *, size: str, reason: str) -> Row:
    """A row of which nothing is known."""
    item = SuiteCase(
        id=case,
        workload=workload,
        small=size == "small",
        expected_seconds=0.0,
        reference_seconds=0.0,
        time_limit_seconds=0.0,
        memory_limit_gib=0.0,
    )
    one = not_made(case, item, version=0, model="", stack={}, device="", reason=reason)
    return {field.name: getattr(one, field.name) for field in fields(one)}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Convert records of bench 0.4.0 on a device.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=QUALIFIED)
    options = parser.parse_args(arguments)
    for name, file in by_file(converted(options.folder)).items():
        path = options.out / name
        idle = parse_qualified(path.read_bytes(), name).idle if path.exists() else ()
        bundle.write(path, to_json(replace(file, idle=idle)))
        print(f"{name}: {len(file.observed)} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
