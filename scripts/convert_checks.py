"""Converts checks of bench 0.4.0 on a real device into tests/recorded/, beside today's bounds.

    scripts/convert_checks.py FOLDER --facts FILE [--out FOLDER] [--work FOLDER]
    scripts/convert_checks.py [--out FOLDER] [--work FOLDER]

FOLDER holds checks-small, full-size and checks-under-tf32-override (.jsonl.gz, one JSON document a
line: every check with its error and the bound that it was held to then), FILE is the
workload_facts.json of that version, which says what "small" meant. The result is checks.jsonl.gz:
one line for each check of a workload with its parameters, with seed, phase, error, the bound then
and the bound now of every time that it was made.

The bound now is what today's check yields at the same parameters, seed and step, made here on a
processor: inputs are bit-equal on every device, so what a bound takes from them is the same, and
nothing of the recorded device enters it. What cannot be made here (a full size, a workload that
needs another library's device) has none, and its line says why. No processor has TF32, so it is off
here: the bound of float32 is the smaller one.

Without FOLDER the table that is there is made current: what was computed by an older version of a
workload is computed anew. Steps that were timed are stored with the work of a step as today's code
counts it.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from appliance.planning import workload_manifest  # noqa: E402 - after the path
from appliance.records.json import sha256, to_data  # noqa: E402 - the same

OUT = ROOT / "tests" / "recorded" / "h100"
RECORDS = {
    "small": "checks-small",
    "full": "full-size",
    "tf32_override": "checks-under-tf32-override",
}
RENAMED = {"rate": "learning_rate"}
"""Parameters by their names in 0.4.0, where they have another now."""
TABLE = "checks.jsonl.gz"
NUM_LATER = 20
"""Steps between the first check and the late one, of a workload that does not say its own."""
FULL_SIZE = "full size is not made on a processor"
LIMIT_SECONDS = 60
"""Of processor time, so that other load on the machine changes no row of the table."""
NO_TF32 = {"tf32": False}
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def parameters_then(facts: Mapping[str, Any], name: str, given: Row, *, small: bool) -> Row:
    """All parameters that ran, by today's names; what did not exist then is not among them."""
    one = facts[name]
    merged = {**one["parameters"], **(one["small"] if small else {}), **given}
    return {RENAMED.get(key, key): value for key, value in merged.items()}


def completed(name: str, parameters: Row) -> Row:
    """All parameters of today's workload, with its defaults for those that did not exist then."""
    defaults = workload_manifest.load()[name].parameters
    return {key: parameters.get(key, default) for key, default in defaults.items()}


# ------------------------------------------------------------------ the bounds of today


def workload_of(name: str, parameters: Row) -> Any:
    """Today's workload at these parameters, as far as it still has them."""
    kind = importlib.import_module(f"workloads.{name}").WORKLOAD
    fields = kind.__dataclass_fields__
    return kind(**{key: value for key, value in parameters.items() if key in fields})


def bounds_of(name: str, parameters: Row, seeds: Sequence[int], *, late: bool) -> Iterator[Row]:
    """Every check of today's workload on a processor: at the first step, and after later ones."""
    import torch  # noqa: PLC0415 - the child alone needs it

    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415 - the same

    torch.set_num_threads(1)
    workload = workload_of(name, {**parameters, **NO_TF32})
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            target = Target(
                device=torch.device("cpu"),
                artifacts=Artifacts(Path(folder)),
                onnx_providers=("CPUExecutionProvider",),
            )
            state = workload.build(target, seed)
            for phase, num_steps in (("first", 1), ("late", NUM_LATER))[: 1 + late]:
                for number in range(num_steps):
                    before = workload.snapshot(state) if number == num_steps - 1 else None
                    output = workload.step(state)
                for check in workload.check(before, state, output):
                    yield {
                        "seed": seed,
                        "phase": phase,
                        "check": check.name,
                        "bound": check.bound,
                        "version": workload.version,
                    }


def work_of(name: str, parameters: Row) -> Iterator[Row]:
    """What a step does, as today's code counts it."""
    workload = workload_of(name, parameters)
    yield {"version": workload.version, **to_data(workload.work())}


CHILDREN: Mapping[str, Callable[..., Iterator[Row]]] = {"bounds": bounds_of, "work": work_of}


