"""Pages 1 and 2: the verdict with its scope, what to do, how fast, against what, and the digest."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
import segno
from pyhanko.pdf_utils.reader import PdfFileReader
from support.large_nodes import SLOW, large
from support.report_samples import JUDGED, sample

from appliance.evidence.journal_index import JournalIndex
from appliance.judging.verdict import LACKS_ROOM
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import Event, LaunchEnded, Line, RunResumed
from appliance.records.json import sha256
from appliance.records.plan import NotPlanned
from appliance.records.verdict import Ratio
from appliance.storage.bundle import Bundle
from appliance.verification.verify import check_finished
from reports import performance, plots, render, words
from reports.document import certificate
from reports.document.certificate import code_text, data_digest
from reports.document.open_rulings import open_rulings
from reports.document.view import view
from reports.model import View


@cache
def judged() -> Bundle:
    return sample(criteria=JUDGED, slow="bert", noisy="llama")


@cache
def node() -> View:
    """An acceptance run of four rows on eight devices."""
    return view(large(8, rows=4))


def page(made: View) -> str:
    return html.unescape(render.html(made, {}).decode())


# ------------------------------------------------------------------ page 1


def test_cases_that_are_not_planned_stand_on_page_one_with_their_reason() -> None:
    bundle = sample()
    said = f"{bundle.verdict.scope} 2 of the suite's cases are not planned: {LACKS_ROOM}."
    alike = tuple(NotPlanned(case=one, device="", reason="it needs 2 devices") for one in "ab")
    for lacking, why in (
        (alike, "each: it needs 2 devices"),
        ((alike[0], replace(alike[1], reason="no disk")), "chapter 3 has the reason of each"),
    ):
        plan = replace(bundle.plan, not_planned=lacking)
        made = view(replace(bundle, plan=plan, verdict=replace(bundle.verdict, scope=said)))
        sentence = f"2 of the suite's cases are not planned ({why})."
        assert sentence in made.certificate.reservations


def test_a_case_without_time_is_not_called_a_matter_of_integrity() -> None:
    """What is inconclusive for want of time says so in the largest words of the page."""
    bundle = sample(unsupported="gemm-bf16")
    (lacking,) = (one for one in bundle.verdict.cases if one.case == "gemm-bf16@cpu:0")
    launches = tuple(replace(one, outcome="not_run", reason=NO_TIME) for one in lacking.launches)
    cases = tuple(
        replace(one, launches=launches) if one is lacking else one for one in bundle.verdict.cases
    )
    made = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases))).certificate
    assert (made.scoped, made.place) == (": no time for 1 of 10 cases", "")


@pytest.mark.parametrize(
    ("bundle", "largest"),
    [
        ({}, "ACCEPTED, functional only"),
        ({"criteria": JUDGED}, "ACCEPTED, performance judged"),
        ({"failing": "resnet50"}, "REJECTED: correctness of resnet50@cpu:0"),
        ({"unsupported": "gemm-bf16"}, "INCONCLUSIVE: integrity of gemm-bf16@cpu:0"),
    ],
)
def test_largest_words_are_the_verdict_with_its_scope(
    bundle: dict[str, object], largest: str
) -> None:
    made = sample(**bundle)  # type: ignore[arg-type]
    if largest == "ACCEPTED, performance judged":
        assert made.verdict is not None
        passing = tuple(
            replace(one, ruling="pass") for one in made.verdict.rulings if one.criterion == "speed"
        )
        made = replace(
            made,
            verdict=replace(made.verdict, verdict="ACCEPTED", decided_by="", rulings=passing),
        )
    (result,) = re.findall(r'<p class="word [^>]*>(.*?)</p>', page(view(made)))
    assert re.sub("<[^>]*>", "", result) == largest


def test_a_limit_that_is_not_required_does_not_make_performance_judged() -> None:
    bundle = judged()
    assert bundle.verdict is not None
    rulings = tuple(replace(one, required=False) for one in bundle.verdict.rulings)
    advisory = replace(bundle.verdict, rulings=rulings)
    assert performance.is_judged(bundle, bundle.verdict)
    assert not performance.is_judged(bundle, advisory)


def test_what_stands_against_a_verdict_stands_beside_it_with_others_on_the_node_first() -> None:
    bundle = sample()
    assert bundle.verdict is not None
    others = "Not alone: others used 96 % of the processors in 30 of 34 readings."
    noisy = replace(
        bundle, verdict=replace(bundle.verdict, scope=f"{bundle.verdict.scope} {others}")
    )
    made = view(noisy).certificate
    assert made.reservations[0] == others
    assert any("no order" in one.lower() for one in made.reservations)
    assert "take its times for no baseline" in made.recommendation
    assert "take its times" not in view(bundle).certificate.recommendation


def test_a_recommendation_follows_from_the_ruling_that_decided() -> None:
    bundle = sample(failing="resnet50")
    assert bundle.verdict is not None
    decisive = next(one for one in bundle.verdict.rulings if one.ruling == "fail")
    made = view(bundle).certificate.recommendation
    assert made.startswith("Do not accept the node as it is; next: ")
    assert f"{decisive.action[0].lower()}{decisive.action[1:]}" in made


def test_memory_is_written_in_one_system_of_units() -> None:
    first = page(view(sample())).partition('id="performance"')[0]
    assert "256 GiB" in first
    assert not re.search(r"\d GB\b", first)


def test_the_code_holds_the_digest_over_the_data_files_as_sha256sum_lists_them() -> None:
    bundle = sample()
    listed = "".join(f"{sha256(bundle.data[name])}  {name}\n" for name in sorted(bundle.data))
    digest = data_digest(bundle)
    assert digest == sha256(listed.encode())
    made = view(bundle).certificate
    matrix = segno.make(code_text(bundle.plan.run_id, digest), micro=False, error="m").matrix
    dark = {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", made.code)}
    assert dark == {
        (x + 4, y + 4) for y, row in enumerate(matrix) for x, is_dark in enumerate(row) if is_dark
    }
    changed = replace(bundle, files={**bundle.files, "peaks.json": b"{}"})
    assert data_digest(changed) != digest
    rendered = {"report.html": b"a page", "statement.dsse.json": b"{}"}
    assert data_digest(replace(bundle, files={**bundle.files, **rendered})) == digest


# ------------------------------------------------------------------ page 2


def test_the_table_has_the_verdicts_own_figures() -> None:
    bundle = judged()
    assert bundle.verdict is not None
    rows = {row[0]: row for row in view(bundle).performance.grid.rows}
    results = {one.case: one for one in bundle.verdict.cases}
    score = bundle.verdict.score
    assert score is not None
    assert len(score.ratios) > 5
    for ratio in score.ratios:
        assert rows[ratio.case][3] == f"{ratio.ratio:.3f}"
    for name, row in rows.items():
        rate = next(one for one in results[name].estimates if one.name == "units_per_second")
        assert row[1].startswith(words.measured(rate.name, rate.value, rate.unit).split()[0])
    (ruling,) = [
        one
        for one in bundle.verdict.rulings
        if one.criterion == "speed" and one.case == "bert@cpu:0"
    ]
    statistic = ruling.statistic
    assert statistic is not None
    assert statistic.limit is not None
    assert f"{statistic.limit / statistic.value:.3f}" in rows["bert@cpu:0"][2]
    assert rows["bert@cpu:0"][2].endswith(" ✗")


def test_no_speed_is_shown_of_a_case_whose_check_failed() -> None:
    made = view(sample(criteria=JUDGED, failing="resnet50")).performance
    assert "resnet50@cpu:0" not in {row[0] for row in made.grid.rows}
    assert ">resnet50@cpu:0<" not in made.plot
    assert "resnet50@cpu:0" in made.withheld
    assert made.weakest[0].startswith("resnet50@cpu:0: the check “loss in float64” is outside")


def test_the_weakest_figure_comes_first() -> None:
    made = view(judged()).performance
    assert len(made.weakest) == 3
    assert made.weakest[0].startswith("bert@cpu:0 reaches 0.")


def test_a_check_of_a_case_is_named_once_with_its_share_of_the_bound() -> None:
    made = view(sample(failing="resnet50")).performance.weakest
    assert made[0] == (
        "resnet50@cpu:0: the check “loss in float64” is outside its bound in 1 of 7, "
        "at 320 % of its bound."
    )
    named = [one.partition("”")[0] for one in made]
    assert len(set(named)) == len(named)


def test_the_legend_explains_what_is_drawn_and_figures_are_those_of_the_table() -> None:
    made = node().performance
    assert "◆" not in made.legend  # no reference rate stands there
    for row, mark in zip(
        made.grid.rows, re.findall(r">(\d\.\d{3})(?: ✗)?<", made.plot), strict=True
    ):
        assert row[3].startswith(mark)


def test_a_case_is_a_pass_whatever_does_not_apply_to_it() -> None:
    made = view(sample(unsupported="gemm-bf16")).families
    assert {one.ruling for one in made} == {"pass", "inconclusive"}
    (open_one,) = [one for one in made if one.ruling == "inconclusive"]
    (said,) = open_one.failed
    assert said == (
        "◆ inconclusive completion, correctness and integrity: cannot run here: "
        "cpu:0 has no bfloat16"
    )


def test_a_ratio_beyond_the_axis_is_marked_with_its_figure() -> None:
    bars = [
        plots.RatioBar(label="a", value=1.0, figure="1.000", limit=0.9),
        plots.RatioBar(label="b", value=7.25, figure="7.250"),
    ]
    drawn = plots.ratios("speeds", bars)
    assert "▶ 7.25" in drawn
    assert drawn.count(">1.0<") >= 1
    assert drawn.count('fill="#111111"/>') == 1  # the limit
    assert plots.ratios("speeds", []) == ""


def test_without_anything_to_compare_with_each_rate_stands_for_itself() -> None:
    made = view(sample()).performance
    assert made.legend == performance.OWN_LEGEND
    assert made.grid.columns[2:] == ("Limit: how far met",)  # no column of dashes
    assert {len(row) for row in made.grid.rows} == {3}
    assert made.headline.startswith("Reported, not judged")


def test_a_share_of_the_baseline_is_of_the_score_alone() -> None:
    bundle = judged()
    assert bundle.verdict is not None
    assert bundle.verdict.score is not None
    one = Ratio(case="bert@cpu:0", weight=1.0, ratio=0.25, low=None, high=None, count=5)
    score = replace(bundle.verdict.score, ratios=(one,))
    made = view(replace(bundle, verdict=replace(bundle.verdict, score=score))).performance
    assert made.weakest[0] == "bert@cpu:0 reaches 0.250 of the baseline's speed."


# ------------------------------------------------------------------ many devices, and length


def test_the_synthetic_node_is_a_run_that_could_be_signed() -> None:
    """So that what is measured of its pages is what signing it takes."""
    made = large(8, rows=4)
    check_finished(made, list(made.lines))


def test_cases_of_several_devices_stand_in_one_section_with_the_slowest_by_name() -> None:
    made = node()
    assert len(made.families) == 4
    assert made.cases == ()  # none stands alone
    for family, row in zip(made.families, made.performance.grid.rows, strict=True):
        assert family.devices == "8 devices"
        assert family.figures is not None
        assert f"(cuda:{SLOW})" in family.figures.rows[0][2]
        assert f"on cuda:{SLOW})" in row[1]
    assert made.heat_map.count("<rect") == 32
    assert f"cuda:{SLOW}" in made.performance.weakest[0]


def test_many_devices_have_a_line_each_and_what_was_quiet_is_said_once() -> None:
    health = node().health
    assert health.devices == ()
    assert health.together is not None
    assert [row[0] for row in health.together.rows] == [f"cuda:{index}" for index in range(8)]
    assert [row[1] for row in health.together.rows if row[1] != "none"] == ["ECC corrected: +7"]
    assert "neither grew" in health.together.notes[1]


def test_what_was_not_observed_for_one_reason_is_one_line_with_number_and_names() -> None:
    bundle = large(8, rows=4)
    assert bundle.verdict is not None
    absent = tuple(
        replace(
            one,
            ruling="not_applicable",
            reason="absent",
            action="Nothing.",
            explanation=f"there is no {one.criterion} of cuda:0: as told",
        )
        for one in bundle.verdict.rulings
        if one.criterion in ("lost", "resets")
    )
    others = [one for one in bundle.verdict.rulings if one.criterion not in ("lost", "resets")]
    verdict = replace(bundle.verdict, rulings=(*others, *absent))
    lines = [case for one in open_rulings(verdict, bundle.criteria.criterion) for case in one.cases]
    assert "of cuda:0 there is none of these 2: as told" in {
        one.explanation for one in lines if one.cases == "lost, resets"
    }
    unseen = [one for one in lines if "were not observed of" in one.explanation]
    assert len(unseen) > 1
    for one in unseen:
        assert f"these {len(one.cases.split(', '))} were not observed" in one.explanation


@pytest.mark.parametrize(
    ("num_devices", "rows", "most"),
    [
        (1, 0, 12),  # smoke
        (8, 26, 24),  # of 30 pages, as not all rows have sizes that are shipped
        (64, 1, 16),  # of 40 pages: what grows with devices; four more rows are a page
    ],
)
def test_a_report_has_no_more_pages_than_it_may(num_devices: int, rows: int, most: int) -> None:
    made = view(large(num_devices, rows=rows) if rows else sample())
    pages = PdfFileReader(BytesIO(render.pdf(made, {"a": b"1"}))).root["/Pages"]["/Count"]
    assert int(pages) <= most


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="poppler is not here")
def test_contents_name_the_page_that_a_chapter_begins_on(tmp_path: Path) -> None:
    made = view(sample())
    (tmp_path / "report.pdf").write_bytes(render.pdf(made, {}))
    command = ["pdftotext", "-layout", str(tmp_path / "report.pdf"), "-"]
    pages = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\f")
    for chapter in made.chapters:
        heading = re.compile(rf"^ *{chapter.number}\. {chapter.title}$", re.MULTILINE)
        (page,) = [number for number, text in enumerate(pages, 1) if heading.search(text)]
        listed = rf"\b{chapter.number} +{chapter.title} ?[. ]+ {page}\b"
        assert re.search(listed, pages[1]), (chapter.title, page)


# ------------------------------------------------------------------ what a reader stumbled over


def test_other_failures_stand_beside_the_one_that_decided() -> None:
    made = view(sample(failing="resnet50", crashing="llama")).certificate
    assert made.decided.endswith(" Also failed: correctness of resnet50@cpu:0.")
    several = view(sample(failing="resnet50", num_devices=4)).certificate
    assert several.decided.endswith(
        " Also failed: correctness of resnet50@cpu:1 to cpu:3 (3 devices)."
    )


def test_one_device_of_several_that_all_failures_are_of_is_named_by_its_serial() -> None:
    decided = node().certificate.decided
    serial = large(8, rows=4).system.identity.devices[SLOW].serial
    assert re.search(rf" All \d+ required rulings that fail are of cuda:{SLOW}, serial", decided)
    assert decided.endswith(f"serial {serial}.")
    assert "Also failed" not in view(sample(failing="resnet50")).certificate.decided


def test_a_limit_that_was_not_decided_is_marked_and_is_not_called_none() -> None:
    rows = {row[0]: row for row in view(judged()).performance.grid.rows}
    assert rows["llama@cpu:0"][2].endswith(" ◆")
    assert rows["markov_lm@cpu:0"][2] == "not decided ◆"
    assert rows["bert@cpu:0"][2].endswith(" ✗")
    assert rows["gemm-bf16@cpu:0"][2].startswith("≤ 4.923 ms: ")
    assert rows["gemm-bf16@cpu:0"][2][-1].isdigit()


def test_a_check_that_fails_on_all_devices_is_one_of_the_weakest_figures() -> None:
    weakest = view(sample(failing="resnet50", num_devices=4)).performance.weakest
    assert weakest[0] == (
        "resnet50@cpu:0 to cpu:3 (4 devices): the check “loss in float64” is outside its bound in "
        "4 of 28, at 320 % of its bound."
    )
    assert "resnet50" not in weakest[1]


def test_a_bar_is_said_to_be_of_what_bars_are_of() -> None:
    assert "where there is none" not in node().performance.legend


def test_page_one_says_the_launches_that_were_planned_and_not_what_the_suite_may_have() -> None:
    made = {row.label: row.value for row in view(sample()).certificate.run}
    assert "then up to 5 forked launches" in made["Protocol"]
    bundle = sample()
    protocol = replace(bundle.plan.protocol, interim_analyses=(5, 10, 20, 40), repeats=3)
    several = replace(bundle, plan=replace(bundle.plan, protocol=protocol))
    said = next(row.value for row in view(several).certificate.run if row.label == "Protocol")
    assert "3 launches that must repeat its bits, then up to 5 forked launches" in said
    assert "judged after 5;" in said


def cut_short(launch: str, reason: str) -> LaunchEnded:
    return LaunchEnded(
        launch=launch,
        outcome="interrupted",
        reason=reason,
        detail="",
        exit_code=None,
        wall_ns=1,
        peak_memory_bytes=None,
    )


def test_page_one_names_a_launch_that_was_cut_while_the_run_went_on() -> None:
    plan = sample().plan
    index = JournalIndex(plan)
    assert certificate.interruptions(index) == ""
    event = cut_short(plan.launches[1].id, "shared_memory")
    index.take(Line(seq=0, utc="2026-11-21T12:00:00Z", monotonic_ns=0, prev="", event=event))
    said = certificate.interruptions(index)
    name = plan.launches[1].id
    assert said.startswith(f"Cut while the run went on: {name} (shared memory). A timed launch")


def test_launches_that_a_run_ended_itself_are_those_that_its_interruption_cut() -> None:
    """A run that is told to end notes its launches as interrupted before it is resumed."""
    plan = sample().plan
    index = JournalIndex(plan)
    cut, left = plan.launches[0].id, plan.launches[1].id
    ended = cut_short(cut, "SIGINT")
    resumed = RunResumed(interruption=1, interrupted=(), dropped="", pid=2)
    again = RunResumed(interruption=2, interrupted=(left,), dropped="", pid=3)
    events: list[Event] = [ended, resumed, again, replace(ended, launch=left)]
    for seq, event in enumerate(events):
        index.take(
            Line(seq=seq, utc="2026-11-21T12:00:00Z", monotonic_ns=seq, prev="", event=event)
        )
    said = certificate.interruptions(index)
    assert f"UTC, cut {cut}. Interruption 2" in said
    assert f"UTC, cut {left}. A timed" in said


def test_a_reservation_that_is_too_long_ends_with_a_whole_item() -> None:
    listed = f"Not run: {', '.join(f'row-{number}' for number in range(100))}."
    short = certificate.cut_short(listed)
    assert len(short) < len(listed)
    assert re.search(r"row-\d+ … \(verdict\.json\)$", short)
    assert certificate.cut_short("As it is.") == "As it is."


def test_what_is_folded_on_a_screen_stands_open_where_a_browser_prints() -> None:
    made = view(sample())
    rule = "details::details-content { content-visibility: visible;"
    assert rule in render.html(made, {}).decode()


def test_a_device_without_a_reading_under_load_is_not_said_never_to_be_slowed_down() -> None:
    together = node().health.together
    assert together is not None
    slowed = together.columns.index("Slowed down")
    assert {row[slowed] for row in together.rows} == {"not observed"}
