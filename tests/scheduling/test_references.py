"""What references cost the host: the page is that of the data, and the data is of every row."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.planning import workload_manifest
from appliance.scheduling import references
from appliance.storage import suite_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import write_references  # noqa: E402 - after the path


def test_page_is_up_to_date_and_has_every_primary_row() -> None:
    rows = write_references.rows()
    assert write_references.PAGE.read_text() == write_references.page(rows), "run make generate"
    primary = {item.id for item in suite_file.load_suite("acceptance")[0].case}
    assert {row.case for row in rows} == primary
    assert all(row.seconds is not None for row in rows)


def test_every_reference_is_of_a_workload_and_a_rate_that_exist() -> None:
    known = references.load()
    assert {one.workload for one in known.reference} <= workload_manifest.load().keys()
    assert all(one.rate in known.rate and 0.0 < one.share <= 1.0 for one in known.reference)


def test_rates_agree_with_what_they_were_measured_by() -> None:
    known = references.load()
    for kind, flops, seconds in (("convolutions", 6.22e12, 60.0), ("products", 1.164e13, 36.0)):
        rate = known.rate[kind].flops_per_core_second
        assert flops / (16 * rate) == pytest.approx(seconds, rel=0.05)


def test_estimates_follow_from_shares_rates_and_cores() -> None:
    known = references.load()
    bert = known.of("bert")
    assert bert is not None
    seconds = bert.share * 1.164e13 / (16 * known.rate["products"].flops_per_core_second)
    assert known.seconds("bert", {}, 1.164e13, 16) == pytest.approx(seconds)
    assert known.seconds("bert", {}, 1.164e13, 32) == pytest.approx(seconds / 2)
    assert known.seconds("gemm", {}, 1e12, 16) is None
    assert known.seconds("bert", {}, None, 16) is None


def test_no_primary_row_is_beyond_the_limit() -> None:
    assert not [row.case for row in write_references.rows() if row.is_slow]


def test_an_estimate_is_no_less_than_what_was_measured_of_as_many_operations() -> None:
    known = references.load()
    for one in known.reference:
        if one.measured_seconds:
            made = known.seconds(one.workload, {}, one.measured_flops, known.cores)
            assert made is not None
            assert made >= one.measured_seconds
    few, half, more = (known.seconds("llama", {}, n * 5.066e12, 16) for n in (0.25, 0.5, 1.1))
    assert (few, half, more) == (pytest.approx(3.175), pytest.approx(6.35), 12.7)
    assert known.seconds("llama", {}, 5.066e12, 8) == pytest.approx(25.4)
    assert known.beside_seconds("vjepa", 1.539e14 / 2) == known.beside_seconds("vjepa", 1.539e14)
    assert known.beside_seconds("vjepa", 1.539e14 / 8) == pytest.approx(21.5 / 8)
    assert known.beside_seconds("gemm", 1e12) == 0.0


def test_a_row_that_was_estimated_to_take_longer_is_beyond_the_limit() -> None:
    bert = next(row for row in write_references.rows() if row.case == "bert-tf32-fp16")
    assert not bert.is_slow
    assert replace(bert, seconds=20.1).is_slow


def test_of_a_batch_in_parts_one_part_is_followed() -> None:
    known = references.load()
    whole, in_parts = (known.seconds("llm_lora", {"accumulation": n}, 1e15, 16) for n in (1, 8))
    assert whole is not None
    assert in_parts == pytest.approx(whole / 8)
