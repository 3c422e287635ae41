"""The report says what the bundle holds, no more, in pages that nobody can be misled by."""

from __future__ import annotations

import base64
import html as markup
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import fields, replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import get_args

import pytest
from pyhanko.pdf_utils.reader import PdfFileReader
from support import report_samples
from support.report_samples import HOSTILE, JUDGED, ORGANISATION, sample

from appliance.cli.progress import analysis_sentence
from appliance.cli.results import (
    plan_sentences,
    ruling_sentences,
    verdict_sentences,
)
from appliance.errors import EvidenceError
from appliance.evidence.journal_index import index_of
from appliance.records.criteria import Criteria, Criterion, CriterionKind
from appliance.records.journal import (
    NOT_JUDGED,
    UNJUDGED_FOR_MEMORY,
    Block,
    Calibrated,
    Counted,
    InterimAnalysis,
    Line,
)
from appliance.records.json import Scalar, sha256
from appliance.records.plan import Plan
from appliance.records.signer import Signer
from appliance.records.system import Fact
from appliance.records.verdict import Estimate, Reason, Ruling, Statistic, Straggler
from appliance.signing import dsse, html_attachments, keys, pades
from appliance.statistics.group_sequential import group_bounds
from appliance.storage.bundle import Bundle
from appliance.storage.criteria_file import parse_criteria
from reports import cases, health, judging, machine, plots, render, words
from reports.document.view import view
from reports.model import CaseSection, Grid, Group, View

BAND = "DEVELOPMENT KEY: proves nothing about who signed"
PROOF = re.compile(
    rb'\n<a id="bench-proof" download="statement\.dsse\.json" '
    rb'href="data:application/vnd\.dsse\.envelope\.v1\+json;base64,([A-Za-z0-9+/=]+)">[^<]*</a>\n'
)
CLASSES = (
    "Step time no slower than the baseline by more than 3 % (compute, memory) or "
    "5 % (latency, input, collective)"
)
VOID = {"meta", "br"}


def case_of(page: View, name: str) -> CaseSection:
    return next(case for case in page.cases if case.id == f"{name}@cpu:0")


def page_of(page: View, **carried: bytes) -> str:
    return render.html(page, carried).decode()


def article(text: str, name: str) -> str:
    """The part of the page that is about one case."""
    return next(part for part in text.split("<article") if re.search(rf"\d {name}@cpu:0", part))


def print_pdf(data: bytes, folder: Path) -> list[str]:
    """The text of each page."""
    (folder / "report.pdf").write_bytes(data)
    text = subprocess.run(
        ["pdftotext", "-layout", folder / "report.pdf", "-"], check=True, capture_output=True
    ).stdout.decode()
    return text.split("\f")[:-1]


needs_poppler = pytest.mark.skipif(not shutil.which("pdftotext"), reason="poppler is not here")


# ------------------------------------------------------------------ correct first, then fast


def test_no_timing_is_shown_for_a_case_whose_check_failed():
    page = view(sample(failing="resnet50"))
    case = case_of(page, "resnet50")
    assert case.timing is None
    assert all((one.median, one.steps, one.first_step) == ("", "", "") for one in case.launches)
    text = article(page_of(page), "resnet50")
    assert "No timing is shown: the check “loss in float64” is not within its bound." in text
    assert "<svg" not in text
    assert " ms" not in text


def test_a_failed_check_takes_timing_off_the_page_whatever_the_verdict_file_holds():
    bundle, healthy = sample(failing="resnet50"), sample()
    reported = {result.case: result.estimates for result in healthy.verdict.cases}
    cases = tuple(
        replace(result, withheld="", estimates=reported[result.case])
        for result in bundle.verdict.cases
    )
    page = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases)))
    assert case_of(page, "resnet50").timing is None
    assert case_of(page, "bert").timing is not None


def test_a_case_without_any_check_shows_no_timing():
    bundle = sample()
    cases = tuple(replace(result, checks=()) for result in bundle.verdict.cases)
    page = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases)))
    assert [case.timing for case in page.cases] == [None] * len(report_samples.ROWS)
    assert page_of(page).count("No timing is shown: nothing was checked.") == len(page.cases)
    assert "No check was made." not in page_of(page)


def test_a_case_that_lacked_memory_for_a_check_is_not_said_to_be_outside_a_bound():
    bundle = sample(failing="resnet50")
    cases_ = tuple(
        replace(
            result,
            withheld="",
            checks=tuple(
                replace(one, name=UNJUDGED_FOR_MEMORY) if one.num_outside else one
                for one in result.checks
            ),
        )
        for result in bundle.verdict.cases
    )
    made = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases_)))
    assert case_of(made, "resnet50").no_timing == f"No timing is shown: {NOT_JUDGED}."
    assert made.performance.weakest[0] == f"resnet50@cpu:0: {NOT_JUDGED}."
    assert "outside" not in next(one.correct for one in made.families if "resnet50@" in one.id)


def test_the_range_of_a_first_step_is_not_called_an_interval_of_95_percent():
    page = view(sample())
    (first,) = (
        row for row in case_of(page, "bert").timing.estimates.rows if row[0] == "First step"
    )
    assert first[2].endswith(" (all)")
    estimate = Estimate(
        name="first_step_seconds",
        value=0.1,
        unit="s",
        low=0.1,
        high=0.1,
        confidence=None,
        method="median",
        count=1,
    )
    assert cases._interval(estimate) == "one value"


def test_a_check_shows_error_bound_margin_and_what_it_detects():
    check = case_of(view(sample(failing="resnet50")), "resnet50").checks[0]
    assert (check.is_within, check.error, check.bound) == (False, "6.08e-05", "1.9e-05")
    assert (check.margin, check.count) == ("none: 3.2 times the bound", "6 times, 1 outside")
    assert check.detects == "2.1e-05 relative error of the loss"


# ------------------------------------------------------------------ rulings


def test_every_ruling_that_is_not_a_pass_is_shown_with_its_reason_and_next_action():
    bundle = sample(failing="resnet50", crashing="llama", unsupported="gemm-bf16")
    text = markup.unescape(page_of(view(bundle)))
    open_rulings = [one for one in bundle.verdict.rulings if one.ruling != "pass"]
    assert len(open_rulings) >= 5
    for ruling in open_rulings:
        assert words.clean(ruling.explanation) in text
        assert words.clean(ruling.action) in text
    (largest,) = re.findall('class="word word-REJECTED">(.*?)</p>', text)
    assert re.sub("<[^>]*>", "", largest) == f"REJECTED: {bundle.verdict.decided_by}"


