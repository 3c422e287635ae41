"""A workload is fresh on a model where its pairs of launches show a difference, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.builders import a_case, a_plan

from appliance.cli.results import plan_sentences
from appliance.records.json import from_json, to_json
from appliance.records.plan import Plan
from appliance.records.qualified import FreshControl, LaunchPair, ObservedCase
from appliance.scheduling import launch_kinds
from appliance.storage import qualified_file


def with_pairs(difference: float, vendor: str = "cuda", count: int = 8) -> ObservedCase:
    spread = [0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0][:count]
    pairs = tuple(LaunchPair(forked=1.0, fresh=1.0 + difference + noise) for noise in spread)
    one = qualified_file.load_observed()[0]
    return replace(one, fresh_control=FreshControl(vendor=vendor, pairs=pairs))


def planned(one: ObservedCase, *, workload: str = "", version: int = 0, model: str = "") -> Plan:
    """A case of the row's own work, but for what is given."""
    case = replace(a_case(), workload=workload or one.workload, version=version or one.version)
    return launch_kinds.with_kinds(a_plan(case), {case.device: model or one.model}, [one])


def why(one: ObservedCase, **other: Any) -> str:
    """Why its launches are fresh."""
    return planned(one, **other).cases[0].fresh_because


def test_difference_that_is_shown_keeps_the_workload_fresh_on_its_model_alone() -> None:
    one = with_pairs(0.03)
    assert launch_kinds.ruling(one) == "different"
    assert f"differ on {one.model}: fresh over forked 1.0300 (1.029" in why(one)
    assert "at 90%, 8 pairs" in why(one)
    said = f"launches of gemm@cpu:0 are fresh processes: {why(one)}"
    assert said in plan_sentences(planned(one))
    assert not why(one, model="another")
    assert not why(one, version=one.version + 1)
    assert not why(one, workload="another")


@pytest.mark.parametrize(
    ("one", "ruling"),
    [
        (with_pairs(0.0), "equivalent"),
        (with_pairs(0.01), "undecided"),
        (with_pairs(0.03, vendor="cpu"), None),
        (with_pairs(0.03, count=4), None),
    ],
)
def test_whatever_else_pairs_show_leaves_launches_forked(
    one: ObservedCase, ruling: str | None
) -> None:
    assert launch_kinds.ruling(one) == ruling
    assert not why(one)


def test_record_keeps_its_pairs_and_one_without_keeps_its_bytes() -> None:
    one = with_pairs(0.01)
    assert from_json(ObservedCase, to_json(one), name="record") == one
    assert b"fresh_control" not in to_json(replace(one, fresh_control=None))
