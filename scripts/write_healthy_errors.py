"""Writes docs/reference/healthy-errors.md: how near to their bounds a healthy device's errors came.

Part of `make generate`. It reads tests/recorded/h100/checks.jsonl.gz, which
scripts/convert_checks.py made, and the records of appliance/qualified; a test holds every error to
its bound, and the page to this.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.planning import workload_manifest  # noqa: E402 - after the path
from appliance.qualifying.page import is_made  # noqa: E402 - the same
from appliance.records.qualified import ObservedCase  # noqa: E402 - the same
from appliance.storage.qualified_file import load_observed  # noqa: E402 - the same

FILE = ROOT / "tests" / "recorded" / "h100" / "checks.jsonl.gz"
PAGE = ROOT / "docs" / "reference" / "healthy-errors.md"
HEALTHY = ("small", "full")
"""Records of the device as it was; in the other one its vendor's override of TF32 was set."""
NUM_TIGHTEST = 10
TEXT = """\
# Errors of a healthy device beside their bounds

<!-- written by scripts/write_healthy_errors.py -->

Bounds are derived, or measured on processors. What they leave to an accelerator that works, one
NVIDIA H100 80GB HBM3 showed: every workload at small size in one process, two seeds, at the first
step and after 20 more, and some at full size; {number} checks in all, made with bench 0.4.0, torch
2.11 and CUDA 13.0.

{today} of them are held to the bound that today's check has at the same parameters, seed and step,
computed on a processor; the others to the bound that was recorded (full size, and what no processor
runs). A test holds that all are within, but for those whose cause is known and not the device.

The {tightest} tightest:

| workload | check | error | bound | error over bound |
|---|---|---|---|---|
{table}

## By row and model

The largest error over its bound of each row, by all records of `appliance/qualified`, and the
check that it is of; small rows first, then full sizes. Bounds are those of the version of bench
that made the record, which [the page of each device](../README.md) names; what is above 1 was
refused then. Checks that allow no difference at all have no share; rows that have no other check
are left out.

{by_row}
"""
Data = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecordedCheck:
    """One check that was made once on the device: its error, and the bound that it is held to.

    `is_today_s`: the bound is that of today's code at the same parameters, seed and step, and of
    the version of the workload that is shipped; else it is the one that was recorded.
    """

    record: str
    workload: str
    parameters: Mapping[str, Any]
    name: str
    seed: int
    phase: str
    error: float
    bound: float
    is_today_s: bool

    @property
    def is_within(self) -> bool:
        """As of a check in a journal: a finite error at or below the bound."""
        return 0.0 <= self.error <= self.bound

    @property
    def share(self) -> float:
        """Its error as a part of its bound; of an exact one that is met, 0."""
        if self.bound == 0:
            return 0.0 if self.error == 0 else math.inf
        return self.error / self.bound

    @property
    def case(self) -> str:
        """The workload with the parameters that were not its small or default ones."""
        words = [f"{key} = {json.dumps(value)}" for key, value in sorted(self.parameters.items())]
        return " ".join([self.workload, *([f"({', '.join(words)})"] if words else [])])


def rows() -> list[Data]:
    with gzip.open(FILE, "rt") as file:
        return [json.loads(line) for line in file]


def recorded_checks(lines: Sequence[Data]) -> Iterator[RecordedCheck]:
    """Every check of the lines, with the bound that it is held to."""
    shipped = workload_manifest.load()
    for row in lines:
        if "check" not in row:
            continue
        one = shipped.get(row["workload"])
        is_current = one is not None and one.version == row["bound_version"]
        for seed, phase, error, bound_then, bound_now in row["made"]:
            is_today_s = is_current and bound_now is not None
            yield RecordedCheck(
                record=row["record"],
                workload=row["workload"],
                parameters=row["parameters"],
                name=row["check"],
                seed=seed,
                phase=phase,
                error=float(error),
                bound=float(bound_now if is_today_s else bound_then),
                is_today_s=is_today_s,
            )


def tightest(checks: Sequence[RecordedCheck]) -> list[RecordedCheck]:
    """The largest share of its bound of each check, the nearest first; those within alone."""
    worst: dict[tuple[str, str], RecordedCheck] = {}
    for check in checks:
        key = check.case, check.name
        if check.is_within and check.share > (worst[key].share if key in worst else 0.0):
            worst[key] = check
    return sorted(worst.values(), key=lambda check: -check.share)[:NUM_TIGHTEST]


def by_row(observed: Sequence[ObservedCase]) -> Iterator[str]:
    """A table of the largest share of each row, a column for each model of device."""
    models = sorted({one.model for one in observed})
    cells: dict[tuple[bool, str], dict[str, tuple[float, str]]] = {}
    for one in observed:
        share = nearest_to_bound(one) if is_made(one) else None
        if share is not None:
            row = cells.setdefault((one.size == "full", one.case), {})
            row[one.model] = max(share, row.get(one.model, share))
    yield f"| row | size | {' | '.join(models)} |"
    yield "|---|---|" + "---|" * len(models)
    for (is_full, case), row in sorted(cells.items()):
        shares = [row.get(model) for model in models]
        worded = " | ".join(f"{one[0]:.2f}, {one[1]}" if one else "-" for one in shares)
        yield f"| {case} | {'full' if is_full else 'small'} | {worded} |"


def nearest_to_bound(one: ObservedCase) -> tuple[float, str] | None:
    """The largest share of its bound of any check, and its name; None where no bound is above 0."""
    shares = [(check.error / check.bound, check.name) for check in one.checks if check.bound > 0.0]
    finite = ((math.inf if math.isnan(share) else share, name) for share, name in shares)
    return max(finite, default=None)


def page() -> str:
    """The page as it should be."""
    checks = [one for one in recorded_checks(rows()) if one.record in HEALTHY]
    num_today = sum(check.is_today_s for check in checks)
    table = [
        f"| {check.case} | {check.name} | {check.error:.2g} | {check.bound:.2g} "
        f"| {check.share:.2f} |"
        for check in tightest(checks)
    ]
    return TEXT.format(
        number=f"{len(checks):,}",
        today=f"{num_today:,}",
        tightest=NUM_TIGHTEST,
        table="\n".join(table),
        by_row="\n".join(by_row(load_observed())),
    )


def main() -> int:
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