def test_required_failures_stand_before_what_is_inconclusive():
    page = view(sample(failing="resnet50", unsupported="gemm-bf16"))
    order = ["fail", "inconclusive", "not_applicable"]
    result = [one.ruling for one in page.open_rulings]
    assert result == sorted(result, key=order.index)
    assert result.count("fail") == 1
    assert "inconclusive" in result


def test_the_summary_counts_the_rulings_of_each_requirement():
    page = view(sample(crashing="llama"))
    completion = page.requirements[0]
    assert (completion.id, completion.cases) == ("completion", "10 cases")
    assert completion.counts == "9 pass, 1 fail"
    assert (completion.ruling, completion.reason) == ("fail", "crashed")


def test_a_criterion_that_no_ruling_answers_is_not_shown_as_a_pass():
    bundle = sample()
    rulings = tuple(one for one in bundle.verdict.rulings if one.criterion != "correctness")
    page = view(replace(bundle, verdict=replace(bundle.verdict, rulings=rulings)))
    correctness = next(one for one in page.requirements if one.id == "correctness")
    assert (correctness.ruling, correctness.counts) == ("inconclusive", "no ruling")


def test_a_crashed_launch_is_named_with_its_reason_in_table_and_plot():
    case = case_of(view(sample(crashing="llama")), "llama")
    assert case.launches[3].outcome == "crashed: SIGSEGV"
    assert case.timing is not None
    assert ">crashed<" in case.timing.plot
    assert ">SIGSEGV<" in case.timing.plot
    assert case.launch_counts == "6 planned, 5 completed, 1 missing"


def test_open_rulings_stand_in_the_order_of_precedence_and_the_informative_last():
    bundle = judged_by_hand(
        ruled("latency", "onnx_resnet50", "inconclusive"),
        ruled("speed", "bert", "fail"),
        ruled("memory-errors", "bert", "fail"),
        ruled("devices", "", "fail", required=False),
        ruled("correctness", "bert", "fail"),
        ruled("integrity", "bert", "inconclusive"),
        ruled("integrity", "llama", "fail"),
    )
    result = [(one.criterion, one.ruling) for one in view(bundle).open_rulings]
    assert result == [
        ("integrity", "fail"),
        ("correctness", "fail"),
        ("memory-errors", "fail"),
        ("speed", "fail"),
        ("integrity", "inconclusive"),
        ("latency", "inconclusive"),
        ("devices", "fail"),
    ]


def test_what_differs_in_the_device_alone_is_said_once():
    several = tuple(
        replace(
            ruled("integrity", "bert", "inconclusive"),
            case=f"bert@cpu:{number}",
            explanation=f"launch bert@cpu:{number}/0 read nothing of cpu:{number}",
        )
        for number in (0, 1, 2, 4)
    )
    other = replace(several[0], case="bert@cpu:5", explanation="launch bert@cpu:5/1 read nothing")
    (one,) = view(judged_by_hand(*several, other)).open_rulings
    assert [(case.cases, case.explanation) for case in one.cases] == [
        (
            "bert@cpu:0 to cpu:2, cpu:4 (4 devices)",
            "launch 0 read nothing of cpu:0 to cpu:2, cpu:4",
        ),
        ("bert@cpu:5", "launch bert@cpu:5/1 read nothing"),
    ]


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["cpu:0"], "cpu:0"),
        (["cpu:0", "cpu:1"], "cpu:0, cpu:1"),
        (["cpu:7", "cpu:8", "cpu:9", "cpu:10"], "cpu:7 to cpu:10"),
        (["cpu:0", "disk:1", "disk:2", "disk:3"], "cpu:0, disk:1 to disk:3"),
        (["node", "cpu:" + "9" * 5000, "cpu:x"], "node, cpu:" + "9" * 5000 + ", cpu:x"),
    ],
)
def test_devices_in_a_row_are_the_first_and_the_last(names: list[str], joined: str):
    assert words.devices(names) == joined


def test_what_is_said_of_several_cases_is_said_once():
    bundle = judged_by_hand(
        ruled("speed", "bert", "inconclusive"),
        ruled("speed", "llama", "inconclusive"),
        replace(ruled("speed", "resnet50", "inconclusive"), explanation="too warm"),
    )
    (one,) = view(bundle).open_rulings
    assert [(case.cases, case.explanation) for case in one.cases] == [
        ("bert@cpu:0, llama@cpu:0", "because of speed"),
        ("resnet50@cpu:0", "too warm"),
    ]
    assert one.action == "Fix speed."


# ------------------------------------------------------------------ judging


def judged() -> Bundle:
    return sample(criteria=JUDGED, slow="bert", noisy="llama", shifting="resnet50")


def ruled(criterion: str, case: str, word: str, *, required: bool = True) -> Ruling:
    return Ruling(
        criterion=criterion,
        case=f"{case}@cpu:0" if case else "",
        required=required,
        ruling=word,  # type: ignore[arg-type]
        reason="noise" if word == "inconclusive" else "over_limit",
        explanation=f"because of {criterion}",
        action=f"Fix {criterion}.",
        statistic=None,
    )


def judged_by_hand(*rulings: Ruling) -> Bundle:
    """The judged sample with these rulings instead of the judge's."""
    bundle = judged()
    return replace(bundle, verdict=replace(bundle.verdict, rulings=rulings))


STATISTIC = Statistic(
    metric="step_seconds",
    unit="s",
    value=0.0423,
    low=0.0421,
    high=0.0425,
    confidence=0.95,
    limit=0.041,
    limit_source="baseline + 3 %",
    count=5,
    log_mean=math.log(0.0423),
    log_sd=0.0031,
    log_sd_used=0.00985,
    log_limit=math.log(0.041),
    t_pass=-7.085,
    critical_pass=4.321,
    t_fail=22.51,
    critical_fail=10.714,
)


def limit_of(page: View, name: str) -> Group:
    return next(group for group in page.judging.limits if group.title.startswith(f"{name}: "))


def test_a_limit_shows_value_source_interim_analysis_t_and_spread_beside_what_they_had_to_reach():
    ruling = replace(ruled("speed", "bert", "fail"), statistic=STATISTIC)
    group = limit_of(view(judged_by_hand(ruling)), "speed")
    assert group.grid is not None
    assert group.grid.columns[2] == "Value and interval, 95 %"
    assert group.grid.rows == (
        (
            "bert@cpu:0",
            "✗ FAIL",
            "42.30 ms (42.10 to 42.50)",
            "41.00 ms (baseline + 3 %)",
            "at 5",
            "-7.08 < 4.32",
            "22.51 ≥ 10.71",
            "0.31 % (0.985 %)",
            "-",
            "-",
        ),
    )


