"""One whole run, as a person starts it, of workloads that go wrong: every fault is ruled upon.

Two kinds of injectors meet here: those that are shipped for the self-test (`workloads/injected/`,
all that are there) and `faulty.corrupting`, which spoils any other workload. All of them are cases
of one suite, in forked launches, and each is named in the plan and in the journal.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.program import WITH_FAULTS, bench

import workloads.injected

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
PRODUCT = {"m": 64, "n": 64, "k": 512}
FLOAT32 = {**PRODUCT, "dtype": "float32"}
HEAD = """
schema = "bench/suite/2"
name = "injected"
version = 1
summary = "Every injector once"
time_limit_seconds = 3600

[protocol]
mode = "forked"
calibration_seconds = 0.03
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 3
block_seconds = 1e-9
interim_analyses = [1]
last_checks = "all"
"""
CASE = """
[[case]]
id = "{id}"
workload = "{workload}"
small = true
launches = 1
parameters = {{ {parameters} }}
expected_seconds = 1
reference_seconds = 1
time_limit_seconds = {limit}
memory_limit_gib = 4
"""


@dataclass(frozen=True)
class Injection:
    """One case, and what must be ruled of it: by which criterion, in which word."""

    workload: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    criterion: str = "correctness"
    word: str = "fail"
    time_limit: float = 300.0


def corrupting(of: str, fault: str, where: str = "", word: str = "fail") -> Injection:
    given = {"of": of, "fault": fault, "where": where, "after": 1}
    return Injection("faulty.corrupting", given, word=word)


SHIPPED = {
    "bit_flip": {**FLOAT32, "after": 1},
    "cached_output": FLOAT32,
    "crash": {**FLOAT32, "after": 1},
    "exact_bit_flip": {**PRODUCT, "after": 1},
    "hang": {**FLOAT32, "after": 1},
    "late_crash": {**FLOAT32, "after": 1},
    "lower_precision": FLOAT32,
    "not_a_number": {**FLOAT32, "after": 1},
    "nothing": FLOAT32,
    "rescaled": {**FLOAT32, "after": 1},
    "skipped_update": {"num_steps": 6, "target": 0.01},
    "slow_device": FLOAT32,
    "stale_output": FLOAT32,
    "unwritten_output": {**FLOAT32, "after": 1},
    "zero_work": {"m": 4096, "n": 4096, "k": 512},  # more than any processor does in 100 us
    "zeros": {**FLOAT32, "after": 1},
}
UNLIKE_THE_REST: dict[str, dict[str, Any]] = {
    "crash": {"criterion": "completion"},
    "hang": {"criterion": "completion", "time_limit": 10.0},
    "late_crash": {"criterion": "completion"},
    "zero_work": {"word": "inconclusive"},
    "nothing": {"word": "pass"},  # what nothing shows is refused by its name alone
    "slow_device": {"word": "pass"},  # there is nothing to compare its times with
}
INJECTIONS = {
    **{
        name: Injection(
            f"workloads.injected.{name}", SHIPPED[name], **UNLIKE_THE_REST.get(name, {})
        )
        for name in SHIPPED
    },
    "cached_output-in-step": Injection(
        # Its fourth step after the first would be of the first input set again.
        "workloads.injected.cached_output",
        {**FLOAT32, "num_inputs": 4},
    ),
    "bert-logits": corrupting("bert", "not_a_number", "logits"),
    "bert-gradients": corrupting("bert", "highest_bit", "gradients"),
    "bert-stale": corrupting("bert", "stale"),
    "bert-skipped": corrupting("bert", "skipped_update"),
    "bert-inputs": corrupting("bert", "wrong_inputs"),
    "bert-right": corrupting("bert", "none", word="pass"),
    "resnet50-statistics": corrupting("resnet50", "rescaled", "statistics"),
    "memory_bandwidth-bit": corrupting("memory_bandwidth", "middle_bit", "scale"),
    "gemm_exact-bit": corrupting("gemm_exact", "middle_bit"),
    "gemm_exact-inputs": corrupting("gemm_exact", "wrong_inputs"),
    "gemm-zeros": corrupting("gemm", "zeros"),
    "digits_mlp-weights": corrupting("digits_mlp", "rescaled", "weights"),
    "markov_lm-loss": corrupting("markov_lm", "infinite", "loss"),
    "llama-logits": corrupting("llama", "rescaled", "logits"),
    "onnx_resnet50-unwritten": corrupting("onnx_resnet50", "unwritten"),
}


@dataclass(frozen=True)
class Run:
    """What is left of the run."""

    code: int
    verdict: dict[str, Any]
    plan: dict[str, Any]
    events: list[dict[str, Any]]
    peaks: list[dict[str, Any]]

    def words(self, case: str, criterion: str) -> set[str]:
        return {
            ruling["ruling"]
            for ruling in self.verdict["rulings"]
            if (ruling["case"] or "").partition("@")[0] == case and ruling["criterion"] == criterion
        }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("injected")
    suite, out = folder / "injected.toml", folder / "out"
    suite.write_text(HEAD + "".join(_case(name, one) for name, one in INJECTIONS.items()))
    words = ["run", "--suite", str(suite), "--vendor", "cpu", "--out", str(out), "--json"]
    done = bench(*words, env=WITH_FAULTS, timeout=3400)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    bundle = Path(json.loads(done.stdout)["folder"])
    lines = (bundle / "journal.jsonl").read_text().splitlines()
    return Run(
        done.returncode,
        json.loads((bundle / "verdict.json").read_text()),
        json.loads((bundle / "plan.json").read_text()),
        [json.loads(line)["event"] for line in lines],
        json.loads((bundle / "peaks.json").read_text())["peak"],
    )


def _case(name: str, injection: Injection) -> str:
    parameters = ", ".join(
        f"{key} = {json.dumps(value)}" for key, value in injection.parameters.items()
    )
    return CASE.format(
        id=name,
        workload=injection.workload,
        parameters=parameters,
        limit=injection.time_limit,
    )


def test_every_shipped_injector_is_in_the_run() -> None:
    modules = {module.name for module in pkgutil.iter_modules(workloads.injected.__path__)}
    beside = {"product", "wrong_stress"}  # a part of others, and one that the self-test launches
    assert modules - beside == set(SHIPPED)


@pytest.mark.parametrize("name", INJECTIONS)
def test_injected_fault_is_ruled_as_expected(run: Run, name: str) -> None:
    injection = INJECTIONS[name]
    assert run.words(name, injection.criterion) == {injection.word}


def test_run_with_faults_is_rejected(run: Run) -> None:
    assert (run.verdict["verdict"], run.code) == ("REJECTED", 1)


def test_every_injector_is_named_in_the_plan_and_in_the_journal(run: Run) -> None:
    of_case = {case["id"].partition("@")[0]: case["injector"] for case in run.plan["cases"]}
    assert set(of_case) == set(INJECTIONS)
    assert all(of_case.values())
    assert set(run.plan["injectors"]) == set(of_case.values())
    output = {event["injector"] for event in run.events if event["kind"] == "injected"}
    assert output == set(of_case.values())


@pytest.mark.parametrize("name", INJECTIONS)
def test_integrity_of_a_case_with_an_injector_is_refused(run: Run, name: str) -> None:
    """For its name; a step without work fails already where it is known what a processor can."""
    has_bound = any("flops" in peak["quantity"] for peak in run.peaks)
    expected = "fail" if name == "zero_work" and has_bound else "inconclusive"
    assert run.words(name, "integrity") == {expected}
