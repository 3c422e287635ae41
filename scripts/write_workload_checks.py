"""Writes appliance/workload_checks.json: which checks each workload yields, and how wide they are.

Part of `make generate`; run that after new qualified records, or after a change of a workload's
version. It takes the newest version of each workload that appliance/qualified has records of, and
the bounds of tests/recorded/h100/checks.jsonl.gz to see which of them vary; a test compares what it
would write with what is there. Who verifies reads the file alone.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.records.json import to_data  # noqa: E402 - after the path
from appliance.records.qualified import ObservedCase, ObservedCheck  # noqa: E402 - the same
from appliance.storage.qualified_file import load_observed  # noqa: E402 - the same
from appliance.verification.known_checks import (  # noqa: E402 - the same
    FILE,
    CaseChecks,
    ChecksFile,
    KnownCheck,
    WorkloadChecks,
    merged,
    pattern,
)

BOTH = {"first", "last"}
RECORDED = ROOT / "tests" / "recorded" / "h100" / "checks.jsonl.gz"
STEADY = 1.25  # bounds of one name at the same parameters vary by no more, or are called drawn


def drawn_names(observed: Sequence[ObservedCase]) -> frozenset[str]:
    """Names of checks whose bounds vary at the same parameters, between devices, seeds or steps."""
    seen: dict[tuple[str, str, str], list[float]] = {}
    for one in observed:
        for check in filter(is_bounded, one.checks):
            key = (f"{one.workload} {one.version}", parameters_of(one), pattern(check.name))
            seen.setdefault(key, []).append(check.bound)
    with gzip.open(RECORDED, "rt") as file:
        for row in map(json.loads, file):
            if "check" in row:
                key = (row["record"] + row["workload"], json.dumps(row["parameters"]), row["check"])
                seen.setdefault(key, []).extend(float(made[3]) for made in row["made"])
    varied = (name for (_, _, name), bounds in seen.items() if max(bounds) > STEADY * min(bounds))
    return frozenset(varied)


def workloads(observed: Sequence[ObservedCase]) -> Iterator[WorkloadChecks]:
    """Each workload in the newest version that was observed with checks."""
    drawn = drawn_names(observed)
    made = [one for one in observed if any(map(is_bounded, one.checks))]
    for name in sorted({one.workload for one in made}):
        version = max(one.version for one in made if one.workload == name)
        seen = [one for one in made if (one.workload, one.version) == (name, version)]
        yield WorkloadChecks(name=name, version=version, cases=tuple(cases(seen, drawn)))


def cases(seen: Iterable[ObservedCase], drawn: frozenset[str]) -> Iterator[CaseChecks]:
    """The records of one workload by parameters, those of all models in one."""
    rows = sorted(seen, key=parameters_of)
    for _, group in groupby(rows, key=parameters_of):
        alike = list(group)
        checks = merged(known(one.checks, drawn) for one in alike)
        yield CaseChecks(
            parameters=alike[0].parameters,
            checks=tuple(checks[name] for name in sorted(checks)),
        )


def known(checks: Sequence[ObservedCheck], drawn: frozenset[str]) -> Iterator[KnownCheck]:
    """The checks of one record; always there is what was made as often as any, first and last."""
    most = max(check.num_made for check in checks)
    named = sorted(filter(is_bounded, checks), key=lambda check: pattern(check.name))
    for name, group in groupby(named, key=lambda check: pattern(check.name)):
        alike = list(group)
        yield KnownCheck(
            name=name,
            bound=max(check.bound for check in alike),
            is_always=any(
                check.num_made == most and set(check.phases) >= BOTH and pattern(name) == check.name
                for check in alike
            ),
            is_drawn=name in drawn,
        )


def is_bounded(check: ObservedCheck) -> bool:
    """Whether the bound is a number."""
    return math.isfinite(check.bound) and check.bound >= 0.0


def parameters_of(one: ObservedCase) -> str:
    """Its parameters in an order of their own."""
    return json.dumps(dict(one.parameters), sort_keys=True)


def content() -> bytes:
    """The file's bytes: a line for each set of parameters."""
    data = to_data(ChecksFile(workload=tuple(workloads(load_observed()))))
    blocks = (
        json.dumps({**one, "cases": []}, ensure_ascii=False).removesuffix("]}")
        + "\n"
        + ",\n".join(f" {json.dumps(item, ensure_ascii=False)}" for item in one["cases"])
        + "]}"
        for one in data["workload"]
    )
    head = json.dumps({**data, "workload": []}).removesuffix("]}")
    return (head + "\n" + ",\n".join(blocks) + "\n]}\n").encode()


def main() -> None:
    """Write the file anew."""
    FILE.write_bytes(content())


if __name__ == "__main__":
    main()
