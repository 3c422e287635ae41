"""Runs of `bench` on the simulated accelerator: healthy, and with each way to lie.

    python tests/support/simulated_runs.py smoke           every row that can run, on two devices
    python tests/support/simulated_runs.py vanishes        those lies, and what became of them

The tests run a part of smoke-all, so as to take minutes; the first line runs all of it but the
rows of JAX, which does not know this device: a quarter of an hour of one core and more.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.program import ROOT, WITH_FAULTS, program
from support.simulated_device import PLANTED, STATE

SMOKE = ROOT / "workloads" / "suites" / "smoke-all.toml"
CASES = {case["id"]: case for case in tomllib.loads(SMOKE.read_text())["case"]}
FACTS = json.loads((ROOT / "appliance" / "workload_facts.json").read_text())
NEED_JAX = {one["name"] for one in FACTS["workload"] if "jax" in one["needs"]}
VENDOR = "faulty.simulated"
DEVICES = "SIMULATED_DEVICES"

OF_JAX = {name for name, case in CASES.items() if case["workload"] in NEED_JAX}
OF_SEVERAL = {name for name, case in CASES.items() if case.get("scope", "device") != "device"}
LONG = {
    *("convnext_large", "diffusion", "dinov2_giant", "focalnet", "gemm-fp16", "gemm_search"),
    *("llama", "llm_agreement", "llm_chat", "loss_curve_varying", "memory_bandwidth", "onnx_bert"),
    *("onnx_llama", "onnx_resnet50", "onnx_whisper", "regnet_y_128gf", "resnet152"),
    *("text_to_image", "torchatari", "vjepa"),
}
"""Rows of one device that take more than five seconds, and are like one that takes less."""
ON_ONE = CASES.keys() - OF_JAX - OF_SEVERAL - LONG
ON_TWO = {
    "burn_in",
    "collectives",
    "device_copy_pair",
    "diffusion-nodes",
    "gemm-fp32",
    "llm_full-ranks",
    "resnet50_jpeg",
}
"""Of each scope and of each way to share out a model some; others differ by their model alone."""


def smoke(names: set[str]) -> str:
    """These rows of smoke-all as a suite, with the copy between devices for every pair of them.

    The clocks are compared for longer, as the host is busy with other tests; there is no
    deterministic phase, as no record says what these devices do in it.
    """
    head, *cases = SMOKE.read_text().split("[[case]]")
    head = re.sub(r"repeats = .*", "repeats = 0", head)
    head = re.sub(r"calibration_seconds = .*", "calibration_seconds = 0.3", head)
    wanted = [case for case in cases if _name(case) in names]
    pair = 'id = "device_copy_pair"'
    return "[[case]]".join([head, *wanted]).replace(pair, f'{pair}\nscope = "pair"')


def _name(case: str) -> str:
    return re.findall(r'^id = "(.*)"', case, re.MULTILINE)[0]


# ------------------------------------------------------------------------------ one lie


SUITE = """
schema = "bench/suite/2"
name = "lying"
version = 1
summary = "One case on an accelerator that may lie"
time_limit_seconds = 300
variants = false

[protocol]
mode = "forked"
calibration_seconds = 0.3
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 3
block_seconds = 0.1
interim_analyses = [{launches}]
last_checks = "all"
repeats = {repeats}

[[case]]
id = "case"
workload = "{workload}"
small = true
expected_seconds = 1.0
reference_seconds = 1.0
time_limit_seconds = {seconds}
memory_limit_gib = 4
"""
TOO_FAST = """
[[criterion]]
id = "speed"
kind = "perf"
title = "Faster than anything is"
metric = "step_seconds"
unit = "s"
at_most = 1e-9
"""


@dataclass(frozen=True, kw_only=True)
class Lie:
    """What goes wrong, in which case, and what must become of it.

    `rulings` are those that matter, as (ruling, reason) by criterion. With `is_timed` the criteria
    want a step time that nothing reaches.
    """

    what: str
    verdict: str
    rulings: Mapping[str, tuple[str, str]]
    variables: Mapping[str, str] = field(default_factory=dict)
    workload: str = "gemm"
    launches: int = 1
    repeats: int = 0
    seconds: int = 120
    criteria: str = "functional"
    is_timed: bool = False


def planted(fault: str) -> Mapping[str, str]:
    return {PLANTED: fault}


LIES: Mapping[str, Lie] = {
    "nothing": Lie(
        what="nothing",
        verdict="ACCEPTED",
        rulings={"correctness": ("pass", ""), "integrity": ("pass", "")},
    ),
    "unlinked": Lie(
        what="links of which the driver answers NOT_SUPPORTED, on a device alone",
        variables=planted("unlinked"),
        criteria="accelerator",
        launches=4,
        verdict="ACCEPTED",
        rulings={"links-down": ("not_applicable", "not_shown")},
    ),
    "two unlinked": Lie(
        what="the same of two devices",
        variables={DEVICES: "2", **planted("unlinked")},
        criteria="accelerator",
        verdict="INCONCLUSIVE",
        rulings={"links-down": ("inconclusive", "not_observed")},
    ),
    "vanishes": Lie(
        what="a device that vanishes",
        variables=planted("vanishes=50"),
        criteria="accelerator",
        verdict="REJECTED",
        rulings={"completion": ("fail", "crashed"), "lost": ("fail", "health")},
    ),
}


def table() -> list[str]:
    """The lies as the documentation has them."""
    rows = ["| the device has | ruled | verdict |", "|---|---|---|"]
    for lie in LIES.values():
        ruled = ", ".join(
            f"{criterion}: {ruling}{f' ({reason})' if reason else ''}"
            for criterion, (ruling, reason) in lie.rulings.items()
        )
        rows.append(f"| {lie.what} | {ruled} | {lie.verdict} |")
    return rows


# ------------------------------------------------------------------------------ the runs


def verdict_of_lie(lie: Lie, folder: Path) -> dict[str, Any]:
    suite = SUITE.format(
        launches=lie.launches,
        repeats=lie.repeats,
        workload=lie.workload,
        seconds=lie.seconds,
    )
    criteria = lie.criteria
    if lie.is_timed:
        text = (ROOT / "appliance" / "criteria" / f"{criteria}.toml").read_text()
        criteria = str(folder / "criteria.toml")
        Path(criteria).write_text(text + TOO_FAST)
    return verdict(suite, folder, "--criteria", criteria, **{DEVICES: "1", **lie.variables})


def verdict(suite: str, folder: Path, *words: str, **variables: str) -> dict[str, Any]:
    """What `bench run` says of this suite on simulated accelerators: its verdict."""
    (folder / "state").mkdir()
    (folder / "suite.toml").write_text(suite)
    done = program(
        *("-m", VENDOR, "run", "--vendor", VENDOR, "--suite", str(folder / "suite.toml")),
        *("--out", str(folder / "out"), "--json", *words),
        env={**WITH_FAULTS, STATE: str(folder / "state"), **variables},
        timeout=None,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)["verdict"]
    return verdict


def rulings(verdict: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Ruling and reason by criterion, of a run of one case."""
    return {one["criterion"]: (one["ruling"], one["reason"]) for one in verdict["rulings"]}


def doubts(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was ruled on otherwise than a healthy device must be, in any criterion."""
    return [one for one in verdict["rulings"] if one["ruling"] not in ("pass", "not_applicable")]


def main() -> None:
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            if name == "smoke":
                made = verdict(smoke(CASES.keys() - OF_JAX), Path(folder))
                said: object = doubts(made)
            else:
                made = verdict_of_lie(LIES[name], Path(folder))
                said = rulings(made)
            print(name, made["verdict"], said, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
