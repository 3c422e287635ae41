"""A workload is fresh on a model where its pairs of launches show a difference, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import an_identity

from appliance.planning import launch_kinds
from appliance.records.json import from_json, to_json
from appliance.records.qualified import FreshControl, ObservedCase
from appliance.storage import qualified_file

(DEVICE,) = an_identity().devices


def with_pairs(difference: float, vendor: str = "cuda", count: int = 8) -> ObservedCase:
    spread = [0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0][:count]
    pairs = tuple((1.0, 1.0 + difference + noise) for noise in spread)
    one = qualified_file.load_observed()[0]
    return replace(one, fresh_control=FreshControl(vendor=vendor, seconds=pairs))


def test_difference_that_is_shown_keeps_the_workload_fresh_on_its_model_alone() -> None:
    one = with_pairs(0.03)
    here = replace(DEVICE, model=one.model)
    assert launch_kinds.ruling(one) == "different"
    why = launch_kinds.why_fresh(one.workload, one.version, here, [one])
    assert f"differ on {one.model}: fresh over forked 1.0300 (1.029" in why
    assert "at 90%, 8 pairs" in why
    other = replace(here, model="another")
    assert not launch_kinds.why_fresh(one.workload, one.version, other, [one])
    assert not launch_kinds.why_fresh(one.workload, one.version + 1, here, [one])
    assert not launch_kinds.why_fresh("bert", one.version, here, [one])


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
    here = replace(DEVICE, model=one.model)
    assert not launch_kinds.why_fresh(one.workload, one.version, here, [one])


def test_record_keeps_its_pairs_and_one_without_keeps_its_bytes() -> None:
    one = with_pairs(0.01)
    assert from_json(ObservedCase, to_json(one), name="record") == one
    assert b"fresh_control" not in to_json(replace(one, fresh_control=None))
