"""Copies between every two devices: where they are placed, what a launch sees, what is shown."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch
from support import launching
from support.builders import SEED, STEP_NS, a_system
from support.pair_runs import NUM_BYTES, judged, node, pair_case
from support.report_samples import sample
from support.suite_items import device, item, placed

from appliance.evidence.baseline_key import key_of
from appliance.records.journal import Checked, Reading
from appliance.records.plan import NotPlanned
from appliance.worker.prepare import launch_devices
from reports import pairs, render
from reports.document.view import view
from workloads.contract.target import Artifacts, Target
from workloads.device_copy_pair import DeviceCopyPair

# ------------------------------------------------------------------ placing


def test_every_ordered_pair_of_a_vendors_devices_is_a_case_of_its_own() -> None:
    devices = [device(0), device(1), device(2)]
    result, lacking = placed(item("pairs", scope="pair"), devices=devices)
    assert lacking == ()
    assert [one.place for one in result] == [
        "vendor:0+vendor:1",
        "vendor:0+vendor:2",
        "vendor:1+vendor:0",
        "vendor:1+vendor:2",
        "vendor:2+vendor:0",
        "vendor:2+vendor:1",
    ]
    assert {one.num_ranks for one in result} == {0}


def test_one_device_has_no_pair_and_the_plan_says_so() -> None:
    result, lacking = placed(item("pairs", scope="pair"), item("other"), devices=[device(0)])
    assert [one.item.id for one in result] == ["other"]
    assert lacking == (
        NotPlanned(case="pairs", device="", reason="it needs 2 devices, and this node has 1"),
    )


def test_processors_beside_the_accelerators_make_no_gap() -> None:
    devices = [device(0), device(1), device(0, vendor="cpu")]
    result, lacking = placed(item("pairs", scope="pair"), devices=devices)
    assert [one.place for one in result] == ["vendor:0+vendor:1", "vendor:1+vendor:0"]
    assert lacking == ()


def test_ranks_on_the_processors_need_no_devices_of_their_own() -> None:
    job = item("job", scope="job", num_devices=2, parameters={"ranks": 2})
    for devices, count in (
        ([device(0, vendor="cpu")], 1),
        ([device(0)], 0),
        ([device(0), device(1)], 1),
    ):
        result, lacking = placed(job, devices=devices)
        assert (len(result), len(lacking)) == (count, 1 - count)
    full = item("full", scope="job", num_devices=2)  # its ranks are those of the devices
    assert placed(full, devices=[device(0, vendor="cpu")], seed=SEED)[0] == ()


# ------------------------------------------------------------------ the launch


class Accelerator:
    torch_type = "meta"


def test_launch_sees_both_devices_in_the_order_of_the_copy() -> None:
    spec = type("Spec", (), {"case": pair_case("vendor:3", "vendor:1")})()
    assert launch_devices(spec, Accelerator()) == (  # type: ignore[arg-type]
        torch.device("meta", 0),
        torch.device("meta", 1),
    )


def target(tmp_path: Path, *devices: str) -> Target:
    result = tuple(map(torch.device, devices))
    return Target(device=result[0], devices=result, artifacts=Artifacts(tmp_path))


def test_copy_goes_from_the_first_device_to_the_second(tmp_path: Path) -> None:
    workload = DeviceCopyPair(num_bytes=4096)
    state = workload.build(target(tmp_path, "cpu", "meta"), seed=5)
    assert [one.device.type for one in state.sources] == ["cpu", "cpu"]
    assert state.buffer.device.type == "meta"
    assert workload.step(state).device.type == "meta"


def test_pair_is_launched_with_both_devices_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices of the tests' vendor: a launch with both, whose check names the second."""
    monkeypatch.setenv("PYTHONPATH", str(launching.TESTS))
    pair = launching.case(
        "pairs",
        workload="device_copy_pair",
        parameters={"num_bytes": 2**16},
        alone=True,
        scope="pair",
        devices=("cpu:0", "cpu:1"),
    )
    bench = launching.Bench(tmp_path / "run", launching.plan(pair))
    bench.run()
    assert [bench.ended(f"{pair.id}/{n}").outcome for n in (0, 1)] == ["completed"] * 2
    reported = {event.check.name for event in bench.of(f"{pair.id}/1", Checked)}
    assert reported == {
        "on the second device: words that differ",
        "inputs as drawn",
        "known answers of the input generator",
    }
    assert {event.device for event in bench.of(f"{pair.id}/1", Reading)} <= {"cpu:0", "cpu:1"}


