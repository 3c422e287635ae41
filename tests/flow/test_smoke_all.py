"""The suite of every workload, run as a person runs it: all complete, and every check is within."""

from __future__ import annotations

import json
import pkgutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.program import ROOT, bench

import workloads
from appliance.planning.launch_constants import FRESH_REPEAT

SHIPPED = ROOT / "workloads" / "suites" / "smoke-all.toml"
SUITE = tomllib.loads(SHIPPED.read_text())
NEED_DATA = {"char_lm", "cifar10_resnet", "gcn_cora"}
NEED_A_DEVICE = {"gemm_tf32"}


def test_suite_has_every_workload_that_runs_anywhere() -> None:
    modules = {item.name for item in pkgutil.iter_modules(workloads.__path__) if not item.ispkg}
    used = {case["workload"] for case in SUITE["case"]}
    assert used == modules - {"contract"} - NEED_DATA - NEED_A_DEVICE


def test_suite_has_jobs_of_several_ranks_and_one_of_two_agents() -> None:
    jobs = [case for case in SUITE["case"] if case.get("parameters", {}).get("ranks", 1) > 1]
    assert len(jobs) >= 10
    assert sum(case.get("agents", 1) > 1 for case in jobs) == 1


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_workload_completes_and_every_check_is_within(tmp_path: Path) -> None:
    """Without the deterministic phase, which starts three processes more for each case."""
    suite = tmp_path / "smoke-all.toml"
    suite.write_text(SHIPPED.read_text().replace("repeats = 3", "repeats = 0"))
    words = ["run", "--suite", str(suite), "--vendor", "cpu", "--out", str(tmp_path), "--json"]
    done = bench(*words, timeout=None)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)["verdict"]
    open_rulings = [one for one in verdict["rulings"] if one["ruling"] != "pass"]
    assert {(one["criterion"], one["reason"]) for one in open_rulings} <= {
        ("repeatability", "unplanned")
    }
    assert (done.returncode, verdict["verdict"]) == (0, "ACCEPTED")
    assert len(verdict["cases"]) == len(SUITE["case"])
    for case in verdict["cases"]:
        assert case["num_completed"] == case["num_planned"], case["case"]
        assert case["checks"], case["case"]
    assert_forked_where_a_fork_is_safe(next(tmp_path.rglob("journal.jsonl")).parent)


def assert_forked_where_a_fork_is_safe(folder: Path) -> None:
    """Rows of JAX and ONNX Runtime beside those of torch, each from a healthy server of its own."""
    plan = json.loads((folder / "plan.json").read_text())
    journal = (folder / "journal.jsonl").read_text()
    events = [json.loads(line)["event"] for line in journal.splitlines()]
    probed = {
        one["framework"]: (one["is_healthy"], one["reason"], one["last_words"])
        for one in events
        if one["kind"] == "server_probed"
    }
    assert probed == dict.fromkeys(("jax", "onnx", "torch"), (True, "", ""))
    single = {
        case["id"] for case in plan["cases"] if case["ranks"] == 1 and len(case["devices"]) < 2
    }
    modes = {
        (one["mode"], one["launch"].rpartition("/")[0] in single)
        for one in events
        if one["kind"] == "launch_started" and not one["launch"].endswith(f"/{FRESH_REPEAT}")
    }
    assert modes == {("forked", True), ("fresh", False)}