def test_every_figure_of_a_ruling_is_the_verdicts_own():
    bundle = judged()
    group = limit_of(view(bundle), "speed")
    assert group.grid is not None
    result = [
        one.statistic
        for one in bundle.verdict.rulings
        if one.criterion == "speed" and one.statistic is not None
    ]
    assert len(group.grid.rows) == len(result) > 5
    for row, statistic in zip(group.grid.rows, result, strict=True):
        assert row[2].startswith(words.quantity(statistic.value, "s"))
        assert f"{statistic.t_pass:.2f}" in row[5]
        assert f"{statistic.critical_fail:.2f}" in row[6]


def test_no_figure_of_a_limit_is_shown_for_a_case_whose_check_failed():
    bundle = sample(criteria=JUDGED, failing="resnet50")
    ruling = replace(ruled("speed", "resnet50", "fail"), statistic=STATISTIC)
    others = tuple(one for one in bundle.verdict.rulings if one.criterion != "speed")
    forged = replace(bundle, verdict=replace(bundle.verdict, rulings=(*others, ruling)))
    group = limit_of(view(forged), "speed")
    assert group.grid is None
    assert group.notes == ("Withheld, because no timing of them is shown: resnet50@cpu:0.",)


def test_no_score_is_shown_that_counts_a_case_whose_check_failed():
    healthy = judged().verdict.score
    assert healthy is not None
    bundle = sample(criteria=JUDGED, failing="resnet50")
    forged = replace(bundle, verdict=replace(bundle.verdict, score=healthy))
    page = view(forged)
    assert page.judging.score.grid is None
    text = page_of(page)
    assert f"{healthy.value:.4f}" not in text
    assert "withheld: it counts a case of which no timing is shown" in text


def test_a_ruling_without_figures_says_why():
    group = limit_of(view(judged()), "speed")
    assert any("there is no baseline for markov_lm" in note for note in group.notes)


def test_a_part_of_the_peak_names_the_vendors_figure_and_its_source():
    notes = " ".join(limit_of(view(judged()), "arithmetic").notes)
    assert "110.0 GFLOP/s per core, from https://vendor.example/xeon-8488c.pdf, page 3" in notes
    assert "one second-hand source only" in notes


def test_the_bounds_of_the_plan_are_named_by_the_test_that_uses_them():
    bundle = judged()
    grid = view(bundle).judging.bounds
    assert grid is not None
    assert [(row[0], row[2]) for row in grid.rows] == [("pass", "5, 10"), ("fail", "5, 10")]
    for row, bounds in zip(grid.rows, bundle.plan.bounds, strict=True):
        assert row[3] == ", ".join(f"{bound:.4f}" for bound in bounds.z)


def test_baselines_name_the_bundles_that_they_came_from():
    group = view(judged()).judging.baselines
    assert group is not None
    reported = {row.label: row.value for row in group.rows}
    assert reported["Bundles, sha256, all"] == f"{'b1' * 32}, {'b2' * 32}"
    assert view(sample()).judging.baselines is None


@pytest.mark.parametrize(
    ("criterion", "shown"),
    [
        (
            {"kind": "perf", "metric": "step_seconds", "at_most": 0.012},
            "Step time at most 12.00 ms",
        ),
        (
            {"kind": "perf", "metric": "bytes_per_second", "unit": "GB/s", "at_least": 12.5},
            "Memory rate at least 12.5 GB/s",
        ),
        (
            {"kind": "perf", "metric": "flops_per_second", "fraction_of_peak": 0.7},
            "Arithmetic rate at least 70 % of the vendor's peak",
        ),
        (
            {"kind": "perf", "metric": "step_seconds", "within_of_baseline": 0.03},
            "Step time no slower than the baseline by more than 3 %",
        ),
        (
            {"kind": "perf", "metric": "step_seconds", "within_of_baseline": "class"},
            CLASSES,
        ),
        (
            {"kind": "perf", "metric": "step_seconds", "at_most": 1.0, "margin": 0.02},
            "Step time at most 1.000 s, practical margin 2 %",
        ),
        (
            {
                "kind": "tail",
                "metric": "latency_seconds",
                "quantile": 0.99,
                "unit": "ms",
                "at_most": 20.0,
            },
            "Latency, quantile 0.99, at most 20 ms",
        ),
        ({"kind": "tail", "metric": "stall_rate", "at_most": 0.005}, "Stalled steps at most 0.5 %"),
        ({"kind": "inventory", "metric": "devices.count", "equals": 8}, "devices.count equal to 8"),
        ({"kind": "numeric"}, ""),
    ],
)
def test_a_limit_is_shown_as_it_was_written(criterion: dict[str, object], shown: str):
    made = Criterion(id="a", title="A", **criterion)  # type: ignore[arg-type]
    criteria = Criteria(name="a", version=1, summary="a", criterion=(made,))
    assert judging.limit_words(made, criteria) == shown


# ------------------------------------------------------------------ the page that explains it

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "judging.md").read_text()


def test_the_criteria_file_of_the_page_is_one_that_is_taken():
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    result = parse_criteria(example.encode(), "judging.md")
    assert {criterion.kind for criterion in result.criterion} >= {"perf", "tail", "health"}


def test_the_page_explains_every_key_and_every_kind_of_a_criterion():
    for key in (one.name for one in fields(Criterion)):
        assert f"`{key}`" in PAGE, key
    for kind in get_args(CriterionKind):
        assert f"`{kind}`" in PAGE, kind


def test_the_page_explains_every_reason_of_an_inconclusive_ruling():
    fails = {"", "crashed", "timed_out", "check", "over_limit", "health", "inventory"}
    reported = PAGE.partition("## What an inconclusive ruling means")[2]
    for reason in set(get_args(Reason)) - fails:
        assert f"`{reason}`" in reported, reason


def test_the_page_has_the_bounds_that_are_used():
    for alpha in (0.01, 0.0002):
        row = " | ".join(f"{bound:.3f}" for bound in group_bounds(alpha, (5, 10, 20, 40)))
        assert row in PAGE


# ------------------------------------------------------------------ devices of a node


def test_a_straggler_is_named_and_what_it_costs_a_job_of_all_devices():
    bundle = sample()
    result = tuple(
        Straggler(
            device=f"cpu:{number}",
            effect=effect,
            t=t,
            critical=10.0,
            first_half=effect,
            second_half=effect,
            num_workloads=9,
            is_flagged=t > 10,
        )
        for number, (effect, t) in enumerate([(-0.02, -0.5), (0.06, 70.0), (-0.02, -0.5)])
    )
    group = view(replace(bundle, verdict=replace(bundle.verdict, stragglers=result))).judging
    assert group.stragglers.grid is not None
    assert [row[-1] for row in group.stragglers.grid.rows] == ["", "✗ straggler", ""]
    assert group.stragglers.notes[0] == "Slower than its neighbours: cpu:1 by 6 %."
    loss = math.expm1(math.log(1.06) * 2 / 3)
    assert f"cpu:1: predicted loss {loss * 100:.3g} % " in group.stragglers.notes[1]