def made(what: str, request: Row, work: Path) -> list[Row] | str:
    """The rows of one child, which `work` keeps for another start; a sentence where it failed."""
    name = request["name"]
    digest = sha256(json.dumps(request, sort_keys=True).encode())
    version = workload_manifest.load()[name].version
    path = work / f"{what}-{name}-{version}-{digest[:12]}.jsonl"
    if not path.exists():
        done = subprocess.run(  # noqa: S603 - this program
            [sys.executable, __file__, "--child", what, json.dumps(request)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == -signal.SIGXCPU:
            return f"takes longer than {LIMIT_SECONDS} s on a processor"
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return "a processor cannot run it: " + (done.stderr.strip().split("\n") or [""])[-1]
        path.write_text(done.stdout)
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


# ------------------------------------------------------------------ the table


def converted(
    record: str, rows: Iterable[Row], facts: Mapping[str, Any], work: Path
) -> Iterator[Row]:
    """One row for each check of each workload and parameters, in the order of the record."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["kind"] == "check":
            key = row["name"], json.dumps(row["params"], sort_keys=True)
            groups.setdefault(key, []).append(row)
    for (name, text), checks in groups.items():
        parameters = parameters_then(facts, name, json.loads(text), small=record != "full")
        today = bounds_today(record, name, parameters, checks, work)
        for check in table(checks):
            yield {
                "record": record,
                "workload": name,
                "version": facts[name]["version"],
                "parameters": json.loads(text),
                "ran": completed(name, parameters),
                **with_bounds(check, today),
            }


def bounds_today(
    record: str, name: str, parameters: Row, checks: Sequence[Row], work: Path
) -> list[Row] | str:
    """Today's bounds of these checks, or why there is none; said to whoever waits."""
    today: list[Row] | str = FULL_SIZE
    if record != "full":
        request = {
            "name": name,
            "parameters": parameters,
            "seeds": sorted({row["seed"] for row in checks}),
            "late": any(row["phase"] == "late" for row in checks),
        }
        today = made("bounds", request, work)
    print(f"{record}: {name}", today if isinstance(today, str) else "", file=sys.stderr)
    return today


def table(checks: Sequence[Row]) -> Iterator[Row]:
    """The checks of one workload and its parameters, by their names."""
    by_name: dict[str, list[Row]] = {}
    for row in checks:
        by_name.setdefault(row["check"], []).append(row)
    for name, made_then in by_name.items():
        values = [[row["seed"], row["phase"], row["error"], row["bound"]] for row in made_then]
        yield {"check": name, "made": values}


def with_bounds(check: Row, today: list[Row] | str) -> Row:
    """One check with today's bound behind the recorded one, each time that it was made."""
    known = {} if isinstance(today, str) else {_key(row): row["bound"] for row in today}
    versions = {} if isinstance(today, str) else {row["version"] for row in today}
    values = [
        [seed, phase, error, bound, known.get((seed, phase, check["check"]))]
        for seed, phase, error, bound, *_ in check["made"]
    ]
    absent = today if isinstance(today, str) else "today's code makes no check of this name"
    return {
        **check,
        "made": values,
        "bound_version": next(iter(versions), None),
        "no_bound_now": absent if any(bound is None for *_, bound in values) else "",
    }


def _key(row: Row) -> tuple[Any, ...]:
    return row["seed"], row["phase"], row["check"]


def differing(rows: Iterable[Row]) -> Iterator[Row]:
    """Workloads of which two builds from one seed gave other bits, with the share of repeats."""
    for row in rows:
        if row["kind"] == "again":
            yield {
                "record": "again",
                "workload": row["name"],
                "parameters": row["params"],
                "seed": row["seed"],
                "declared_repeatable": row["repeatable"],
                "differing_bytes": row["differing"],
                "differing_bytes_deterministic": row["with_deterministic"],
            }


def timed(rows: Iterable[Row], facts: Mapping[str, Any], work: Path) -> Iterator[Row]:
    """Full-size steps that were timed, with today's count of what one does."""
    for row in rows:
        if row["kind"] == "timed":
            parameters = parameters_then(facts, row["name"], row["params"], small=False)
            (counted,) = made("work", {"name": row["name"], "parameters": parameters}, work)
            yield {
                "record": "timed",
                "workload": row["name"],
                "parameters": row["params"],
                "ran": completed(row["name"], parameters),
                "median_seconds": row["median_s"],
                "least_seconds": row["min_s"],
                "work": counted,
            }


# ------------------------------------------------------------------ the table once more


def refreshed(rows: Sequence[Row], work: Path) -> Iterator[Row]:
    """The rows of a table, with what was computed by an older version of a workload made anew."""
    shipped = workload_manifest.load()
    today: dict[str, list[Row] | str] = {}
    for row in rows:
        name = row["workload"]
        if row["record"] == "timed" and row["work"]["version"] != shipped[name].version:
            (counted,) = made("work", {"name": name, "parameters": row["ran"]}, work)
            yield {**row, "work": counted}
        elif row.get("bound_version") in (None, shipped[name].version):
            yield row
        else:
            key = json.dumps([row["record"], name, row["ran"]])
            if key not in today:
                alike = [one for one in rows if one["record"] == row["record"]]
                checks = [
                    {"seed": seed, "phase": phase}
                    for one in alike
                    if one["workload"] == name and one.get("ran") == row["ran"]
                    for seed, phase, *_ in one["made"]
                ]
                today[key] = bounds_today(row["record"], name, row["ran"], checks, work)
            yield {**row, **with_bounds(row, today[key])}


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write lines as gzip without a time, so that the same rows give the same bytes; the size."""
    text = "".join(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path.stat().st_size


def first_table(folder: Path, facts_file: Path, work: Path) -> Iterator[Row]:
    """The table of a record that was not converted yet."""
    facts = {one["name"]: one for one in json.loads(facts_file.read_text())["workload"]}
    sources = {record: read(folder / f"{name}.jsonl.gz") for record, name in RECORDS.items()}
    for record, checks in sources.items():
        yield from converted(record, checks, facts, work)
    yield from differing(sources["small"])
    yield from timed(sources["full"], facts, work)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--facts", type=Path, help="workload_facts.json of the version that ran")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, help="folder that keeps bounds for another start")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.child:
        what, request = given.child
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, 2 * LIMIT_SECONDS))
        for row in CHILDREN[what](**json.loads(request)):
            print(json.dumps(row), flush=True)
        os._exit(0)  # a library's threads may not end in peace
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        if given.folder is None:
            rows = list(refreshed(read(given.out / TABLE), work))
        elif given.facts is None:
            parser.error("name --facts, the workload_facts.json of the version that ran")
        else:
            rows = list(first_table(given.folder, given.facts, work))
    size = write(given.out / TABLE, rows)
    print(f"{given.out / 'checks.jsonl.gz'}: {len(rows)} lines, {size} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
