"""The lowest versions that pyproject.toml allows of libraries in pure Python run what needs them.

They are installed without what they depend on into a folder of their own, which stands ahead of the
environment; libraries with code for the processor are those of the lock.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support.program import ROOT, bench

from appliance.storage import suite_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PURE = {
    "brax": "brax",
    "diffusers": "diffusers",
    "gymnax": "gymnax",
    "lightning": "lightning",
    "onnxscript": "onnxscript",
    "optax": "optax",
    "peft": "peft",
    "torch-geometric": "torch_geometric",
    "transformers": "transformers",
}
"""Distributions of the suite's parts in pure Python, with their modules."""
ROWS = ("llm_lora", "pna", "lightning_resnet152", "text_to_image", "dqn", "brax_ppo")
"""A row for each that smoke does not use; smoke has transformers and onnxscript."""
OF_SMOKE = ("bert", "onnx_resnet50")
UNREACHABLE = re.compile(r"from versions: none|NewConnectionError|Temporary failure in name")
STEP = """
import importlib, json, sys, tempfile
from pathlib import Path
import torch
from support.quick_programs import quickly_compiled
from workloads.contract.target import Artifacts, Target

with quickly_compiled():
    for name in sys.argv[1].split(","):
        kind = importlib.import_module(f"workloads.{name}").WORKLOAD
        workload = kind(**kind.small)
        folder = Path(tempfile.mkdtemp())
        target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
        state = workload.build(target, 7)
        before = workload.snapshot(state)
        output = workload.step(state)
        workload.wait(state)
        checks = [*workload.check(before, state, output)]
        outside = [check.name for check in checks if not check.is_within]
        print(json.dumps([name, len(checks), outside]))
files = {name: importlib.import_module(name).__file__ for name in sys.argv[2].split(",")}
print(json.dumps(files))
"""


def floors() -> dict[str, str]:
    """The lowest version that is allowed of each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    items = [Requirement(one) for part in project["optional-dependencies"].values() for one in part]
    return {
        item.name: bound.version
        for item in items
        for bound in item.specifier
        if item.name in PURE and bound.operator == ">="
    }


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the lowest versions stand ahead; skips where there is no index."""
    folder = tmp_path_factory.mktemp("lowest")
    wanted = {name: low for name, low in floors().items() if Version(low) != Version(version(name))}
    words = [f"{name}=={low}" for name, low in wanted.items()]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-compile", "--target", str(folder), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    paths = (folder, ROOT, ROOT / "tests")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}


def test_every_library_in_pure_python_has_its_lowest_version() -> None:
    assert floors().keys() == PURE.keys()


def test_rows_keep_their_bounds_on_the_lowest_versions(ahead: dict[str, str]) -> None:
    folder = ahead["PYTHONPATH"].partition(os.pathsep)[0]
    lower = {name for name, low in floors().items() if Version(low) != Version(version(name))}
    modules = ",".join(PURE.values())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STEP, ",".join(ROWS), modules],
        env=ahead,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *checked, files = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "[{"]
    assert [name for name, *_ in checked] == [*ROWS]
    assert {name: outside for name, _, outside in checked if outside} == {}
    assert all(number for _, number, _ in checked)
    assert {name for name, module in PURE.items() if files[module].startswith(folder)} == lower


def test_part_of_smoke_runs_on_the_lowest_versions(ahead: dict[str, str], tmp_path: Path) -> None:
    known = {case.workload for case in suite_file.load_suite("smoke")[0].case}
    assert {*OF_SMOKE} < known
    text = (ROOT / "tests" / "suites" / "tiny.toml").read_text().partition("[[case]]")[0]
    case = '[[case]]\nid = "{0}"\nworkload = "{0}"\nsmall = true\nlaunches = 1\n'
    limits = "expected_seconds = 1\nreference_seconds = 1\ntime_limit_seconds = 300\n"
    suite = tmp_path / "part.toml"
    cases = [case.format(name) + limits + "memory_limit_gib = 4\n" for name in OF_SMOKE]
    suite.write_text("\n".join([text.replace("[5, 10]", "[1]"), *cases]))
    words = ("run", "--suite", str(suite), "--vendor", "cpu", "--out", str(tmp_path / "out"))
    done = bench(*words, env=ahead)
    assert done.returncode in {0, 3}, done.stderr
    (folder,) = (path for path in (tmp_path / "out").iterdir() if (path / "plan.json").exists())
    verdict = json.loads((folder / "verdict.json").read_text())
    words = {one["ruling"] for one in verdict["rulings"] if one["criterion"] == "correctness"}
    assert words == {"pass"}
