"""The suite of every workload: all complete, and every check is within.

Two runs of the program have all of its rows: what torch computes runs on two simulated
accelerators, JAX and ONNX Runtime on the processors.
"""

from __future__ import annotations

import json
import os
import pkgutil
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.program import ROOT, bench, program
from support.simulated_runs import CASES, ON_PROCESSORS, VENDOR, doubts, smoke, verdict

import workloads

SHIPPED = ROOT / "workloads" / "suites" / "smoke-all.toml"
SUITE = tomllib.loads(SHIPPED.read_text())
NEED_DATA = {"char_lm", "cifar10_resnet", "gcn_cora"}
NEED_A_DEVICE = {"gemm_tf32"}
ON_DEVICES = CASES.keys() - ON_PROCESSORS
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


def test_the_two_runs_have_every_row() -> None:
    assert {case["id"] for case in SUITE["case"]} == ON_PROCESSORS | ON_DEVICES
    scopes = {case.get("scope", "device") for case in SUITE["case"] if case["id"] in ON_DEVICES}
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


@pytest.fixture(scope="module")
def runs(simulated_accelerator: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The rows of torch on two simulated accelerators; beside it the others on the processors.

    One waits for processes to start while the other computes.
    """
    del simulated_accelerator
    folder = tmp_path_factory.mktemp("smoke-all")
    with ThreadPoolExecutor() as pool:
        devices = pool.submit(verdict, smoke(ON_DEVICES), folder / "devices")
        processors = pool.submit(
            verdict,
            smoke(ON_PROCESSORS | {OF_TORCH}),
            folder / "processors",
            vendor="cpu",
        )
        return tuple(
            Run(verdict=one.result(), folder=next((folder / name / "out").iterdir()))
            for name, one in (("devices", devices), ("processors", processors))
        )


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_workload_completes_and_every_check_is_within(runs: tuple[Run, Run]) -> None:
    done = set()
    for run in runs:
        assert doubts(run.verdict) == []
        assert run.verdict["verdict"] == "ACCEPTED"
        assert len(run.verdict["cases"]) == len(run.records("plan.json")["cases"])
        for case in run.verdict["cases"]:
            assert case["num_completed"] == case["num_planned"], case["case"]
            assert case["checks"], case["case"]
            done.add(case["case"].partition("@")[0])
    assert done == {case["id"] for case in SUITE["case"]}


@pytest.mark.slow
def test_rows_ran_on_both_devices_and_across_them(runs: tuple[Run, Run]) -> None:
    devices, _ = runs
    places: dict[str, set[str]] = {}
    for case in devices.verdict["cases"]:
        name, _, place = case["case"].partition("@")
        places.setdefault(name, set()).add(place)
    one, other, both = "simulated:0", "simulated:1", f"{VENDOR}:all"
    across = {f"{one}+{other}", f"{other}+{one}"}
    for case in SUITE["case"]:
        if case["id"] == "device_copy_pair":
            assert places[case["id"]] == across
        elif case["id"] in ON_DEVICES:
            expected = {both} if case.get("scope") == "job" else {one, other}
            assert places[case["id"]] == expected, case["id"]


@pytest.mark.slow
def test_launches_are_forked_where_a_fork_is_safe(runs: tuple[Run, Run]) -> None:
    """Each framework and each number of ranks has a healthy server of its own."""
    expected = ({("torch", 1), ("torch", 2)}, {("jax", 1), ("onnx", 1), ("torch", 1)})
    for run, servers in zip(runs, expected, strict=True):
        probed = {
            (one["framework"], one["ranks"]): (one["is_healthy"], one["reason"], one["last_words"])
            for one in run.events
            if one["kind"] == "server_probed"
        }
        assert probed == dict.fromkeys(servers, (True, "", ""))
    devices, processors = runs
    assert _modes(devices) == {("forked", 1, 1), ("forked", 2, 2), ("fresh", 1, 2)}
    assert _modes(processors) == {("forked", 1, 1)}


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