def test_check_says_whether_there_was_another_device(tmp_path: Path) -> None:
    workload = DeviceCopyPair(num_bytes=4096)
    reported = {}
    for devices in (("cpu",), ("cpu", "cpu")):
        state = workload.build(target(tmp_path, *devices), seed=5)
        (check,) = workload.check(None, state, workload.step(state))
        assert check.is_within
        reported[len(devices)] = check.name
    assert reported == {
        1: "on the one device that there is: words that differ",
        2: "on the second device: words that differ",
    }


def test_pairs_have_baselines_of_their_own() -> None:
    plan = node(2)
    system = a_system("cpu:0", "cpu:1")
    keys = {key_of(case, plan.protocol, system).case for case in plan.cases}
    assert keys == {"pairs@cpu:0+cpu:1", "pairs@cpu:1+cpu:0"}


# ------------------------------------------------------------------ the page


def test_square_shows_every_pair_and_shades_those_that_lag() -> None:
    plan = node(3)
    (section,) = pairs.sections(plan, judged(plan, {"cpu:0+cpu:2": 1.15, "cpu:2+cpu:1": 2.5}))
    assert (section.id, section.columns) == ("pairs", ("0", "1", "2"))
    assert [row.name for row in section.rows] == ["cpu:0", "cpu:1", "cpu:2"]
    shades = [[cell.shade for cell in row.cells] for row in section.rows]
    assert shades == [["self", "0", "2"], ["0", "self", "0"], ["0", "4", "self"]]
    assert section.rows[0].cells[1].text == f"{NUM_BYTES / 1e9 / (STEP_NS * 1e-9):.4g}"
    assert section.notes[0].startswith("6 pairs: slowest 21.4")
    assert "40 % of the fastest" in section.notes[0]


def test_pair_whose_check_failed_is_a_gap_and_no_figure() -> None:
    plan = node(2)
    verdict = judged(plan, {})
    results = tuple(
        replace(one, estimates=(), withheld="no timing is shown: the check failed")
        if one.case == "pairs@cpu:1+cpu:0"
        else one
        for one in verdict.cases
    )
    (section,) = pairs.sections(plan, replace(verdict, cases=results))
    assert [cell.text for cell in section.rows[1].cells] == ["—", ""]
    assert section.rows[1].cells[0].shade == "gap"
    assert "pairs@cpu:1+cpu:0" in section.notes[1]


def test_page_has_the_square_and_none_where_there_is_no_pair() -> None:
    plain = view(sample())
    assert plain.pairs == ()
    assert 'id="pairs"' not in render.html(plain, {}).decode()
    plan = node(3)
    text = render.html(replace(plain, pairs=pairs.sections(plan, judged(plan, {}))), {}).decode()
    assert 'id="pairs"' in text
    assert 'class="number shade-0"' in text


if __name__ == "__main__":
    plan = node(8)
    slow = {
        f"cpu:{i}+cpu:{j}": 1.0 + 0.01 * ((i * 7 + j * 3) % 4) + 0.6 * (i // 4 != j // 4)
        for i, j in permutations(range(8), 2)
    }
    made = replace(
        view(sample()),
        pairs=pairs.sections(
            plan, judged(plan, {**slow, "cpu:2+cpu:5": 4.0, "cpu:5+cpu:2": math.e})
        ),
    )
    Path(sys.argv[1]).write_bytes(render.pdf(made, {"statement.dsse.json": b"{}"}))
