"""Runs of `bench` on the simulated accelerator: healthy, and with each way to lie.

    python tests/support/simulated_runs.py smoke           every row that can run, on two devices
    python tests/support/simulated_runs.py vanishes        those lies, and what became of them

The first line runs smoke-all but for the rows of JAX and ONNX Runtime, which do not know this
device: a quarter of an hour of one core.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty.simulated import RECORDS
from support.program import ROOT, WITH_FAULTS, program
from support.simulated_device import MEMORY, PLANTED, STATE

SMOKE = ROOT / "workloads" / "suites" / "smoke-all.toml"
CASES = {case["id"]: case for case in tomllib.loads(SMOKE.read_text())["case"]}
FACTS = json.loads((ROOT / "appliance" / "workload_facts.json").read_text())
FRAMEWORKS = {
    one["name"]: next((part for part in ("jax", "onnx") if part in one["parts"]), "torch")
    for one in FACTS["workload"]
}
VENDOR = "faulty.simulated"
DEVICES = "SIMULATED_DEVICES"

ON_PROCESSORS = {
    name for name, case in CASES.items() if FRAMEWORKS[case["workload"]] in ("jax", "onnx")
}
"""JAX does not know the device, and ONNX Runtime has no provider for it but that of processors."""
SMALLER = {
    "burn_in": "memory_bytes = 8388608",
    "convnext_large-ranks": "batch = 2, width = 16",
    "dinov2_giant": "num_inputs = 4",
    "dinov2_giant-ranks": "num_inputs = 4",
    "focalnet-ranks": "batch = 2",
    "gemm-fp16": "m = 32, n = 32",
    "gemm_search": "divisor = 256",
    "lightning_resnet152-ranks": "most_blocks = 1",
    "llama": "new_tokens = 4",
    "llm_chat": "new_tokens = 4",
    "memory_bandwidth": "array_bytes = 8388608",
    "resnet152-ranks": "most_blocks = 1",
    "resnet50-ranks": "most_blocks = 1",
}
"""Parameters of rows that take more than ten seconds on a device without them.

Of rows of several ranks as well where each rank follows the batches of all: the contract's tests
hold their steps to float64 at the small size, and those of one device run at it here.
"""
SHORTER = {"repeats": 0, "calibration_seconds": 0.03, "block_seconds": 0.01}
"""Of the protocol. Repeats start three processes more for each case, and no record says what these
devices do in them; a block has as many steps as it must have, and its times are of no device."""


def smoke(names: Collection[str]) -> str:
    """These rows of smoke-all as a suite, with the copy between devices for every pair of them."""
    head, *cases = SMOKE.read_text().split("[[case]]")
    for name, value in SHORTER.items():
        head, number = re.subn(rf"^{name} = .*", f"{name} = {value}", head, flags=re.MULTILINE)
        assert number == 1, name
    wanted = "[[case]]".join([head, *(_smaller(case) for case in cases if _name(case) in names)])
    pair = 'id = "device_copy_pair"'
    return wanted.replace(pair, f'{pair}\nscope = "pair"')


def _smaller(case: str) -> str:
    parameters = SMALLER.get(_name(case))
    small = "small = true"
    if parameters is None:
        return case
    if "parameters = { " in case:
        return case.replace("parameters = { ", f"parameters = {{ {parameters}, ")
    return case.replace(small, f"{small}\nparameters = {{ {parameters} }}")


def _name(case: str) -> str:
    return re.findall(r'^id = "(.*)"', case, re.MULTILINE)[0]


# ------------------------------------------------------------------------------ one lie


SUITE = """
schema = "bench/suite/2"
name = "lying"
version = 1
summary = "One case on an accelerator that may lie"
time_limit_seconds = 3600
variants = false

[protocol]
mode = "forked"
calibration_seconds = 0.1
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 2
block_seconds = {block_seconds}
interim_analyses = [{launches}]
last_checks = "all"
repeats = {repeats}

