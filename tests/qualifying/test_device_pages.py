"""The pages of devices are what the shipped records say."""

from __future__ import annotations

from pathlib import Path

from appliance.qualifying.observation import merged
from appliance.qualifying.page import models, page
from appliance.records.qualified import Qualified
from appliance.storage.qualified_file import (
    QUALIFIED,
    by_file,
    load_observed,
    load_qualified,
    parse_qualified,
    slug,
)
from appliance.version import in_order

PAGES = Path(__file__).parents[2] / "docs" / "devices"
H100 = "NVIDIA H100 80GB HBM3"


def shipped() -> Qualified:
    files = [parse_qualified(path.read_bytes(), path.name) for path in QUALIFIED.glob("*.json")]
    known = Qualified(record=())
    for file in files:
        known = merged(known, file)
    return known


def test_each_model_has_its_page() -> None:
    known = shipped()
    written = {path.name: path.read_text() for path in PAGES.glob("*.md")}
    assert written == {f"{slug(model)}.md": page(known, model) for model in models(known)}


def test_each_file_has_the_name_of_its_model_and_stack() -> None:
    assert set(by_file(shipped())) == {path.name for path in QUALIFIED.glob("*.json")}


def test_record_of_another_version_says_for_which_stack_it_holds_and_rules_nothing() -> None:
    observed = load_observed([H100])
    assert {one.stack["torch"] for one in observed} == {"2.11.0"}
    assert {one.bench_version for one in observed} == {"0.4.0"}
    assert load_qualified([H100]).record == ()
    faults = {one.case for one in observed if any(each.num_outside for each in one.checks)}
    assert "gemm_tf32" in faults
    text = page(shipped(), H100)
    assert "torch 2.11.0" in text
    assert "| resnet50-float16 | 1 completed |" in text


def test_versions_stand_in_the_order_of_their_releases() -> None:
    assert in_order(["0.10.0", "0.9.0", "", "0.10.0", "0.9.1"]) == ["", "0.9.0", "0.9.1", "0.10.0"]
