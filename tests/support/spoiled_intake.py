"""The suite `intake` with one fault in every case that can have it: what must never be accepted.

    python tests/support/spoiled_intake.py                 every fault, one run of intake for each
    python tests/support/spoiled_intake.py zeros stale     those two

Each case of workloads/suites/intake.toml keeps its name, parameters and limits; its workload
is wrapped by tests/faulty/corrupting.py, which plan and journal name, and it is launched once.
Prints for each fault how many of its cases were ruled as failed, and by which check; leaves with 0
only if every one was and no run was accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.program import ROOT, WITH_FAULTS, bench

INTAKE = ROOT / "workloads" / "suites" / "intake.toml"
FIELDS = {"memory_bandwidth": "scale", "onnx_resnet50": "", "gemm": "", "gemm_exact": ""}
"""Of a step's output, what is corrupted; the logits of a model."""
TRAINED = ("resnet50", "bert", "digits_mlp", "markov_lm", "char_lm")
FAULTS = (
    "not_a_number",
    "infinite",
    "zeros",
    "rescaled",
    "unwritten",
    "highest_bit",
    "middle_bit",
    "stale",
    "wrong_inputs",
    "skipped_update",
)
HEAD = """
schema = "bench/suite/2"
name = "intake-{fault}"
version = 1
summary = "intake with a fault in every case: {fault}"
time_limit_seconds = 3600

[protocol]
mode = "fresh"
calibration_seconds = 0.1
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 3
block_seconds = 0.1
interim_analyses = [1]
last_checks = "all"
"""


def written(value: Any) -> str:
    """A value as TOML; a JSON text of plain values is one."""
    return json.dumps(value)


def spoiled(fault: str) -> str:
    """The suite as TOML, with the fault in each case that has such a thing."""
    intake = tomllib.loads(INTAKE.read_text())
    cases = [case for case in intake["case"] if can_have(case["workload"], fault)]
    return HEAD.format(fault=fault) + "".join(_case(case, fault) for case in cases)


def can_have(workload: str, fault: str) -> bool:
    """Only what is trained has an update to leave out."""
    return workload in TRAINED or fault != "skipped_update"


def _case(case: Mapping[str, Any], fault: str) -> str:
    workload = case["workload"]
    given = {
        "of": workload,
        "given": json.dumps(case.get("parameters", {})),
        "fault": fault,
        "where": FIELDS.get(workload, "logits"),
        "after": 1,
    }
    parameters = ", ".join(f"{key} = {written(value)}" for key, value in given.items())
    kept = {key: value for key, value in case.items() if key not in ("parameters", "launches")}
    kept |= {"workload": "faulty.corrupting", "launches": 1}
    lines = [f"{key} = {written(value)}" for key, value in kept.items()]
    return "\n[[case]]\n" + "\n".join([*lines, f"parameters = {{ {parameters} }}"]) + "\n"


def run(fault: str, folder: Path) -> Mapping[str, Any]:
    """What `bench run` says of the suite: its verdict."""
    suite = folder / f"intake-{fault}.toml"
    suite.write_text(spoiled(fault))
    words = ["run", "--suite", str(suite), "--out", str(folder / "out"), "--json"]
    done = bench(*words, env=WITH_FAULTS, timeout=None)
    if not done.stdout:
        sys.exit(done.stderr)
    verdict: Mapping[str, Any] = json.loads(done.stdout)["verdict"]
    return verdict


def missed(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Cases whose fault no check saw."""
    for case in verdict["cases"]:
        if not any(check["num_outside"] for check in case["checks"]):
            yield case["case"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("faults", nargs="*", help=f"of {', '.join(FAULTS)}; all if none")
    wanted = parser.parse_args().faults or list(FAULTS)
    is_bad = False
    for fault in wanted:
        if fault not in FAULTS:
            sys.exit(f"there is no fault {fault!r}: name one of {', '.join(FAULTS)}")
        with tempfile.TemporaryDirectory() as folder:
            verdict = run(fault, Path(folder))
        escaped = list(missed(verdict))
        is_bad |= bool(escaped) or verdict["verdict"] == "ACCEPTED"
        reported = f"not seen in {', '.join(escaped)}" if escaped else "seen in every one"
        number = len(verdict["cases"])
        print(f"{fault}: {number} cases, {reported}; {verdict['verdict']}", flush=True)  # noqa: T201
    sys.exit(1 if is_bad else 0)


if __name__ == "__main__":
    main()
