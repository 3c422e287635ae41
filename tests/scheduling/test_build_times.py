"""What a build is taken for that nobody has timed follows from where its weights are drawn."""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_case

from appliance.planning import workload_manifest
from appliance.scheduling import build_times, forecast
from appliance.storage import suite_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import host_builds  # noqa: E402 - after the path
import write_device_budget as budget  # noqa: E402 - the same

RECORDED = ROOT / "tests" / "recorded" / "h100_0_12"
H100 = "NVIDIA H100 80GB HBM3"
LARGE = replace(a_case("llm_chat"), small=False, num_parameters=6_738_415_616)
DRAWN = sorted(name for one in build_times.load().drawn for name in one.workloads)


def test_a_device_that_draws_the_weights_moves_them_more_than_once() -> None:
    written = 2 * 6_738_415_616 / 3.35e12
    assert build_times.load().host_seconds + 2 * written < build_times.seconds(LARGE, H100) < 4.0
    twice = replace(LARGE, num_parameters=2 * 6_738_415_616)
    more = build_times.seconds(twice, H100) - build_times.seconds(LARGE, H100)
    assert more == pytest.approx(build_times.seconds(LARGE, H100) - build_times.load().host_seconds)


KNOWN = (*build_times.load().measured, *build_times.load().scaled)


@pytest.mark.parametrize("timed", KNOWN, ids=[one.workload for one in KNOWN])
def test_a_build_that_was_timed_takes_that_and_any_other_no_less(
    timed: build_times.TimedBuild,
) -> None:
    case = replace(LARGE, workload=timed.workload, num_parameters=timed.num_parameters)
    assert build_times.seconds(case, timed.model) == timed.seconds
    for other in (
        replace(case, num_parameters=timed.num_parameters + 1),
        replace(case, ranks=2),
    ):
        assert build_times.measured_seconds(other, timed.model) is None
        assert build_times.scaled_seconds(other, timed.model) is None
        least = min(timed.seconds, build_times.load().model_seconds)
        assert build_times.seconds(other, timed.model) > least * 0.99
    assert build_times.measured_seconds(case, "another device") is None
    assert build_times.scaled_seconds(case, "another device") is None


def test_scaled_builds_follow_from_what_another_host_took() -> None:
    factor, operation = budget.slower()["copies"], budget.operation_seconds()
    scaled = {one.workload: one.seconds for one in build_times.load().scaled}
    names = {"brax": "brax_ppo"}
    for row in host_builds.figures()["builds"]:
        seconds = host_builds.seconds(row, factor, operation)
        assert scaled.pop(names.get(row, row)) == round(seconds, 1)
    counts = json.loads(budget.OPERATIONS.read_text())["today"]["acceptance"]["bert-tf32-fp16"]
    full = json.loads((budget.RECORDED / "full_size.json").read_text())
    assert scaled == {"bert": round(full["bert"]["build_seconds"] + operation * counts[0], 1)}
    for library, row in host_builds.TIMED.items():  # a build is no shorter than its host's part
        assert 0.0 < host_builds.first_use(library, factor) < host_builds.timed()[row]


def test_timed_builds_are_those_of_the_recorded_journals() -> None:
    built: dict[str, float] = {}
    for name in ("rows_a", "rows_b"):
        text = lzma.decompress((RECORDED / f"{name}.jsonl.xz").read_bytes()).decode()
        for event in (json.loads(line)["event"] for line in text.splitlines()):
            if event["kind"] == "started":
                case = event["launch"].partition("@")[0]
                built[case.partition("-")[0]] = round(int(event["build_ns"]) * 1e-9, 2)
    assert {one.workload: one.seconds for one in build_times.load().measured} == built


def test_any_other_build_takes_what_models_and_products_take() -> None:
    of = build_times.load()
    assert build_times.seconds(replace(LARGE, workload="pna"), H100) == of.model_seconds
    assert build_times.seconds(LARGE, "a device without figures") == of.model_seconds
    assert build_times.seconds(LARGE, None) == of.model_seconds
    assert build_times.seconds(replace(LARGE, ranks=2), H100) == of.model_seconds
    assert build_times.seconds(replace(LARGE, num_parameters=None), H100) == of.product_seconds


def test_a_plan_takes_a_build_for_what_it_takes_on_the_device() -> None:
    protocol = suite_file.load_suite("acceptance")[0].protocol
    here, there = (
        forecast.estimate(LARGE, model, 0.5, protocol, "assumed") for model in (H100, None)
    )
    less = build_times.load().model_seconds - build_times.seconds(LARGE, H100)
    for name in ("seconds", "untimed_seconds"):
        assert getattr(there, name) - getattr(here, name) == pytest.approx(less, abs=0.11)


@pytest.mark.parametrize("name", DRAWN)
def test_rows_of_drawn_weights_are_those_that_the_inputs_page_names(name: str) -> None:
    assert name in workload_manifest.load()
    page = (ROOT / "docs" / "explanation" / "inputs.md").read_text()
    rows = [line for line in page.splitlines() if f"`{name}`" in line and line.startswith("|")]
    assert any("and weights | on the device" in line for line in rows)


def test_every_row_whose_weights_the_inputs_page_says_a_device_draws_is_in_the_file() -> None:
    page = (ROOT / "docs" / "explanation" / "inputs.md").read_text()
    rows = [line for line in page.splitlines() if "and weights | on the device" in line]
    assert sorted(name for row in rows for name in row.split("`")[1::2]) == DRAWN


@pytest.mark.parametrize(("workload", "counted"), [("llama", "gemm-bf16"), ("bert", "gemm-fp32")])
def test_bytes_that_a_weight_moves_are_those_counted_of_an_operand(
    workload: str, counted: str
) -> None:
    cases = json.loads((ROOT / "tests" / "recorded" / "host_parts.json").read_text())["node"]
    elements = 3 * 2 * 8192**2
    moved = cases["cases"][counted]["drawn_bytes"] / elements
    drawn = build_times.load().of(workload)
    assert drawn is not None
    assert moved <= drawn.bytes_moved < 1.01 * moved
