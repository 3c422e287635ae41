"""Converts checks of bench 0.4.0 on a real device into tests/recorded/, beside today's bounds.

    scripts/convert_checks.py FOLDER --facts FILE [--out FOLDER] [--work FOLDER]

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

Steps that were timed are stored with the work of a step as today's code counts it.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
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
NUM_LATER = 20
"""Steps between the first check and the late one, of a workload that does not say its own."""
FULL_SIZE = "full size is not made on a processor"
LIMIT_SECONDS = 200
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
        try:
            done = subprocess.run(  # noqa: S603 - this program
                [sys.executable, __file__, "--child", what, json.dumps(request)],
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
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
        today: list[Row] | str = FULL_SIZE
        if record != "full":
            request = {
                "name": name,
                "parameters": parameters,
                "seeds": sorted({row["seed"] for row in checks}),
                "late": any(row["phase"] == "late" for row in checks),
            }
            today = made("bounds", request, work)
        print(f"{record}: {name} {text}", today if isinstance(today, str) else "", file=sys.stderr)
        yield from table(record, checks, facts[name]["version"], today)


def table(
    record: str, checks: Sequence[Row], version: int, today: list[Row] | str
) -> Iterator[Row]:
    """The checks of one workload and its parameters, by their names."""
    known = {} if isinstance(today, str) else {_key(row): row["bound"] for row in today}
    versions = {} if isinstance(today, str) else {row["version"] for row in today}
    by_name: dict[str, list[Row]] = {}
    for row in checks:
        by_name.setdefault(row["check"], []).append(row)
    for name, made_then in by_name.items():
        bounds = [known.get(_key(row)) for row in made_then]
        absent = today if isinstance(today, str) else "today's code makes no check of this name"
        yield {
            "record": record,
            "workload": made_then[0]["name"],
            "version": version,
            "parameters": made_then[0]["params"],
            "check": name,
            "bound_version": next(iter(versions), None),
            "no_bound_now": absent if None in bounds else "",
            "made": [
                [row["seed"], row["phase"], row["error"], row["bound"], bound]
                for row, bound in zip(made_then, bounds, strict=True)
            ],
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
                "median_seconds": row["median_s"],
                "least_seconds": row["min_s"],
                "work": counted,
            }


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write lines as gzip without a time, so that the same rows give the same bytes; the size."""
    text = "".join(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path.stat().st_size


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
        for row in CHILDREN[what](**json.loads(request)):
            print(json.dumps(row), flush=True)
        os._exit(0)  # a library's threads may not end in peace
    if given.folder is None or given.facts is None:
        parser.error("name the folder of the record, and --facts of the version that made it")
    facts = {one["name"]: one for one in json.loads(given.facts.read_text())["workload"]}
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        read_now = {
            record: read(given.folder / f"{name}.jsonl.gz") for record, name in RECORDS.items()
        }
        rows = [
            row
            for record, checks in read_now.items()
            for row in converted(record, checks, facts, work)
        ]
        rows += differing(read_now["small"])
        rows += timed(read_now["full"], facts, work)
    size = write(given.out / "checks.jsonl.gz", rows)
    print(f"{given.out / 'checks.jsonl.gz'}: {len(rows)} lines, {size} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
