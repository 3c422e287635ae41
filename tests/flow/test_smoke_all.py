"""The suite of every workload: all complete, and every check is within.

Three runs of the program have all of its rows: JAX and ONNX Runtime run on the processors, what
torch computes on simulated accelerators. A row of one device is told of that device alone, whatever
its number on the node (`test_row_of_one_device_is_told_of_no_other`), so most run on a node of one;
rows of several devices, and a row of each kind beside them, run on a node of two.
"""

from __future__ import annotations

import json
import os
import pkgutil
import tomllib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulty.simulated import Simulated
from support.program import ROOT, bench, program
from support.simulated_device import VISIBLE
from support.simulated_runs import (
    CASES,
    DEVICES,
    ON_PROCESSORS,
    VENDOR,
    doubts,
    smoke,
    verdict,
)

import workloads

SHIPPED = ROOT / "workloads" / "suites" / "smoke-all.toml"
SUITE = tomllib.loads(SHIPPED.read_text())
NEED_DATA = {"char_lm", "cifar10_resnet", "gcn_cora"}
NEED_A_DEVICE = {"gemm_tf32"}
ON_DEVICES = CASES.keys() - ON_PROCESSORS
ON_EACH = {"bert", "burn_in", "digits_mlp", "gemm-fp32", "llm_chat", "op_products"}
"""Rows of one device that run on both: training, memory, a product, inference, operators."""
ACROSS = {
    name
    for name in ON_DEVICES
    if name == "device_copy_pair" or CASES[name].get("scope", "device") != "device"
}
ON_TWO = ACROSS | ON_EACH
ON_ONE = ON_DEVICES - ON_TWO
OF_TORCH = "digits_mlp"
"""A row beside those of JAX and ONNX Runtime: so one run has a server for each of the three."""


def test_suite_has_every_workload_that_runs_anywhere() -> None:
    modules = {item.name for item in pkgutil.iter_modules(workloads.__path__) if not item.ispkg}
    used = {case["workload"] for case in SUITE["case"]}
    assert used == modules - {"contract"} - NEED_DATA - NEED_A_DEVICE


def test_suite_has_jobs_of_several_ranks_and_one_of_two_agents() -> None:
    jobs = [case for case in SUITE["case"] if case.get("parameters", {}).get("ranks", 1) > 1]
    assert len(jobs) >= 10
    assert sum(case.get("agents", 1) > 1 for case in jobs) == 1


WATCHED = """
import sys
def note(event, args):
    name = args[0].partition(".")[0] if event == "import" else ""
    if name in {"torch", "jax", "onnxruntime", "transformers"}:
        with open(%r, "a") as file:
            file.write(name + "\\n")
sys.addaudithook(note)
"""
"""A module that Python imports first, in children as well: notes each framework's import."""


def test_shipped_suite_has_a_plan_for_processors_and_no_framework_is_imported(
    tmp_path: Path,
) -> None:
    noted = tmp_path / "noted"
    (tmp_path / "sitecustomize.py").write_text(WATCHED % str(noted))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = bench("plan", "--suite", "smoke-all", "--vendor", "cpu", "--json", env=env)
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert [case["id"].partition("@")[0] for case in cases] == [one["id"] for one in SUITE["case"]]
    assert not noted.exists(), noted.read_text()
    program("-c", "import torch", env=env)
    assert "torch" in noted.read_text()


def test_the_three_runs_have_every_row() -> None:
    assert {case["id"] for case in SUITE["case"]} == ON_PROCESSORS | ON_ONE | ON_TWO
    assert {CASES[name].get("scope", "device") for name in ON_ONE} == {"device"}
    scopes = {CASES[name].get("scope", "device") for name in ON_TWO}
    assert scopes == {"device", "job", "node"}  # and pair: `smoke` makes it of a row


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run leaves: its verdict, and its folder."""

    verdict: Mapping[str, Any]
    folder: Path

    def records(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    @property
    def events(self) -> list[Mapping[str, Any]]:
        lines = (self.folder / "journal.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def test_row_of_one_device_is_told_of_no_other() -> None:
    """Wherever it runs: by the vendor's environment, and by the device that the worker chooses."""
    vendor = Simulated()
    shown = [vendor.environment(device) for device in vendor.probe()]
    assert [one[VISIBLE] for one in shown] == ["0", "1"]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The rows on a node of one simulated accelerator, of two, and on the processors."""

    one: Run
    two: Run
    processors: Run

    def __iter__(self) -> Iterator[Run]:
        return iter((self.one, self.two, self.processors))


def quick_flags() -> str:
    """With which XLA compiles the rows of JAX as programs that run a few times are best compiled.

    Their steps are judged by the same float64, within the same bounds.
    """
    from workloads.parts.reinforcement.jax_devices import QUICK  # noqa: PLC0415 - imports JAX

    return " ".join(f"--{name}={json.dumps(value)}" for name, value in QUICK.items())


@pytest.fixture(scope="module")
def runs(simulated_accelerator: None, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two at a time: one waits for processes to start while the other computes.

    What runs on one device has one processor of this machine's, and so one thread: where others
    compute as well, a step of several threads waits for whichever of them has no processor.
    """
    del simulated_accelerator
    folder = tmp_path_factory.mktemp("smoke-all")
    own = os.sched_getaffinity(0)

    def made(name: str, rows: AbstractSet[str], vendor: str = VENDOR, **variables: str) -> Run:
        # Of this thread of the pool, and so of what it starts.
        os.sched_setaffinity(0, own if name == "two" else {max(own)})
        given = verdict(smoke(rows), folder / name, vendor=vendor, **variables)
        return Run(verdict=given, folder=next((folder / name / "out").iterdir()))

    with ThreadPoolExecutor(max_workers=2) as pool:
        one = pool.submit(made, "one", ON_ONE, **{DEVICES: "1"})
        two = pool.submit(made, "two", ON_TWO, **{DEVICES: "2"})
        flags = {"XLA_FLAGS": quick_flags()}
        processors = pool.submit(made, "processors", ON_PROCESSORS | {OF_TORCH}, "cpu", **flags)
        return Runs(one=one.result(), two=two.result(), processors=processors.result())