def test_no_loss_is_predicted_from_an_effect_that_is_not_known():
    bundle = sample()
    blank = Straggler(
        device="cpu:0",
        effect=math.nan,
        t=math.nan,
        critical=10.0,
        first_half=math.nan,
        second_half=math.nan,
        num_workloads=9,
        is_flagged=False,
    )
    result = replace(bundle.verdict, stragglers=(blank,) * 3)
    notes = view(replace(bundle, verdict=result)).judging.stragglers.notes
    assert notes == ("No device is slower than its neighbours by more than chance explains.",)


def test_counters_show_their_growth_and_what_was_not_reported():
    bundle = sample()
    read = [
        Counted(device="cpu:0", counters={"ecc_corrected": 4, "resets": 9, "other": None}),
        Counted(
            device="cpu:0",
            counters={"ecc_corrected": 7, "resets": 2, "other": None},
            moment="after",
        ),
    ]

    def grid(*events: Counted, of: Bundle = bundle) -> Grid:
        result = health.chapter(
            of.criteria,
            of.system.identity.devices,
            index_of(of.plan, [line(event) for event in events]),
        )
        counters = result.devices[0].counters
        assert counters is not None
        return counters

    def rows(*events: Counted) -> tuple[tuple[str, ...], ...]:
        return grid(*events).rows

    def notes(*events: Counted) -> tuple[str, ...]:
        return grid(*events).notes

    assert rows(*read) == (
        ("ECC corrected", "4", "7", "+3", "between launches"),
        ("Resets", "9", "2", "was set back", ""),
    )
    assert notes(*read) == ()  # of the only device that stands under what was not observed
    assert rows(read[0])[0] == ("ECC corrected", "4", "not reported", "not reported", "")
    of_two = grid(*read, of=sample(num_devices=2))
    assert of_two.notes == ("1 counter not reported: Other.",)


def line(event: Counted) -> Line:
    return Line(seq=0, utc="2026-11-21T12:46:03Z", monotonic_ns=0, prev="", event=event)


# ------------------------------------------------------------------ launches and clocks


def test_launches_that_were_not_needed_share_a_row():
    case = case_of(view(judged()), "gemm-fp32")
    assert [row.number for row in case.launches] == ["0 (untimed)", *"12345", "6 to 10"]
    assert case.launches[-1].outcome == "not needed"


def test_a_launch_shows_the_class_of_its_series_with_cut_and_changes():
    bundle = sample()
    cases = tuple(
        replace(
            result,
            launches=tuple(
                replace(
                    one,
                    series="slowdown",
                    cut=12,
                    num_changes=2,
                    lag1=0.314,
                    effective_samples=41.7,
                )
                for one in result.launches
            ),
        )
        for result in bundle.verdict.cases
    )
    page = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases)))
    row = case_of(page, "bert").launches[1]
    assert (row.series, row.lag1, row.effective) == (
        "slowdown, first 12 cut, 2 changes",
        "0.31",
        "42",
    )


def test_clocks_are_compared_by_the_largest_difference_of_any_launch():
    bundle = sample()
    lines = tuple(
        replace(
            one,
            event=replace(
                one.event,
                wall_ns=(10**9, 10**9),
                raw_ns=(10**9, 999_000_000),
                event_ns=(10**9, 1_002_000_000),
            ),
        )
        if isinstance(one.event, Calibrated) and one.event.launch == "bert@cpu:0/3"
        else one
        for one in bundle.lines
    )
    page = view(replace(bundle, lines=lines))
    timing = case_of(page, "bert").timing
    assert timing is not None
    assert "differ by at most 0.1 %" in timing.clocks
    assert "that of the samples by at most 0.2 %" in timing.clocks
    other = case_of(page, "llama").timing
    assert other is not None
    assert "the device has no clock of its own" in other.clocks


def test_latencies_are_named_by_scenario_and_percentile():
    timing = case_of(view(sample()), "llama").timing
    assert timing is not None
    assert timing.scenario.startswith("Single stream: ")
    assert "Latency, 99th percentile" in [row[0] for row in timing.estimates.rows]


@pytest.mark.parametrize(
    ("low", "high", "confidence", "shown"),
    [
        (0.001, 0.002, 0.95, "1.000 to 2.000 (95 %)"),
        (None, 0.002, 0.95, "at most 2.000 (95 %)"),
        (0.001, None, 0.95, "at least 1.000 (95 %)"),
        (None, None, 0.95, "too few to say"),
        (None, None, None, "none"),
    ],
)
def test_an_interval_says_which_of_its_ends_are_known(
    low: float | None, high: float | None, confidence: float | None, shown: str
):
    bundle = sample()
    estimate = Estimate(
        name="step_seconds",
        value=0.0015,
        unit="s",
        low=low,
        high=high,
        confidence=confidence,
        method="m",
        count=5,
    )
    cases = tuple(replace(result, estimates=(estimate,)) for result in bundle.verdict.cases)
    timing = case_of(
        view(replace(bundle, verdict=replace(bundle.verdict, cases=cases))), "bert"
    ).timing
    assert timing is not None
    assert timing.estimates.rows == (("Step time", "1.500 ms", shown, "5 launches"),)


# ------------------------------------------------------------------ figures follow from evidence


def test_the_figures_of_a_launch_follow_from_the_journal():
    bundle = sample()
    blocks = [
        line.event.wall_ns
        for line in bundle.lines
        if isinstance(line.event, Block) and line.event.launch == "resnet50@cpu:0/3"
    ]
    medians = [statistics.median(math.log(time * 1e-6) for time in times) for times in blocks]
    launch = case_of(view(bundle), "resnet50").launches[3]
    assert (launch.number, launch.steps) == ("3", str(sum(map(len, blocks))))
    assert launch.median == words.figure(math.exp(statistics.mean(medians)))


def test_rates_are_shown_with_unit_and_interval():
    timing = case_of(view(sample()), "memory_bandwidth").timing
    assert timing is not None
    rate = timing.estimates.rows[2]
    assert rate[0] == "Memory rate"
    assert re.fullmatch(r"13\.\d\d GB/s", rate[1])
    assert re.fullmatch(r"13\.\d\d to 1[34]\.\d\d \(95 %\)", rate[2])


def test_evidence_lists_every_data_file_with_its_digest_and_the_journal_head():
    bundle = sample(crashing="llama")
    page = view(bundle)
    assert [(row[0], row[2]) for row in page.files.rows] == [
        (name, sha256(bundle.files[name])) for name in sorted(bundle.files)
    ]
    assert "logs/llama-cpu-0.3.stderr" in [row[0] for row in page.files.rows]
    head = sha256(bundle.files["journal.jsonl"].splitlines()[-1])
    assert head in [row.value for row in page.evidence]


