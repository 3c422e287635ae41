"""Model FLOP utilisation and the roofline on paper: by hand, and unknown where nobody says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import NO_PEAKS, SYSTEM, a_case, a_plan, healthy_events, verdict_of
from support.report_samples import JUDGED, sample

from appliance.records.baseline import Peak, Peaks
from appliance.records.plan import Case
from appliance.records.verdict import CaseResult
from appliance.records.workload import Work
from reports import render, roofline
from reports.document import view

MODEL = SYSTEM.identity.devices[0].model
SECONDS = 0.010
FLOPS, BYTES = 4e9, 2e8  # 20 operations for each byte


def peak(quantity: str, value: float) -> Peak:
    return Peak(
        model=MODEL,
        quantity=quantity,
        value=value,
        unit="",
        per="device",
        is_confirmed=True,
        source="a test",
    )


ARITHMETIC = peak("float32_flops_per_second", 1e12)
MEMORY = peak("memory_bytes_per_second", 1e11)  # the ridge lies at 10 operations for a byte


def reported(work: Work, *peaks: Peak) -> str:
    case = a_case(work=work)
    plan = a_plan(case)
    verdict = verdict_of(plan, healthy_events(plan))
    return _of(case, verdict.cases[0], Peaks(peak=peaks))


def _of(case: Case, result: CaseResult, peaks: Peaks) -> str:
    steps = [replace(one, value=SECONDS) for one in result.estimates if one.name == "step_seconds"]
    assert len(steps) == 1
    result = replace(result, estimates=tuple(steps))
    return roofline.sentence(case, result, roofline.roofs(case, peaks, SYSTEM))


def test_utilisation_is_the_model_s_arithmetic_over_time_and_peak() -> None:
    output = reported(Work(flops=FLOPS, precision="float32"), ARITHMETIC, MEMORY)
    assert "4.000 GFLOP of model arithmetic a step; MFU 40 % of 1.000 TFLOP/s (float32)" in output
    assert "Its bytes are not counted, so it has no place under the roofline" in output


def test_beyond_the_ridge_the_roof_is_the_peak() -> None:
    output = reported(Work(flops=FLOPS, bytes=BYTES, precision="float32"), ARITHMETIC, MEMORY)
    assert "At 20 FLOP a byte (ridge at 10) its roof is the arithmetic's, 1.000 TFLOP/s" in output
    assert "it reaches 40 % of it" in output


def test_before_the_ridge_the_roof_is_the_memory_s() -> None:
    work = Work(flops=FLOPS, bytes=8e8, precision="float32")  # 5 a byte: 0.5 TFLOP/s at most
    output = reported(work, ARITHMETIC, MEMORY)
    assert "At 5 FLOP a byte (ridge at 10) its roof is the memory's, 500.0 GFLOP/s" in output
    assert "it reaches 80 % of it" in output


@pytest.mark.parametrize(
    ("work", "peaks", "reason"),
    [
        (Work(), (ARITHMETIC, MEMORY), "this workload's operations are not counted"),
        (Work(flops=FLOPS, precision="float32"), (), "no vendor's figure for float32 is known"),
        (Work(flops=FLOPS), (ARITHMETIC,), "for this mix of number formats is known"),
        (
            Work(flops=FLOPS, bytes=BYTES, precision="float32"),
            (ARITHMETIC,),
            "no vendor's figure for the memory is known",
        ),
        (
            Work(flops=FLOPS, bytes=BYTES, precision="float32"),
            (MEMORY,),
            "its arithmetic has no known peak",
        ),
    ],
)
def test_what_nobody_published_or_counted_is_unknown(
    work: Work, peaks: tuple[Peak, ...], reason: str
) -> None:
    output = reported(work, *peaks)
    assert "unknown" in output
    assert reason in output


def test_what_moves_bytes_alone_is_held_to_the_memory() -> None:
    output = reported(Work(flops=0.0, bytes=BYTES, precision="float32"), ARITHMETIC, MEMORY)
    assert "It has no model arithmetic." in output
    assert "It moves bytes alone: 20 % of 100.0 GB/s." in output


def test_bytes_whose_operations_are_not_counted_are_not_said_to_be_all() -> None:
    output = reported(Work(bytes=BYTES), ARITHMETIC, MEMORY)
    assert "MFU unknown" in output
    assert "Its bytes alone are counted: 20 % of 100.0 GB/s." in output


def test_operations_that_are_not_counted_are_unknown_and_no_rate() -> None:
    work = Work(units=16, unit="graphs", precision="float32")
    output = reported(work, ARITHMETIC, MEMORY)
    assert output.startswith("MFU unknown: this workload's operations are not counted.")
    assert "%" not in output
    plan = a_plan(a_case(work=work))
    (result,) = verdict_of(plan, healthy_events(plan)).cases
    names = {one.name for one in result.estimates}
    assert "flops_per_second" not in names
    assert {"step_seconds", "units_per_second"} <= names


def test_without_an_estimate_nothing_is_said_of_utilisation() -> None:
    case = a_case(work=Work(flops=FLOPS, precision="float32"))
    plan = a_plan(case)
    result = replace(verdict_of(plan, healthy_events(plan)).cases[0], estimates=())
    output = roofline.sentence(case, result, roofline.roofs(case, NO_PEAKS, SYSTEM))
    assert output == "MFU unknown: no step time was estimated."


def test_no_timed_case_of_a_processor_is_held_to_a_vendors_figure() -> None:
    page = view.view(sample(criteria=JUDGED))
    timed = [case for case in page.cases if case.timing is not None]
    assert timed
    assert all(not case.timing.roofline for case in timed if case.timing)
    assert "MFU" not in render.html(page, {}).decode()
    assert "Of datasheet" not in page.performance.grid.columns