[[case]]
id = "case"
workload = "{workload}"
small = true
parameters = {{ {parameters} }}
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

    `rulings` are those that matter, as (ruling, reason) by criterion, and `words` a part of what
    is said of some. With `is_timed` the criteria want a step time that nothing reaches.
    `num_recorded` clean repeats are recorded of the healthy device before, if any.
    """

    what: str
    verdict: str
    rulings: Mapping[str, tuple[str, str]]
    words: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    workload: str = "gemm"
    parameters: str = 'dtype = "float32"'
    launches: int = 1
    repeats: int = 0
    block_seconds: float = 0.01
    seconds: int = 120
    criteria: str = "functional"
    is_timed: bool = False
    num_recorded: int = 0


def planted(fault: str) -> Mapping[str, str]:
    return {PLANTED: fault}


FEW_ROWS = 'dtype = "float32", m = 16, n = 16, num_inputs = 1'
"""A case whose operands are made a hundred times, after a mismatch."""
WRONG = {"correctness": ("fail", "check")}
FALSE_CLOCK = {"integrity": ("fail", "clock")}

# The probe of a fork server makes one matmul and fewer than a dozen operators. What begins later
# leaves the server healthy, so a launch needs no process of its own, which takes longer.
LIES: Mapping[str, Lie] = {
    "nothing": Lie(
        what="nothing",
        verdict="ACCEPTED",
        rulings={"correctness": ("pass", ""), "integrity": ("pass", "")},
    ),
    "short": Lie(
        what="float32 products of 10 bits",
        variables=planted("short"),
        verdict="REJECTED",
        rulings=WRONG,
    ),
    "flip": Lie(
        what="one flipped bit in one of many products",
        variables=planted("flip=2"),
        workload="op_products",
        parameters="",
        verdict="REJECTED",
        rulings=WRONG,
    ),
    "integers": Lie(
        what="integer products that lose a bit, so that other inputs are drawn",
        variables=planted("integers"),
        verdict="REJECTED",
        rulings=WRONG,
        words={"correctness": "known answers of the input generator"},
    ),
    "unwritten": Lie(
        what="outputs that are never written",
        variables=planted("unwritten=2"),
        verdict="REJECTED",
        rulings=WRONG,
    ),
    "forgets": Lie(
        what="memory that forgets",
        variables=planted("fades=100"),
        workload="burn_in",
        parameters="",
        verdict="REJECTED",
        rulings=WRONG,
    ),
    "memory": Lie(
        what="less memory than a case needs",
        variables={MEMORY: str(2**20)},
        verdict="REJECTED",
        rulings={"completion": ("fail", "crashed")},
    ),
    "hang": Lie(
        what="work that never ends",
        variables=planted("hang=12"),
        seconds=4,
        verdict="REJECTED",
        rulings={"completion": ("fail", "timed_out")},
    ),
    "slow clock": Lie(
        what="an event clock at 0.966 of its rate",
        variables=planted("clock=0.966"),
        verdict="REJECTED",
        rulings=FALSE_CLOCK,
    ),
    "dead clock": Lie(
        what="an event clock that stands still",
        variables=planted("clock=0"),
        verdict="REJECTED",
        rulings=FALSE_CLOCK,
    ),
    "early": Lie(
        what="a synchronise that returns before the work is done",
        variables=planted("early"),
        verdict="REJECTED",
        rulings=FALSE_CLOCK,
    ),
    "slow": Lie(
        what="less speed than a limit wants",
        is_timed=True,
        launches=5,
        verdict="REJECTED",
        rulings={"speed": ("fail", "over_limit")},
    ),
    "shared": Lie(
        what="the same, and another process that has it for half of the time",
        variables=planted("shared"),
        is_timed=True,
        launches=5,
        verdict="INCONCLUSIVE",
        rulings={"speed": ("inconclusive", "environment")},
        words={"speed": "another process used simulated:0: 0.9 GiB, 98 %"},
    ),
    "shared clock": Lie(
        what="an event clock at 0.966 of its rate, and another process beside",
        variables=planted("clock=0.966,shared"),
        verdict="INCONCLUSIVE",
        rulings={"integrity": ("inconclusive", "environment")},
        words={"integrity": "another process used simulated:0: 0.9 GiB, 98 %"},
    ),
    "order": Lie(
        what="sums in another order at each call, and no record of its repeats",
        variables=planted("order"),
        parameters=FEW_ROWS,
        repeats=3,
        verdict="ACCEPTED",
        rulings={"repeatability": ("not_applicable", "unqualified")},
        words={"repeatability": "many low bits, which points to another order of sums"},
    ),
    "order on record": Lie(
        what="the same, where repeats of healthy devices are on record",
        variables=planted("order"),
        parameters=FEW_ROWS,
        repeats=3,
        num_recorded=5,
        verdict="REJECTED",
        rulings={"repeatability": ("fail", "disagreement")},
    ),
    "unlinked": Lie(
        what="links of which the driver answers NOT_SUPPORTED, on a device alone",
        variables=planted("unlinked"),
        criteria="accelerator",
        block_seconds=2.0,  # in which telemetry is read, however fast the machine is
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
    criteria = lie.criteria
    if lie.is_timed:
        text = (ROOT / "appliance" / "criteria" / f"{criteria}.toml").read_text()
        criteria = str(folder / "criteria.toml")
        Path(criteria).write_text(text + TOO_FAST)
    variables = {DEVICES: "1", **lie.variables}
    if lie.num_recorded:
        variables[RECORDS] = str(_records(lie, folder / "healthy"))
    return verdict(_suite(lie, lie.repeats), folder, "--criteria", criteria, **variables)


def _suite(lie: Lie, repeats: int) -> str:
    return SUITE.format(
        workload=lie.workload,
        parameters=lie.parameters,
        launches=lie.launches,
        repeats=repeats,
        block_seconds=lie.block_seconds,
        seconds=lie.seconds,
    )


def _records(lie: Lie, folder: Path) -> Path:
    """Folder of the records that the project's script makes of a healthy device."""
    folder.mkdir()
    verdict(_suite(lie, 1 + lie.num_recorded), folder, **{DEVICES: "1"})
    (run,) = (folder / "out").iterdir()
    records = folder / "records"
    records.mkdir()
    script = str(ROOT / "scripts" / "record_repeats.py")
    done = program(script, str(run), "--out", str(records / "simulated.json"))
    assert done.returncode == 0, done.stderr
    return records


def verdict(
    suite: str, folder: Path, *words: str, vendor: str = VENDOR, **variables: str
) -> dict[str, Any]:
    """What `bench run` says of this suite on simulated accelerators, or on other devices."""
    (folder / "state").mkdir(parents=True)
    (folder / "suite.toml").write_text(suite)
    done = program(
        *("-m", VENDOR, "run", "--vendor", vendor, "--suite", str(folder / "suite.toml")),
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
                made = verdict(smoke(CASES.keys() - ON_PROCESSORS), Path(folder))
                output: object = doubts(made)
            else:
                made = verdict_of_lie(LIES[name], Path(folder))
                output = rulings(made)
            print(name, made["verdict"], output, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
