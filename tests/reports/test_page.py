"""How the pages are laid out: headings, anchors, tables and figures for readers of every kind."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.builders import SYSTEM, Watching
from support.compared_runs import compared, draft, slower
from support.health_chapters import chapter as health_chapter
from support.pair_runs import judged as judged_pairs
from support.pair_runs import node as node_of_pairs
from support.report_samples import JUDGED, sample
from support.watched_runs import CALM, HEALTHY

from appliance.evidence.journal_index import index_of
from appliance.records.baseline import Peak, Peaks
from appliance.records.journal import LaunchEnded
from reports import cases, machine, pairs, render, words
from reports.comparing import page as comparisons
from reports.comparing import rendering
from reports.document.view import chapters, view
from reports.model import BurnInSection, OrderRow, OrderTable, View

STYLE = Path(render.__file__).parent / "templates" / "style.css"
ORDER = OrderTable(
    intro="An order: for tests",
    rows=(
        OrderRow(
            number="1",
            title="Devices",
            field="devices.count",
            ordered="8",
            actual="1",
            ruling="fail",
            is_required=True,
        ),
    ),
)
BURN_IN = BurnInSection(id="burn_in@cpu:0", rows=(), shown="No mismatch.")


class Page(HTMLParser):
    """What a reader finds his way by: headings, names, links, and what stands around each table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.around: list[str] = []
        self.unscoped = 0
        self.mains = 0
        self._last = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "table" and "grid" in (result.get("class") or ""):
            self.around.append(self._last)
        self.names += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.unscoped += tag == "th" and "scope" not in result
        self.mains += tag == "main"
        self._last = f"{tag} {result.get('class')}"


@cache
def full() -> View:
    """A page with every chapter that there is."""
    plan = node_of_pairs(3)
    made = view(sample(criteria=JUDGED, failing="resnet50"))
    return replace(
        made,
        chapters=chapters(has_burn_in=True, has_pairs=True),
        order=ORDER,
        burn_in=(BURN_IN,),
        pairs=pairs.sections(plan, judged_pairs(plan, {})),
    )


def page_of(made: View, **carried: bytes) -> str:
    return render.html(made, carried).decode()


def texts() -> dict[str, str]:
    result = compared(draft("a"), draft("b", slower(0.06)))
    comparison = rendering.html(comparisons.page(result)).decode()
    return {"report": page_of(full(), a=b"1"), "comparison": comparison}


@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_headings_begin_with_one_title_and_skip_no_level(kind: str) -> None:
    page = Page(texts()[kind])
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    steps = zip(page.levels, page.levels[1:], strict=False)
    assert [pair for pair in steps if pair[1] > pair[0] + 1] == []
    assert page.mains == 1


@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_every_table_can_scroll_by_itself_and_every_head_has_a_scope(kind: str) -> None:
    page = Page(texts()[kind])
    assert len(page.around) >= 3
    assert set(page.around) == {"div wide"}
    assert page.unscoped == 0


@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_every_figure_has_a_title_in_words(kind: str) -> None:
    figures = re.findall(r"<svg [^>]*>.{7}", texts()[kind], re.DOTALL)
    assert figures
    assert all('role="img"' in one and one.endswith("<title>") for one in figures)


def test_every_link_leads_somewhere_and_no_two_places_have_one_name() -> None:
    page = Page(page_of(full()))
    assert len(page.names) == len(set(page.names))
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert set(inside) <= set(page.names)
    assert {one.anchor for one in full().chapters} <= set(inside)


def contents(page: View) -> list[str]:
    (result,) = re.findall(r'<nav class="contents">(.*?)</nav>', page_of(page), re.DOTALL)
    return re.findall(r'href="#([\w-]+)"', result)


def test_contents_name_the_chapters_that_there_are_and_no_other() -> None:
    always = ["performance", "summary", "cases", "health", "judging", "system", "environment"]
    always += ["evidence", "verify", "checks", "launches"]
    assert contents(view(sample())) == always
    assert contents(full()) == [*always[:3], "burn-in", "pairs", *always[3:]]
    assert [one.number for one in full().chapters] == [*map(str, range(1, 12)), "A", "B"]


