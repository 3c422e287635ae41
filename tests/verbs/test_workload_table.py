"""The reference's table of workloads is the one that the workloads give."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from support.builders import FUNCTIONAL, PROTOCOL, SYSTEM, a_case, a_plan
from support.timed_evidence import ruling_on, rulings, steady, timed

from appliance.errors import ApplianceError
from appliance.records.json import adapter
from appliance.storage import device_file
from appliance.verbs.listing import ListedWorkload, in_millions

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


operations = script("operations_table")
workload_table = script("workload_table")
TOLERANCE = 0.02


@pytest.fixture(scope="module")
def result() -> tuple[ListedWorkload, ...]:
    command = [sys.executable, "-m", "appliance", "list", "workloads", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows: tuple[ListedWorkload, ...] = adapter(tuple[ListedWorkload, ...]).validate_json(
        done.stdout
    )
    return rows


def test_the_reference_has_the_table_that_the_workloads_give(
    result: tuple[ListedWorkload, ...],
) -> None:
    text = workload_table.PAGE.read_text()
    assert workload_table.written(text, workload_table.table(result)) == text, "run `make generate`"


def test_every_module_of_a_workload_is_listed(result: tuple[ListedWorkload, ...]) -> None:
    listed = {item.name for item in result}
    there = {path.stem for path in (ROOT / "workloads").glob("*.py")}
    assert there - listed <= {"__init__", "contract", "loss_curve"}  # that needs its recorded band


def test_list_names_what_is_shipped(result: tuple[ListedWorkload, ...]) -> None:
    names = {item.name for item in result}
    assert names >= {"gemm", "gemm_exact", "memory_bandwidth", "resnet50", "bert", "llama"}
    assert names >= {"onnx_resnet50", "digits_mlp", "char_lm", "markov_lm"}


def test_a_listed_workload_has_all_that_chooses_it(result: tuple[ListedWorkload, ...]) -> None:
    resnet = next(item for item in result if item.name == "resnet50")
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


def test_json_has_the_documented_keys(result: tuple[ListedWorkload, ...]) -> None:
    row = json.loads(adapter(ListedWorkload).dump_json(result[0]))
    assert {"name", "domain", "unit", "scope", "needs", "variants", "suites"} <= row.keys()


# ------------------------------------------------------------------ operations of a step


def test_every_workload_is_held_to_a_figure_or_says_that_there_is_none(
    result: tuple[ListedWorkload, ...],
) -> None:
    assert {item.name for item in result} == {row.name for row in operations.rows()}


def test_operations_are_those_of_the_published_figure_or_the_closed_form(
    result: tuple[ListedWorkload, ...],
) -> None:
    own = {item.name: item for item in result}
    off = {
        row.name: (reference, own[row.name].work_full)
        for row in operations.rows()
        if (reference := operations.reference(row, own[row.name])) is not None
        and not is_near(own[row.name], reference)
    }
    assert off == {}


def is_near(item: ListedWorkload, reference: float) -> bool:
    assert item.work_full is not None
    assert item.work_full.flops is not None
    return bool(abs(item.work_full.flops / reference - 1) <= TOLERANCE)


GROUPED = {"convnext_large": 206.4e9, "focalnet": 92.4e9, "regnet_y_128gf": 765.0e9}
"""Operations an image in training: six times the published multiply-accumulates."""
H100 = "NVIDIA H100 80GB HBM3"


def test_grouped_convolutions_are_counted_as_published(result: tuple[ListedWorkload, ...]) -> None:
    works = {item.name: item.work_full for item in result if item.work_full is not None}
    counted = {name: (works[name].flops or 0) / works[name].units for name in GROUPED}
    assert counted == pytest.approx(GROUPED, rel=0.01)


@pytest.mark.parametrize(
    ("fraction", "answer"), [(0.95, ("pass", "")), (1.05, ("fail", "above_peak"))]
)
@pytest.mark.parametrize("name", GROUPED)
def test_only_a_rate_above_the_peak_is_rejected(
    result: tuple[ListedWorkload, ...], name: str, fraction: float, answer: tuple[str, str]
) -> None:
    """The time is that of the published operations at so much of an H100's peak."""
    work = next(item.work_full for item in result if item.name == name)
    assert work is not None
    device = replace(SYSTEM.identity.devices[0], model=H100)
    system = replace(SYSTEM, identity=replace(SYSTEM.identity, devices=(device,)))
    protocol = replace(PROTOCOL, interim_analyses=(5, 10), blocks=1)
    plan = a_plan(replace(a_case(launches=10), work=work), protocol=protocol)
    peaks = device_file.load_peaks([H100])
    peak = max(one.value for one in peaks.peak if one.quantity.startswith(work.precision))
    lines = timed(plan, steady(work.units * GROUPED[name] / (fraction * peak)))
    ruling = ruling_on(rulings(plan, lines, FUNCTIONAL, peaks=peaks, system=system), "integrity")
    assert (ruling.ruling, ruling.reason) == answer


def test_a_figure_is_wanted_of_every_workload_that_counts_operations(
    result: tuple[ListedWorkload, ...],
) -> None:
    own = {item.name: item.work_full for item in result}
    without = {row.name for row in operations.rows() if operations.is_none(row)}
    counting = {name for name in without if (work := own[name]) is not None and work.flops}
    assert counting == {"recursiongfn", "dimenet", "op_products"}
    assert {
        row.name for row in operations.rows() if not operations.is_none(row) and not row.source
    } == set()


def test_the_reference_has_the_table_of_operations(result: tuple[ListedWorkload, ...]) -> None:
    text = (ROOT / "docs" / "reference" / "operations.md").read_text()
    assert operations.written(text, operations.table(result)) == text, "run `make generate`"


@pytest.mark.parametrize("text", ["open('x')", "batch.real", "width[0]", "nothing", "'a' * 2"])
def test_a_closed_form_is_arithmetic_of_known_names(text: str) -> None:
    with pytest.raises(ApplianceError, match="is no arithmetic of"):
        operations.evaluated(text, {"batch": 2, "width": 3})


def test_a_closed_form_is_evaluated() -> None:
    names = {"batch": 2, "width": 3.0}
    assert operations.evaluated("2 * batch * (width ** 2 - 1) / -4", names) == -8
