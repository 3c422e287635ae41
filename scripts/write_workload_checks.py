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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.records.json import to_data  # noqa: E402 - after the path
from appliance.records.qualified import ObservedCase, ObservedCheck  # noqa: E402 - the same
from appliance.storage.qualified_file import load_observed  # noqa: E402 - the same
from appliance.verification.known_checks import (  # noqa: E402 - the same
    FILE,
    RELATIVE,
    CaseChecks,
    ChecksFile,
    KnownCheck,
    WorkloadChecks,
    merged,
    pattern,
)

K = TypeVar("K", bound=Hashable)
BOTH = {"first", "last"}
RECORDED = ROOT / "tests" / "recorded" / "h100" / "checks.jsonl.gz"
Named = tuple[str, str]
"""A workload and the name of one of its checks."""


@dataclass(frozen=True)
class Spreads:
    """What records show of how bounds vary, whatever the version of their workload.

    `ratios` has of each check the widest ratio of two bounds at the same parameters, if there were
    two anywhere.
    """

    ratios: Mapping[Named, float]

    @cached_property
    def _by_name(self) -> Mapping[str, float]:
        return _widest((name, ratio) for (_, name), ratio in self.ratios.items())

    @cached_property
    def _by_kind(self) -> Mapping[Named, float]:
        return _widest(
            ((workload, kind(name)), ratio) for (workload, name), ratio in self.ratios.items()
        )

    def of(self, workload: str, name: str, bounds: Sequence[float]) -> float | None:
        """The spread of a check with these bounds at some parameters; None where it is not known.

        One that varies in another workload, or whose like varies in this one, is taken to vary.
        """
        widest = max(self._by_name.get(name, 1.0), self._by_kind.get((workload, kind(name)), 1.0))
        if widest > 1.0 + RELATIVE:
            return widest
        is_known = (workload, name) in self.ratios or max(bounds) == 0.0
        return 1.0 if is_known else None


def kind(name: str) -> str:
    """What a check measures, without what it measures it of."""
    return name.rpartition(": ")[2]


def _widest(pairs: Iterable[tuple[K, float]]) -> Mapping[K, float]:
    widest: dict[K, float] = {}
    for key, ratio in pairs:
        widest[key] = max(ratio, widest.get(key, 1.0))
    return widest


def spreads(observed: Sequence[ObservedCase]) -> Spreads:
    """How bounds of each check vary between devices, seeds or steps at the same parameters."""
    seen: dict[tuple[str, str, str], list[float]] = {}
    for one in observed:
        for check in filter(is_bounded, one.checks):
            key = (one.workload, f"{one.version} {parameters_of(one)}", pattern(check.name))
            seen.setdefault(key, []).append(check.bound)
    with gzip.open(RECORDED, "rt") as file:
        for row in map(json.loads, file):
            if "check" in row:
                place = f"{row['record']} {json.dumps(row['parameters'])}"
                key = (row["workload"], place, pattern(row["check"]))
                seen.setdefault(key, []).extend(float(made[3]) for made in row["made"])
    several = (item for item in seen.items() if len(item[1]) > 1)
    return Spreads(
        _widest(((workload, name), _ratio(bounds)) for (workload, _, name), bounds in several)
    )


def _ratio(bounds: Sequence[float]) -> float:
    finite = [bound for bound in bounds if math.isfinite(bound)]
    if len(finite) != len(bounds) or min(finite) < max(finite) == math.inf:
        return math.inf
    if max(finite) == 0.0:
        return 1.0
    return max(finite) / min(finite) if min(finite) > 0.0 else math.inf


def workloads(observed: Sequence[ObservedCase]) -> Iterator[WorkloadChecks]:
    """Each workload in the newest version that was observed with checks."""
    varied = spreads(observed)
    made = [one for one in observed if any(map(is_bounded, one.checks))]
    for name in sorted({one.workload for one in made}):
        version = max(one.version for one in made if one.workload == name)
        seen = [one for one in made if (one.workload, one.version) == (name, version)]
        yield WorkloadChecks(name=name, version=version, cases=tuple(cases(seen, varied)))


def cases(seen: Iterable[ObservedCase], varied: Spreads) -> Iterator[CaseChecks]:
    """The records of one workload by parameters, those of all models in one."""
    rows = sorted(seen, key=parameters_of)
    for _, group in groupby(rows, key=parameters_of):
        alike = list(group)
        checks = merged(known(one, varied) for one in alike)
        yield CaseChecks(
            parameters=alike[0].parameters,
            checks=tuple(checks[name] for name in sorted(checks)),
        )


def known(one: ObservedCase, varied: Spreads) -> Iterator[KnownCheck]:
    """The checks of one record; always there is what was made as often as any, first and last."""
    most = max(check.num_made for check in one.checks)
    named = sorted(filter(is_bounded, one.checks), key=lambda check: pattern(check.name))
    for name, group in groupby(named, key=lambda check: pattern(check.name)):
        alike = list(group)
        bounds = [check.bound for check in alike]
        yield KnownCheck(
            name=name,
            bound=max(bounds),
            is_always=any(
                check.num_made == most and set(check.phases) >= BOTH and pattern(name) == check.name
                for check in alike
            ),
            spread=varied.of(one.workload, name, bounds),
            least=min(map(share, alike)),
        )


def share(check: ObservedCheck) -> float:
    """The largest error of a record as a part of its bound; 0 where that says nothing."""
    is_said = check.num_made > 0 and check.bound > 0.0 and math.isfinite(check.error)
    return max(0.0, check.error / check.bound) if is_said else 0.0


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