def test_the_chapter_named_for_the_journal_head_is_the_one_that_has_it() -> None:
    text = page_of(view(sample()))
    (named,) = re.findall(r"the journal head of chapter (\d)", text)
    before = text.partition("Journal head")[0]
    assert re.findall(r"<h2[^>]*>(\d)\. ", before)[-1] == named


def test_no_reader_is_shown_a_verdict_smaller_or_in_other_colours_than_on_paper() -> None:
    _, _, screen = STYLE.read_text().partition("@media screen {")
    screen = screen.partition("@media print")[0]
    assert re.findall(r"\.verdict[^{]*\{[^}]*font-size", screen) == []
    assert "color-scheme: only light" in screen


def test_what_warns_is_printed_with_its_ground_and_no_table_glues_its_neighbours() -> None:
    style = STYLE.read_text()
    (band,) = re.findall(r"^\.band \{([^}]*)\}", style, re.MULTILINE)
    assert "print-color-adjust: exact" in band
    assert re.findall(r"tr:first-child\S* \{ break-after", style) == [
        "tr:first-child:not(:last-child) { break-after"  # a table of one row would glue the next
    ]


def test_a_narrow_screen_has_its_own_layout() -> None:
    _, _, narrow = STYLE.read_text().partition("@media screen and (max-width: 700px) {")
    assert re.search(r"\.wide[^{]*\{[^}]*overflow-x: auto", narrow)
    assert re.search(r"\.verdict[^{]*\{[^}]*flex-direction: column", narrow)


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="poppler is not here")
def test_a_browser_prints_the_runs_name_on_every_sheet_and_the_pdf_keeps_its_own(
    tmp_path: Path,
) -> None:
    made = view(sample())
    assert f'@bottom-left {{ content: "Run {made.run_id}"; content: string(run); }}' in page_of(
        made
    )
    (tmp_path / "report.pdf").write_bytes(render.pdf(made, {}))
    ran = subprocess.run(
        ["pdftotext", tmp_path / "report.pdf", "-"], check=True, capture_output=True
    )
    pages = ran.stdout.decode().split("\f")[:-1]
    assert all(f"Run {made.run_id} · {made.generator}" in text for text in pages)


def test_what_was_judged_adds_up_to_the_rulings() -> None:
    made = view(sample(injector="scaled output", failing="gemm-fp32"))
    (integrity,) = [one for one in made.requirements if one.id == "integrity"]
    assert integrity.cases == "10 cases and the run"
    assert sum(map(int, re.findall(r"\d+", integrity.counts))) == 11
    assert {one.cases for one in view(sample()).requirements} == {"10 cases"}


def test_a_reading_that_was_not_observed_is_headed_as_in_the_other_tables() -> None:
    result = health_chapter(
        Watching(
            counters=lambda _: {**HEALTHY, "thermal_violation_ns": None},
            values=lambda _: {**CALM, "temperature_celsius": None},
        )
    )
    assert result.gaps is not None
    assert result.gaps.rows[0][0] == "Thermal violation, Temperature"


def test_memory_of_which_none_was_seen_is_not_written_as_none() -> None:
    bundle = sample()
    lines = [
        replace(line, event=replace(line.event, peak_memory_bytes=0))
        if isinstance(line.event, LaunchEnded)
        else line
        for line in bundle.lines
    ]
    assert bundle.verdict is not None
    index = index_of(bundle.plan, lines)
    result = cases.sections(index, bundle.verdict, bundle.peaks, bundle.qualified, bundle.system)
    assert {launch.memory for case in result for launch in case.launches} == {"—"}


def test_figures_are_written_alike_throughout() -> None:
    (bert,) = [case for case in view(sample()).cases if case.id == "bert@cpu:0"]
    assert all(re.fullmatch(r"equal|\d+ %", check.margin) for check in bert.checks)
    assert words.reading("load1")[0] == "Load over a minute"
    peak = Peak(
        model="a model",
        quantity="float64_flops_per_second",
        value=1e12,
        unit="FLOP/s",
        per="device",
        is_confirmed=True,
        source="the vendor",
    )
    rate = replace(peak, quantity="memory_bytes_per_second", unit="B/s")
    groups = machine.system_groups(SYSTEM, Peaks(peak=(peak, rate)))
    assert groups[-1].grid is not None
    assert [row[1] for row in groups[-1].grid.rows] == ["Float64 arithmetic", "Memory rate"]
