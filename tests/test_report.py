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
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
import report_samples
from pyhanko.pdf_utils.reader import PdfFileReader
from report_samples import HOSTILE, ORGANISATION, sample

from appliance import dsse, pades, signing
from appliance.errors import EvidenceError
from appliance.records import Block, Fact, Signer, sha256
from reports import machine, plots, render, words
from reports.model import CaseSection, View
from reports.view import view

BAND = "DEVELOPMENT KEY: proves nothing about who signed"
PROOF = re.compile(
    rb'\n<a id="bench-proof" download="statement\.dsse\.json" '
    rb'href="data:application/vnd\.dsse\.envelope\.v1\+json;base64,([A-Za-z0-9+/=]+)">[^<]*</a>\n'
)
DATA = re.compile(
    rb'<a class="bench-data" download="([^"]+)" '
    rb'href="data:application/octet-stream;base64,([A-Za-z0-9+/=]*)">[^<]*</a>'
)
VOID = {"meta", "br"}


def case_of(page: View, name: str) -> CaseSection:
    return next(case for case in page.cases if case.id == f"{name}@cpu:0")


def page_of(page: View, **carried: bytes) -> str:
    return render.html(page, carried).decode()


def article(text: str, name: str) -> str:
    """The part of the page that is about one case."""
    return next(part for part in text.split("<article") if f". {name}@cpu:0</h3>" in part)


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
    told = {result.case: result.estimates for result in healthy.verdict.cases}
    cases = tuple(
        replace(result, withheld="", estimates=told[result.case]) for result in bundle.verdict.cases
    )
    page = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases)))
    assert case_of(page, "resnet50").timing is None
    assert case_of(page, "bert").timing is not None


def test_a_case_without_any_check_shows_no_timing():
    bundle = sample()
    cases = tuple(replace(result, checks=()) for result in bundle.verdict.cases)
    page = view(replace(bundle, verdict=replace(bundle.verdict, cases=cases)))
    assert [case.timing for case in page.cases] == [None] * len(report_samples.ROWS)
    assert "No check was made." in page_of(page)


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
    assert len(open_rulings) == 5
    for ruling in open_rulings:
        assert words.clean(ruling.explanation) in text
        assert words.clean(ruling.action) in text
    assert '<p class="word word-REJECTED">REJECTED</p>' in text


def test_required_failures_stand_before_what_is_inconclusive():
    page = view(sample(failing="resnet50", unsupported="gemm-bf16"))
    assert [one.ruling for one in page.open_rulings] == ["fail"] + ["inconclusive"] * 3


def test_the_summary_counts_the_rulings_of_each_requirement():
    page = view(sample(crashing="llama"))
    completion = page.requirements[0]
    assert (completion.id, completion.passed, completion.failed) == ("completion", "9", "1")
    assert (completion.ruling, completion.reason) == ("fail", "crashed")


def test_a_criterion_that_no_ruling_answers_is_not_shown_as_a_pass():
    bundle = sample()
    rulings = tuple(one for one in bundle.verdict.rulings if one.criterion != "correctness")
    page = view(replace(bundle, verdict=replace(bundle.verdict, rulings=rulings)))
    correctness = next(one for one in page.requirements if one.id == "correctness")
    assert (correctness.ruling, correctness.cases) == ("inconclusive", "0")


def test_a_crashed_launch_is_named_with_its_reason_in_table_and_plot():
    case = case_of(view(sample(crashing="llama")), "llama")
    assert case.launches[3].outcome == "crashed: SIGSEGV"
    assert case.timing is not None
    assert "crashed: SIGSEGV" in case.timing.plot
    assert case.launch_counts == "6 planned, 5 completed, 1 missing"


# ------------------------------------------------------------------ figures follow from evidence


def test_the_figures_of_a_launch_follow_from_the_journal():
    bundle = sample()
    block = next(
        line.event
        for line in bundle.lines
        if isinstance(line.event, Block) and line.event.launch == "resnet50@cpu:0/3"
    )
    median = math.exp(statistics.median(math.log(time * 1e-6) for time in block.wall_ns))
    launch = case_of(view(bundle), "resnet50").launches[3]
    assert (launch.number, launch.steps) == ("3", str(len(block.wall_ns)))
    assert launch.median == words.figure(median)


