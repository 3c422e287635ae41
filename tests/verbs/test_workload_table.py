"""The README's table of workloads is the one that the workloads give."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.errors import ApplianceError
from appliance.records.json import adapter
from appliance.verbs.listing import ListedWorkload, in_millions

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("table", ROOT / "scripts" / "workload_table.py")
assert SPEC is not None
assert SPEC.loader is not None
workload_table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(workload_table)


@pytest.fixture(scope="module")
def found() -> tuple[ListedWorkload, ...]:
    command = [sys.executable, "-m", "appliance", "list", "workloads", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows: tuple[ListedWorkload, ...] = adapter(tuple[ListedWorkload, ...]).validate_json(
        done.stdout
    )
    return rows


def test_the_readme_has_the_table_that_the_workloads_give(
    found: tuple[ListedWorkload, ...],
) -> None:
    text = (ROOT / "README.md").read_text()
    assert workload_table.written(text, workload_table.table(found)) == text, "run `make generate`"


def test_every_module_of_a_workload_is_listed(found: tuple[ListedWorkload, ...]) -> None:
    listed = {item.name for item in found}
    there = {path.stem for path in (ROOT / "workloads").glob("*.py")}
    assert there - listed <= {"__init__", "contract", "loss_curve"}  # that needs its recorded band


def test_list_names_what_is_shipped(found: tuple[ListedWorkload, ...]) -> None:
    names = {item.name for item in found}
    assert names >= {"gemm", "gemm_exact", "memory_bandwidth", "resnet50", "bert", "llama"}
    assert names >= {"onnx_resnet50", "digits_mlp", "char_lm", "markov_lm"}


def test_a_listed_workload_has_all_that_chooses_it(found: tuple[ListedWorkload, ...]) -> None:
    resnet = next(item for item in found if item.name == "resnet50")
    assert (resnet.unit, resnet.num_parameters_full) == ("images", 25_557_032)
    assert {"smoke", "smoke-all"} <= set(resnet.suites)
    assert resnet.parameters_full.keys() == resnet.parameters_small.keys()
    assert resnet.parameters_full != resnet.parameters_small


def test_rows_go_between_the_markers_and_nowhere_else() -> None:
    text = f"before\n{workload_table.BEGIN}old\n{workload_table.END}after\n"
    new = f"before\n{workload_table.BEGIN}new\n{workload_table.END}after\n"
    assert workload_table.written(text, "new\n") == new
    with pytest.raises(ApplianceError, match="not the two markers"):
        workload_table.written("no table here", "new\n")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (None, "-"),
        (12, "12"),
        (5_100, "5.1 k"),
        (25_557_032, "25.6 M"),
        (70_553_706_496, "70.6 G"),
    ],
)
def test_sizes_are_said_as_people_say_them(count: int | None, words: str) -> None:
    assert in_millions(count) == words


def test_json_has_the_documented_keys(found: tuple[ListedWorkload, ...]) -> None:
    row = json.loads(adapter(ListedWorkload).dump_json(found[0]))
    assert {"name", "domain", "unit", "scope", "needs", "variants", "suites"} <= row.keys()