FEW = 2
"""Cases of a run in whose short steps other tests may have taken the processor from the host."""


def is_interrupted(ruling: Mapping[str, Any]) -> bool:
    """Whether it says no more than that the host's clock went on between a step and its reading.

    A simulated device has no processor of its own, and a block here lasts hundredths of a second;
    clocks that are wrong are those of test_simulated.py.
    """
    is_open = (ruling["criterion"], ruling["ruling"]) == ("integrity", "inconclusive")
    return is_open and "shorter than its host's does" in ruling["explanation"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_workload_completes_and_every_check_is_within(runs: Runs) -> None:
    done = set()
    for run in runs:
        interrupted = [one for one in doubts(run.verdict) if is_interrupted(one)]
        assert [one for one in doubts(run.verdict) if one not in interrupted] == []
        assert len(interrupted) <= FEW
        assert run.verdict["verdict"] == ("INCONCLUSIVE" if interrupted else "ACCEPTED")
        assert len(run.verdict["cases"]) == len(run.records("plan.json")["cases"])
        for case in run.verdict["cases"]:
            assert case["num_completed"] == case["num_planned"], case["case"]
            assert case["checks"], case["case"]
            done.add(case["case"].partition("@")[0])
    assert done == {case["id"] for case in SUITE["case"]}


@pytest.mark.slow
def test_rows_ran_on_one_device_on_both_and_across_them(runs: Runs) -> None:
    assert _places(runs.one) == {name: {"simulated:0"} for name in ON_ONE}
    places = _places(runs.two)
    assert places.keys() == ON_TWO
    one, other, both = "simulated:0", "simulated:1", f"{VENDOR}:all"
    across = {f"{one}+{other}", f"{other}+{one}"}
    for name in ON_TWO - {"device_copy_pair"}:
        expected = {both} if CASES[name].get("scope") == "job" else {one, other}
        assert places[name] == expected, name
    assert places["device_copy_pair"] == across


def _places(run: Run) -> dict[str, set[str]]:
    """Where each row ran."""
    places: dict[str, set[str]] = {}
    for case in run.verdict["cases"]:
        name, _, place = case["case"].partition("@")
        places.setdefault(name, set()).add(place)
    return places


@pytest.mark.slow
def test_launches_are_forked_where_a_fork_is_safe(runs: Runs) -> None:
    """Each framework and each number of ranks has a healthy server of its own."""
    expected = (
        {("torch", 1)},
        {("torch", 1), ("torch", 2)},
        {("jax", 1), ("onnx", 1), ("torch", 1)},
    )
    for run, servers in zip(runs, expected, strict=True):
        probed = {
            (one["framework"], one["ranks"]): (one["is_healthy"], one["reason"], one["last_words"])
            for one in run.events
            if one["kind"] == "server_probed"
        }
        assert probed == dict.fromkeys(servers, (True, "", ""))
    assert _modes(runs.two) == {("forked", 1, 1), ("forked", 2, 2), ("fresh", 1, 2)}
    assert _modes(runs.one) == _modes(runs.processors) == {("forked", 1, 1)}


def _modes(run: Run) -> set[tuple[str, int, int]]:
    """How launches were started, by how many ranks each has, and on how many devices."""
    cases = {
        case["id"]: (case["ranks"], len(case["devices"]) or 1)
        for case in run.records("plan.json")["cases"]
    }
    return {
        (one["mode"], *cases[one["launch"].rpartition("/")[0]])
        for one in run.events
        if one["kind"] == "launch_started"
    }
