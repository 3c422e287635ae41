"""Records in appliance/qualified what runs and qualifications showed of healthy devices.

    scripts/record_repeats.py [RUN...] [--out FILE]

Without FILE the records go into appliance/qualified, a file for each model and stack, and a page
for each model into docs/devices; without RUN the pages are made current, as `make generate` does.
RUN is what `bench qualify --out RUN` left, or the folder that `bench run` left of a healthy device,
by a suite whose protocol says `repeats` (up to 100 processes a case). What is recorded already
stays and grows by them: a journal counts once. Of each case every repeat but the first counts,
which the others are compared with, and fewer than 50 in all are not shipped. A case whose repeats
differ is not recorded as clean: where the library said of an operator that it has no deterministic
form, the record says so, else the script ends with exit code 1 and names it, because the device or
the workload is wrong.

A record is part of the package and of its version: `verify` holds a bundle's records to those of
its own package, so recording writes into this checkout, to be reviewed like any other change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.errors import BenchError, UsageError  # noqa: E402 - runs where nothing is installed
from appliance.evidence.journal_index import index_of  # noqa: E402 - the same
from appliance.evidence.repeats import described, repeats_of  # noqa: E402 - the same
from appliance.qualifying.idle_trial import verdict  # noqa: E402 - the same
from appliance.qualifying.observation import Seen, grown, merged, repeat_record  # noqa: E402 - the same
from appliance.qualifying.page import models, page  # noqa: E402 - the same
from appliance.records.json import sha256, to_json  # noqa: E402 - the same
from appliance.records.qualified import Qualified, QualifiedRecord  # noqa: E402 - the same
from appliance.storage import bundle  # noqa: E402 - the same
from appliance.storage.bundle import Bundle  # noqa: E402 - the same
from appliance.storage.qualified_file import (  # noqa: E402 - the same
    QUALIFIED,
    by_file,
    parse_qualified,
    slug,
)
from appliance.verification import launch_checks, run_checks  # noqa: E402 - the same

PAGES = ROOT / "docs" / "devices"
LEAST_CLEAN = 50
"""Clean repeats without which no record is shipped: by fewer hardly anything could be ruled."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The records as they are now, and what was not recorded, a sentence each."""

    qualified: Qualified
    faults: tuple[str, ...]


def recorded(known: Qualified, runs: Sequence[Bundle]) -> Recorded:
    """What is known, grown by these runs; UsageError for a run that shows nothing of a device."""
    records: list[QualifiedRecord] = []
    faults: list[str] = []
    for run in runs:
        _check(run)
        journal = sha256(run.files[bundle.JOURNAL])
        for evidence in index_of(run.plan, run.lines).cases.values():
            record = repeat_record(
                Seen(
                    evidence=evidence,
                    system=run.system,
                    stage=run.plan.suite,
                    journal=journal,
                    created_utc=run.plan.created_utc,
                    bench_version=run.plan.bench_version,
                )
            )
            if record is not None:
                records.append(record)
            elif repeats_of(evidence).has_mismatch:
                what = f"{described(evidence)}: a healthy device gives the same bits"
                faults.append(f"{evidence.case.id} of {run.plan.run_id}: {what}")
    qualified = replace(known, record=grown(known.record, records))
    return Recorded(qualified=qualified, faults=tuple(faults))


def _check(run: Bundle) -> None:
    """UsageError or EvidenceError for a run whose repeats say nothing of a healthy device."""
    plan = run.plan
    if plan.injectors or plan.rerun_of:
        raise UsageError(f"{plan.run_id} injects a fault or repeats a dispute: name another run")
    digests = {name: sha256(data) for name, data in run.files.items()}
    run_checks.check_plan(plan, run.system, digests)
    run_checks.check_conduct(plan, run.lines, digests)
    launch_checks.check_launches(plan, run.lines)


def _lines(result: Recorded) -> Iterator[str]:
    for one in result.qualified.record:
        what = f"{one.num_clean} clean repeats" if one.num_clean else "no deterministic form"
        yield f"{one.workload} {one.version} on {one.model}: {what}, {len(one.devices)} device(s)"
    for idle in result.qualified.idle:
        yield f"beside a process that waits on {idle.model}: {verdict(idle)}"


def main(arguments: Sequence[str]) -> int:
    """Write the records; 1 if a case was not recorded, 2 for a run that cannot be read."""
    parser = argparse.ArgumentParser(description="Record what runs and qualifications showed.")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    qualified_files = [run / bundle.QUALIFIED for run in options.runs if is_qualification(run)]
    try:
        known = _known(options.out)
        runs = [
            bundle.read(run, complete=False) for run in options.runs if not is_qualification(run)
        ]
        result = recorded(known, runs)
        for path in qualified_files:
            new = parse_qualified(path.read_bytes(), str(path))
            result = replace(result, qualified=merged(result.qualified, new))
        _write(result.qualified, options.out)
    except BenchError as error:
        print(f"record_repeats: {error}", file=sys.stderr)
        return 2
    for line in _lines(result):
        print(line)
    for fault in result.faults:
        print(f"not recorded: {fault}", file=sys.stderr)
    return 1 if result.faults else 0


def is_qualification(folder: Path) -> bool:
    """Whether `bench qualify` has written there."""
    return (folder / "qualification.json").is_file()


def _known(out: Path | None) -> Qualified:
    """The records that are there already: those of FILE, or all that are shipped."""
    known = Qualified(record=())
    for path in sorted(QUALIFIED.glob("*.json")) if out is None else [out]:
        if path.exists():
            known = merged(known, parse_qualified(path.read_bytes(), path.name))
    return known


def _write(qualified: Qualified, out: Path | None) -> None:
    """Write FILE, or the files of the package with the pages of their models."""
    if out is not None:
        bundle.write(out, to_json(qualified))
        return
    thick = tuple(one for one in qualified.record if not 0 < one.num_clean < LEAST_CLEAN)
    qualified = replace(qualified, record=thick)
    for name, file in by_file(qualified).items():
        bundle.write(QUALIFIED / name, to_json(file))
    for model in models(qualified):
        bundle.write(PAGES / f"{slug(model)}.md", page(qualified, model).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