def test_rates_are_shown_with_unit_and_interval():
    timing = case_of(view(sample()), "memory_bandwidth").timing
    assert timing is not None
    rate = timing.estimates.rows[2]
    assert rate[0] == "Memory rate"
    assert re.fullmatch(r"13\.\d\d GB/s", rate[1])
    assert re.fullmatch(r"13\.\d\d GB/s to 1[34]\.\d\d GB/s \(95%\)", rate[2])


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
    assert bundle.verdict.scope in first
    assert f"criteria chosen by the signer: {digest}" in first
    assert "5 forked launches of 3 warm-up steps and 1 block of at least 5 steps and 0.5 s" in first
    assert "CN=Node Laboratory,O=Buyer" in first
    assert ORGANISATION.sha256 in first
    assert "does not prove that whoever administered the node was honest" in first


def test_an_interruption_is_printed_on_page_one():
    first = page_of(view(sample(interruptions=1))).partition('id="summary"')[0]
    assert "<strong>Interrupted.</strong> Interruption 1" in first
    assert "gemm-fp32@cpu:0/2" in first
    assert "Interrupted." not in page_of(view(sample()))


def test_a_reduced_model_shows_its_parameter_count_and_a_full_one_is_not_called_reduced():
    page = view(sample())
    assert case_of(page, "llama").scale == "reduced: 10,748,160 parameters"
    assert case_of(page, "digits_mlp").scale == "4,810 parameters"


def test_what_could_not_be_read_is_not_reported_with_the_permission_that_would_allow_it():
    text = markup.unescape(page_of(view(sample())))
    row = '<th scope="row">Microcode</th><td class="unknown">not reported</td><td class="note">'
    assert f"{row}run with --cap-add SYS_RAWIO and --device /dev/mem to read it" in text
    assert "Temperature: not reported (0 of 6 read)" in text
    assert 'System serial</th><td class="unknown">not reported <span class="note">readable' in text


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
    told = [Fact(value=0), Fact(value=None, hint="run as root"), None]
    notes = [machine.parts("Disks", (), one).notes[0] for one in told]
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
    found = Elements(text)
    assert found.open == []
    assert not {"script", "iframe", "img", "link", "object", "form"} & set(found.tags)
    assert {address.partition(":")[0] for address in found.addresses if address[0] != "#"} == {
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
    strip = plots.Strip(label="1", samples=(), median=None, note="</text><script>")
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
    strips = [
        plots.Strip(label=str(number), samples=(1.0, 1.1) * 500, median=1.0) for number in range(5)
    ]
    stalled = replace(strips[0], samples=(*strips[0].samples, 40.0))
    drawn = plots.launches("steps", [stalled, *strips[1:]], (1.0, 1.05))
    assert len(re.findall(r"M[\d. ]+h0", drawn)) <= plots.MOST_POINTS
    assert "▲ 1 sample above the axis, the largest 40.00 ms" in drawn


# ------------------------------------------------------------------ HTML and PDF


def test_the_page_carries_the_statement_and_the_data_as_its_last_elements():
    bundle = sample(crashing="llama")
    carried = {**bundle.data, "statement.dsse.json": b'{"payload":""}'}
    page = render.html(view(bundle), carried)
    (proof,) = PROOF.findall(page)
    assert base64.b64decode(proof) == b'{"payload":""}'
    found = {name.decode(): base64.b64decode(text) for name, text in DATA.findall(page)}
    assert found == bundle.data
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
        "import sys; from report_samples import sample; from reports import render; "
        "from reports.view import view; page = view(sample(failing='bert')); "
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
    key = signing.development_key()
    bundle = sample(crashing="llama", signer=signing.signer_record(key, "tester"))
    files = bundle.data
    statement = dsse.Statement(
        predicate_type=dsse.ACCEPTANCE,
        subjects={name: sha256(data) for name, data in files.items()},
        predicate={},
    )
    carried = {**files, "statement.dsse.json": dsse.sign_statement(statement, key)}
    page = view(bundle)
    (tmp_path / "report.pdf").write_bytes(signing.sign_pdf(render.pdf(page, carried), key))
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