def test_a_bundle_that_is_signed_already_renders_the_same_pages():
    bundle = sample()
    made = dict.fromkeys(("report.html", "report.pdf", "statement.dsse.json"), b"made later")
    assert view(replace(bundle, files={**bundle.files, **made})) == view(bundle)


def test_a_run_that_is_not_judged_has_no_report():
    with pytest.raises(EvidenceError, match=r"verdict\.json"):
        view(replace(sample(), verdict=None))


# ------------------------------------------------------------------ page 1


@pytest.mark.parametrize("signer", [None, ORGANISATION])
def test_the_development_band_stands_exactly_where_a_development_key_signs(signer: Signer | None):
    page = view(sample(signer=signer))
    assert (BAND in page_of(page)) == (signer is None)


def test_page_one_names_scope_criteria_digest_protocol_and_signer():
    bundle = sample(signer=ORGANISATION)
    first = page_of(view(bundle)).partition('id="summary"')[0]
    digest = sha256(bundle.files["criteria.toml"])
    assert all(sentence in first for sentence in re.split(r"(?<=\.) ", bundle.verdict.scope))
    assert f"chosen by the signer, sha256 {digest}" in first
    assert first.count(bundle.plan.digests["suite"]) == 1
    launches = "up to 5 forked launches of at least 3 warm-up steps and 0.1 s, then 3 blocks"
    assert f"{launches} of at least 5 steps and 0.2 s; judged after 5; the first output" in first
    assert "CN=Node Laboratory,O=Buyer" in first
    assert ORGANISATION.sha256 in first
    assert "does not prove that whoever administered the node was honest" in first


def test_an_interruption_is_printed_on_page_one():
    first = page_of(view(sample(interruptions=1))).partition('id="summary"')[0]
    assert "<strong>Interrupted.</strong> Interruption 1" in first
    assert "gemm-fp32@cpu:0/2" in first
    assert "Interrupted." not in page_of(view(sample()))


def test_page_one_names_what_decided_and_why():
    bundle = sample(failing="resnet50")
    first = markup.unescape(page_of(view(bundle)).partition('id="summary"')[0])
    decisive = next(one for one in bundle.verdict.rulings if one.ruling == "fail")
    assert bundle.verdict.decided_by == "correctness of resnet50@cpu:0"
    reported = f"Decided by correctness of resnet50@cpu:0: {words.clean(decisive.explanation)}."
    assert reported in first
    assert "Decided by" not in page_of(view(sample()))


def test_page_one_states_both_risks_over_the_number_of_limits():
    bundle = judged()
    first = markup.unescape(page_of(view(bundle)).partition('id="summary"')[0])
    assert f"any of the {bundle.plan.num_limits} limits on times passes it" in first
    assert "Buyer's (consumer's) risk: at most 1 %" in first
    assert "vendor's (producer's): at most 0.8 %" in first
    assert "chance has no part in the verdict" in markup.unescape(page_of(view(sample())))


def test_page_one_shows_score_and_failure_rate_and_that_neither_offsets_anything():
    bundle = judged()
    first = page_of(view(bundle)).partition('id="summary"')[0]
    assert bundle.verdict.score is not None
    assert f"{bundle.verdict.score.value:.4f} (" in first
    assert "never offsets a criterion" in first
    made = bundle.verdict.num_made
    assert f"failure rate 0 of {made} made (0 %)" in first


@pytest.mark.parametrize(
    ("change", "banner"),
    [
        (
            {"injector": "scaled output"},
            "This run injects faults on purpose (scaled output); it accepts nothing.",
        ),
        (
            {"rerun_of": "run-1/bert@cpu:0/3"},
            "This run repeats run-1/bert@cpu:0/3 to settle a dispute; it accepts nothing.",
        ),
    ],
)
def test_a_run_that_accepts_nothing_says_so_above_its_verdict(change: dict[str, str], banner: str):
    bundle = sample(**change)
    first = page_of(view(bundle)).partition('id="summary"')[0]
    assert banner in first
    assert first.index(banner) < first.index('class="verdict"')
    assert bundle.verdict.verdict == "INCONCLUSIVE"
    assert "accepts nothing" not in page_of(view(sample()))


@needs_poppler
@pytest.mark.parametrize("kind", ["crowded", "judged"])
def test_page_one_is_one_page_however_much_there_is_to_say(kind: str, tmp_path: Path):
    page = view(sample(**report_samples.KINDS[kind]))  # type: ignore[arg-type]
    short = replace(page, cases=page.cases[:1], judging=replace(page.judging, limits=()))
    pages = print_pdf(render.pdf(short, {"a": b"1"}), tmp_path)
    assert "For the buyer: name, date, signature" in pages[0]
    assert "1. Performance" in pages[1]


def test_many_alike_devices_stand_in_two_columns_with_what_they_share_said_once():
    grid = view(sample(num_devices=6)).certificate.devices
    assert [row[::2] for row in grid.rows] == [
        ("cpu:0", "cpu:3"),
        ("cpu:1", "cpu:4"),
        ("cpu:2", "cpu:5"),
    ]
    assert grid.notes == ("each Intel(R) Xeon(R) Platinum 8488C, 256 GiB",)


def test_a_reduced_model_shows_its_parameter_count_and_a_full_one_is_not_called_reduced():
    page = view(sample())
    assert case_of(page, "llama").scale == "reduced size, 10,748,160 parameters"
    assert case_of(page, "digits_mlp").scale == "4,810 parameters"


def test_what_could_not_be_read_is_not_reported_with_the_permission_that_would_allow_it():
    text = markup.unescape(page_of(view(sample())))
    assert "Microcode (run with --cap-add SYS_RAWIO and --device /dev/mem to read it)" in text
    assert "1 reading not reported: Temperature." in text
    assert (
        'System serial</th><td class="unknown">not reported · <span class="note">readable' in text
    )


def test_missing_readings_are_said_not_left_out():
    case = case_of(view(sample(has_readings=False)), "bert")
    assert case.readings == "Not reported: no reading was taken."


def test_parts_say_once_what_all_share_and_list_what_differs():
    items = [{"kind": Fact(value="DDR5"), "slot": Fact(value=name)} for name in "ABCD"]
    group = machine.parts("Memory modules", items)
    assert [(row.label, row.value) for row in group.rows] == [("Kind, all", "DDR5")]
    assert group.grid is not None
    assert group.grid.columns == ("", "Slot")
    assert group.grid.rows == (("1", "A"), ("2", "B"), ("3", "C"), ("4", "D"))


