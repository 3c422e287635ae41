"""Faults planted in launches of a whole run, and what its journal and its rulings say of them.

    python tests/support/planted_launches.py [FAULTS] [LAUNCHES]

Every launch is a process of its own that plants its share; a fault is counted if the check of its
launch counts it in the journal.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from support.program import WITH_FAULTS, bench, only_run

from workloads.burn_in import BurnIn

SUITE = """
schema = "bench/suite/2"
name = "planted"
version = 1
summary = "Faults planted in a burn-in"
time_limit_seconds = 3600

[protocol]
mode = "fresh"
calibration_seconds = 0.03
warmup_steps = 0
warmup_seconds = 0.0
blocks = 1
block_steps = {steps}
block_seconds = 1e-9
interim_analyses = [{launches}]
last_checks = "all"

[[case]]
id = "planted"
workload = "faulty.burning"
launches = {launches}
parameters = {{ {parameters} }}
expected_seconds = 30
reference_seconds = 5
time_limit_seconds = 1200
memory_limit_gib = 4
"""
PARAMETERS = "size = 64, chain_size = 16, memory_bytes = 16777216, lanes = 1"
ROUNDS, PER_ROUND = 50, 6
"""Rounds of a step, and faults in each: every other of twelve products."""
LASTING = "mismatches, repeated or lasting"
SINGLE = "a single mismatch that never came again"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a run says of its planted faults, and what was ruled."""

    planted: int
    lasting: tuple[int, ...]
    single: tuple[int, ...]
    covered: tuple[str, ...]
    verdict: dict[str, Any]

    @property
    def counted(self) -> int:
        """Mismatches in the checks of all launches."""
        return sum(self.lasting) + sum(self.single)

    @property
    def correctness(self) -> dict[str, Any]:
        """The ruling of whether outputs were correct."""
        (ruling,) = [one for one in self.verdict["rulings"] if one["criterion"] == "correctness"]
        return dict(ruling)


def planted(faults: int, launches: int, folder: Path, *, again: bool = False) -> Counted:
    """Run launches that each plant so many faults, and read what the journal says of them."""
    rounds = min(ROUNDS, -(-faults // PER_ROUND))
    formats = 'formats = "bfloat16"' if "formats" in _names() else 'dtype = "bfloat16"'
    parameters = f"{PARAMETERS}, rounds = {rounds}, faults = {faults}, {formats}"
    parameters += ", again = true" if again else ""
    steps = 2 + -(-faults // (PER_ROUND * rounds))
    suite = folder / "planted.toml"
    suite.write_text(SUITE.format(steps=steps, launches=launches, parameters=parameters))
    words = ("run", "--suite", str(suite), "--out", str(folder / "out"), "--quiet")
    done = bench(*words, env=WITH_FAULTS)
    run = only_run(folder / "out")
    texts = (run / "journal.jsonl").read_text().splitlines()
    lines = [json.loads(text)["event"] for text in texts]
    checks = [one for one in lines if one["kind"] == "checked" and one["phase"] == "last"]
    assert checks, done.stderr
    return Counted(
        planted=faults * launches,
        lasting=_errors(checks, LASTING),
        single=_errors(checks, SINGLE),
        covered=tuple(
            one["check"]["detects_what"] for one in checks if one["check"]["name"] == LASTING
        ),
        verdict=json.loads((run / "verdict.json").read_text()),
    )


def _names() -> set[str]:
    return {one.name for one in fields(BurnIn)}


def _errors(checks: list[dict[str, Any]], name: str) -> tuple[int, ...]:
    return tuple(int(one["check"]["error"]) for one in checks if one["check"]["name"] == name)


def main() -> None:
    """Plant the faults and say what was counted; ends with 1 if not each was."""
    faults = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    launches = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        counted = planted(faults // launches, launches, Path(folder))
    sys.stdout.write(
        f"{counted.planted:,} planted in {launches} launches, {counted.counted:,} counted; "
        f"correctness: {counted.correctness['ruling']}\n"
    )
    raise SystemExit(counted.planted != counted.counted)


if __name__ == "__main__":
    main()