def test_no_part_is_none_only_where_the_host_counted_none():
    reported = [Fact(value=0), Fact(value=None, hint="run as root"), None]
    notes = [machine.parts("Disks", (), one).notes[0] for one in reported]
    assert notes[:2] == ["none", "not reported: run as root"]
    assert notes[2].startswith("not reported")


# ------------------------------------------------------------------ hostile text


class Elements(HTMLParser):
    """Tags and addresses of a page; every element that opens must close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src"}]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("is_hostile", [False, True])
def test_the_page_stands_alone_and_holds_no_script(is_hostile: bool):  # noqa: FBT001 - pytest's parameter
    text = page_of(view(sample(is_hostile=is_hostile)), a=b"1")
    result = Elements(text)
    assert result.open == []
    assert not {"script", "iframe", "img", "link", "object", "form"} & set(result.tags)
    assert {address.partition(":")[0] for address in result.addresses if address[0] != "#"} == {
        "data"
    }
    assert "default-src 'none'" in text
    assert set(re.findall(r"https?://[^\"'\s<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text


def test_hostile_text_is_escaped_and_what_hides_or_reorders_is_shown_by_number():
    text = page_of(view(sample(is_hostile=True)))
    assert "Xeon&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;[U+202E]DETPECCA[U+202C]" in text
    assert not set(HOSTILE) & {"\u202e", "\u202c", "\ue000", "\x07", "\u4e2d"} & set(text)


def test_hostile_text_reaches_no_plot_as_markup():
    strip = plots.Strip(label="1", samples=(), note="</text><script>")
    assert "<script" not in plots.launches("</title><script>\u202e", [strip], None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\n c", "a b c"),
        ("\x00\x1b[31m", "[U+0000][U+001B][31m"),
        ("\u2066x\u2069\u200b", "[U+2066]x[U+2069][U+200B]"),
        ("e\u0301 é Ω Ж ≤ №", "e[U+0301] é Ω Ж ≤ №"),
        ("\U0001f600\ud800", "[U+1F600][U+D800]"),
    ],
)
def test_clean_keeps_what_the_fonts_draw_and_numbers_the_rest(text: str, shown: str):
    assert words.clean(text) == shown
    assert words.clean(shown) == shown


def test_printable_ascii_is_kept_as_it_is() -> None:
    text = "".join(map(chr, range(0x21, 0x7F)))
    assert words.clean(text) == "".join(map(words.clean, text)) == text
    assert words.clean("a\x7fb\x1bc") == "a[U+007F]b[U+001B]c"


# ------------------------------------------------------------------ numbers in words


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (words.figure(0.0123456), "0.01235"),
        (words.figure(float("nan")), "not a number"),
        (words.figure(0.0), "0"),
        (words.quantity(3.2104e12, "FLOP/s"), "3.210 TFLOP/s"),
        (words.quantity(13.82e9, "B/s"), "13.82 GB/s"),
        (words.quantity(64 * 2**30, "bytes"), "64 GiB"),
        (words.quantity(0.00214, "s"), "2.140 ms"),
        (words.quantity(float("inf"), "B/s"), "infinite"),
        (words.scalar(value=True), "yes"),
        (words.fact(Fact(value=None)), "not reported"),
        (words.fact(Fact(value=0)), "0"),
        (words.label("num_numa_nodes"), "Number of NUMA nodes"),
        (words.reading("power_watts")[1](3.0), "3.000 W"),
        (words.reading("foreign_processors")[0], "Processors used by others"),
        (words.percent(0.0034786), "0.348 %"),
        (words.percent(0.03), "3 %"),
        (words.percent(float("nan")), "not a number"),
        (words.measured("stall_rate", 0.0012, ""), "0.12 %"),
        (words.measured("first_step_seconds", 0.0123, ""), "12.30 ms"),
        (words.metric("latency_p99_seconds"), "Latency, 99th percentile"),
        (words.listed(["5"]), "5"),
        (words.listed(["5", "10", "20"]), "5, 10 and 20"),
    ],
)
def test_values_are_written_in_the_units_that_they_are_read_in(made: str, shown: str):
    assert made == shown


# ------------------------------------------------------------------ plots


def test_thinning_keeps_order_smallest_and_largest():
    samples = [math.sin(number) for number in range(5000)]
    kept = plots.thinned(samples, plots.MOST_POINTS)
    values = [value for _, value in kept]
    assert len(kept) <= plots.MOST_POINTS
    assert (min(values), max(values)) == (min(samples), max(samples))
    assert kept == sorted(kept)


def test_a_plot_draws_at_most_its_points_and_counts_those_beyond_its_axis():
    strips = [plots.Strip(label=str(number), samples=(1.0, 1.1) * 500) for number in range(5)]
    stalled = replace(strips[0], samples=(*strips[0].samples, 40.0))
    drawn = plots.launches("steps", [stalled, *strips[1:]], (1.0, 1.05))
    assert len(re.findall(r"M[\d. ]+h0", drawn)) <= plots.MOST_POINTS
    assert "▲ 1 above, up to 40.00 ms" in drawn


def test_block_medians_are_drawn_where_they_are_and_the_unsteady_part_is_marked():
    levels = (plots.Level(first=0, last=4, median=1.0), plots.Level(first=5, last=9, median=2.0))
    strip = plots.Strip(label="1", samples=(1.0,) * 5 + (2.0,) * 5, levels=levels, cut=5)
    drawn = plots.launches("steps", [strip], None)
    bars = re.findall(r"M(\d+\.\d) (\d+\.\d)H(\d+\.\d)", drawn.partition('stroke-width="1.8"')[0])
    begin, middle, end = float(bars[-2][0]), float(bars[-2][2]), float(bars[-1][2])
    assert middle == pytest.approx((begin + end) / 2)
    assert float(bars[-2][1]) > float(bars[-1][1])  # the slower block stands higher
    assert f'<path d="M{middle:.1f} ' in drawn  # the line that ends the unsteady part
    assert 'stroke-dasharray="2 2"' not in plots.launches("steps", [replace(strip, cut=0)], None)


def test_the_course_joins_blocks_of_one_launch_alone():
    moments = [
        plots.Moment(launch=launch, minutes=minutes, median=median)
        for launch, minutes, median in [("1", 0.1, 1.0), ("1", 0.2, 1.0), ("2", 9.0, 1.3)]
    ]
    drawn = plots.course("course", moments, None)
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", drawn)) == 3
    assert len(re.findall(r"L[\d.]+ [\d.]+", drawn)) == 1
    assert plots.course("course", moments[:1], None) == ""
    assert plots.course("course", [replace(one, minutes=1.0) for one in moments], None) == ""


# ------------------------------------------------------------------ the terminal


@pytest.mark.parametrize(
    ("reason", "is_decided", "output"),
    [
        ("decided: within every limit", True, "bert: decided after 5 launches: within every limit"),
        ("open: too noisy", False, "bert: open after 5 launches: too noisy"),
        ("nothing has failed", False, "bert: reported after 5 launches: nothing has failed"),
    ],
)
def test_an_interim_analysis_states_its_word_and_reason(reason: str, is_decided: bool, output: str):  # noqa: FBT001
    event = InterimAnalysis(case="bert", launches=5, is_decided=is_decided, reason=reason)
    assert analysis_sentence(event) == output
    stated: set[str] = set()
    assert analysis_sentence(event, stated) == output
    other = replace(event, case="llama")
    assert analysis_sentence(other, stated).endswith(" after 5 launches, for the same reason")


def test_the_terminal_tells_the_deciding_ruling_first_and_every_next_action():
    verdict = judged().verdict
    early = ruled("correctness", "llama", "fail")
    output = ruling_sentences(replace(verdict, rulings=(early, *verdict.rulings)))
    assert output[0].startswith("fail: speed of bert@cpu:0: ")
    assert output[1].startswith("fail: correctness of llama@cpu:0: ")
    actions = {one.action for one in verdict.rulings if one.ruling != "pass"}
    assert all(f"next: {action}" in "\n".join(output) for action in actions)
    reported = verdict_sentences(verdict)
    assert reported[0] == "decided by: speed of bert@cpu:0"
    assert verdict.score is not None
    assert f"suite score: {verdict.score.value:.4f}" in reported[2]


def test_the_terminal_counts_the_rulings_that_it_does_not_tell():
    many = tuple(
        replace(ruled("speed", f"case{number}", "fail"), explanation=f"reason {number}")
        for number in range(50)
    )
    output = ruling_sentences(replace(judged().verdict, rulings=many))
    assert len(output) == 21
    assert output[-1] == "and 30 more rulings: see verdict.json and the report"


def test_the_terminal_names_many_cases_by_their_rows_and_devices():
    names = [f"{row}@cpu:{number}" for row in ("bert", "llama") for number in range(8)]
    one = ruled("speed", "bert", "inconclusive")
    several = tuple(replace(one, case=name) for name in names)
    verdict = judged().verdict
    (output,) = ruling_sentences(replace(verdict, rulings=several))
    assert output.startswith("inconclusive: speed of 16 cases: bert (8), llama (8): because of")
    (output,) = ruling_sentences(replace(verdict, rulings=several[:8]))
    assert output.startswith("inconclusive: speed of bert@cpu:0 to cpu:7 (8 devices): because of")


def test_cases_that_fail_alike_in_launches_of_their_own_stand_in_one_line():
    rulings = tuple(
        replace(one, explanation=f"launch {one.case}/0, first output: known answers: error 1")
        for one in (ruled("speed", case, "fail") for case in ("bert", "llama"))
    )
    (output,) = ruling_sentences(replace(judged().verdict, rulings=rulings))
    said = "fail: speed of bert@cpu:0, llama@cpu:0: launch 0, first output: known answers: error 1"
    assert output.partition("\n")[0] == said
    (alone,) = ruling_sentences(replace(judged().verdict, rulings=rulings[:1]))
    assert "launch bert@cpu:0/0, first" in alone  # as it is given to `bench run --from`


def test_criteria_that_say_the_same_of_the_same_cases_stand_in_one_line():
    names = ("completion", "integrity", "correctness")
    several = [
        replace(ruled("speed", case, "inconclusive"), criterion=name)
        for name in names
        for case in ("bert", "llama")
    ]
    odd = replace(several[0], criterion="repeatability")  # of one case alone
    verdict = replace(judged().verdict, rulings=(*several, odd))
    joined, alone = [line.partition("\n")[0] for line in ruling_sentences(verdict)]
    said = several[0].explanation
    assert joined == f"inconclusive: {', '.join(names)} of bert@cpu:0, llama@cpu:0: {said}"
    assert alone == f"inconclusive: repeatability of bert@cpu:0: {said}"


def test_cases_that_no_qualified_record_applies_to_are_told_in_one_line():
    def without_record(case: str, shown: str) -> Ruling:
        why = f"there is no qualified record of {case} on X; reported, not judged: {shown}"
        one = ruled("repeatability", case, "not_applicable")
        return replace(one, reason="unqualified", explanation=why, required=False)

    same = "4 processes gave the same bits"
    rulings = [without_record(f"case{number}", same) for number in range(9)]
    rulings.insert(4, without_record("odd", "of 4 repeats of the same operands 1 differ"))
    verdict = replace(judged().verdict, rulings=tuple(rulings))
    joined, odd = [line.partition("\n")[0] for line in ruling_sentences(verdict)]
    start = "not applicable (advisory): repeatability of"
    why = "no qualified record applies; reported, not judged"
    assert joined == f"{start} 9 cases: {why}: {same}"
    assert odd.startswith(f"{start} odd@cpu:0: there is no qualified record of odd on X; ")
    assert odd.endswith("of 4 repeats of the same operands 1 differ")


def test_a_plan_states_interim_analyses_limits_times_and_that_an_injector_accepts_nothing():
    plan: Plan = judged().plan
    output = "\n".join(plan_sentences(plan))
    assert "judged after 5 and 10 timed launches" in output
    assert f"{plan.num_limits} limits on times" in output
    assert "expected 2 min 20 s" in output
    assert "longest 4 min 30 s" in output
    assert "accepts nothing" not in output
    assert (
        "(bit flip): accepts nothing" in plan_sentences(replace(plan, injectors=("bit flip",)))[-1]
    )


# ------------------------------------------------------------------ HTML and PDF


def test_the_page_carries_the_statement_and_the_data_as_its_last_elements():
    bundle = sample(crashing="llama")
    carried = {**bundle.data, "statement.dsse.json": b'{"payload":""}'}
    page = render.html(view(bundle), carried)
    (proof,) = PROOF.findall(page)
    assert base64.b64decode(proof) == b'{"payload":""}'
    assert html_attachments.carried_files(page) == carried
    assert b'download="journal.jsonl.gz"' in page
    assert len(page) < sum(map(len, carried.values()))
    assert page.endswith(b"</a>\n</body>\n</html>\n")
    assert b"not yet signed" not in page


def test_without_what_it_should_carry_the_page_says_that_it_is_not_yet_signed():
    page = view(sample())
    text = page_of(page)
    assert text.count("not yet signed") == 2
    assert "bench-proof" not in text.partition("</style>")[2]
    assert pades.attachments(render.pdf(page, {})) == {}


def test_the_pdf_is_pdf_a_3a_with_every_file_attached_once():
    bundle = sample(crashing="llama")
    files = bundle.data
    made = render.pdf(view(bundle), files)
    assert pades.attachments(made) == files
    root = PdfFileReader(BytesIO(made)).root
    claim = root["/Metadata"].data.decode()
    assert re.search(r'part(>|=")3', claim)
    assert re.search(r'conformance(>|=")A', claim)
    associated = [item.idnum for item in list.__iter__(root["/AF"])]
    assert len(associated) == len(set(associated)) == len(files)


def test_the_same_bundle_gives_the_same_bytes_in_another_process():
    command = (
        "import sys; from support.report_samples import sample; from reports import render; "
        "from reports.document.view import view; page = view(sample(failing='bert')); "
        "out = sys.stdout.buffer; out.write(render.html(page, {'a': b'1'})); "
        "out.write(render.pdf(page, {'b': b'2', 'a.json': b'1'}))"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", command],
            check=True,
            capture_output=True,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "TZ": zone,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert made[0] == made[1]
    assert made[0].startswith(b"<!DOCTYPE html>")


@needs_poppler
def test_every_page_of_the_pdf_carries_run_id_and_number_and_the_last_says_the_end(tmp_path: Path):
    bundle = sample()
    pages = print_pdf(render.pdf(view(bundle), {"a": b"1"}), tmp_path)
    for number, text in enumerate(pages, 1):
        assert f"Page {number} of {len(pages)}" in text
        assert bundle.plan.run_id in text
        assert "DEVELOPMENT KEY" in text
    assert "ACCEPTED" in pages[0]
    assert "End of report" in pages[-1]


@pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "jq", "openssl", "pdfdetach"))),
    reason="jq, openssl or poppler is not here",
)
def test_the_printed_commands_verify_the_evidence_with_public_tools(tmp_path: Path):
    key = keys.development_key()
    bundle = sample(crashing="llama", signer=keys.signer_record(key, "tester"))
    files = bundle.data
    statement = dsse.Statement(
        predicate_type=dsse.ACCEPTANCE,
        subjects={name: sha256(data) for name, data in files.items()},
        predicate={},
    )
    carried = {**files, "statement.dsse.json": dsse.sign_statement(statement, key)}
    page = view(bundle)
    (tmp_path / "report.pdf").write_bytes(keys.sign_pdf(render.pdf(page, carried), key))
    blocks = re.findall(r'<pre class="shell" id="\w+">(.*?)</pre>', page_of(page), re.DOTALL)
    script = "\n".join(["set -e", *map(markup.unescape, blocks)])
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert [line for line in ran.splitlines() if line.endswith(": OK")] == [
        f"{name}: OK" for name in sorted(files)
    ]
    assert f"{bundle.signer.sha256}  -\nVerified OK\n" in ran
    assert ran.endswith(
        f"\nchain whole\n{sha256(bundle.files['journal.jsonl'].splitlines()[-1])}\n"
    )
    assert json.loads((tmp_path / "evidence" / "plan.json").read_bytes())["suite"] == "smoke"


def test_labels_of_launches_do_not_run_into_one_another() -> None:
    """Twelve forked launches have numbers, forty every second one; a crashed one says so."""
    strips = [plots.Strip(label=f"{number} forked", samples=(1.0, 2.0)) for number in range(1, 13)]
    drawn = plots.launches("many", strips, None)
    assert ">12<" in drawn
    assert "12 forked" not in drawn
    assert ">launch (forked)<" in drawn
    mixed = [plots.Strip(label="1 crashed", samples=()), *strips[1:4]]
    assert ">1 crashed<" in plots.launches("mixed", mixed, None)
    forty = [plots.Strip(label=f"{number} fresh", samples=(1.0,)) for number in range(1, 41)]
    every = [int(one) for one in re.findall(r">(\d+)</text>", plots.launches("f", forty, None))]
    places = [one for one in every if one > 3]
    assert len(places) <= 20


def test_a_field_of_a_heat_map_has_its_figure_where_it_has_room() -> None:
    few = plots.heat("few", ["0", "1"], [("row", [0.0, 0.062])])
    assert ">+6.2<" in few
    many = plots.heat("many", [str(one) for one in range(64)], [("row", [0.0] * 63 + [0.062])])
    assert ">+6.2<" not in many
    assert ">+6.2 %<" in many


@pytest.mark.parametrize(
    ("value", "written"),
    [(1000.0, "1,000"), (2730.0, "2,730"), (1e-8, "1e-08"), (12.25, "12.2"), (3.06e7, "3.06e+07")],
)
def test_small_writes_large_numbers_as_people_do(value: float, written: str) -> None:
    assert words.small(value) == written


def test_how_far_an_error_came_is_a_percentage_or_how_many_times() -> None:
    assert words.of_bound(3.2) == "320 % of its bound"
    assert words.of_bound(89.57) == "89.6 times its bound"


@pytest.mark.parametrize(
    ("name", "value", "label", "written"),
    [
        ("simultaneous_multithreading", "notsupported", "Simultaneous multithreading", "not supp"),
        ("cuda:0_power_violation_ns", 4_000_000, "cuda:0 power violation", "4.000 ms"),
        ("cuda:0_energy_joules", 4479.0, "cuda:0 energy", "4,479 J"),
        ("ld_preload", False, "LD_PRELOAD is set", "no"),
        ("cpu:0_load1", 0.13, "cpu:0 load over a minute", "0.1300"),
    ],
)
def test_a_fact_is_named_in_words_with_its_unit(
    name: str, value: float | str, label: str, written: str
) -> None:
    (row,) = machine.rows({name: Fact(value=value, source="x")})
    assert row.label == label
    assert row.value.startswith(written)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("array_bytes", 67108864, "64 MiB"),
        ("learning_rate", 0.01, "0.01"),
        ("clip", 0.3, "0.3"),
        ("side", 1024, "1024"),
        ("tf32", True, "yes"),
    ],
)
def test_a_parameter_is_written_as_exactly_as_it_is(name: str, value: Scalar, written: str) -> None:
    assert words.parameter(name, value) == written


def test_long_steps_are_drawn_in_seconds() -> None:
    strip = plots.Strip(label="1 fresh", samples=(2_000.0, 15_000.0, 16_000.0))
    drawn = plots.launches("slow", [strip], None)
    assert "step time, s<" in drawn
    assert ">10<" in drawn
    assert "10000" not in drawn


def test_a_count_without_a_unit_has_no_decimals() -> None:
    assert words.measured("ecc_corrected", 7.0, "") == "7"
    assert words.measured("steps_to_target", 130.0, "steps") == "130 steps"
    assert words.in_unit_of("steps_to_target", 130.0, 135.0, "steps") == "135"


def test_cases_that_are_too_many_to_name_are_counted() -> None:
    names = [f"row{number}@cpu:0" for number in range(2_046)]
    assert words.cases(names, 0) == "2,046 cases"
    assert words.rows(names[:10]).startswith("row0, row1")
