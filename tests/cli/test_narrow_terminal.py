"""What a terminal of 80 columns shows: lists and `bench doctor` without a word that is cut."""

import sys
from io import StringIO

import pytest
from rich.console import Console

from appliance.cli import listing
from appliance.container.doctor_rows import Row
from appliance.storage import suite_file
from appliance.verbs import doctor

ROWS = (
    Row(what="Python", detected="3.11.7", needed_for="every run", state="ok"),
    Row(
        what="fonts",
        detected="/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf",
        needed_for="reports",
        state="missing",
        fix="install the package fonts-dejavu, or name another folder of fonts",
    ),
)


def printed(width: int) -> str:
    out = Console(file=StringIO(), width=width, force_terminal=False)
    out.print(doctor.shown(ROWS, width))
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [80, 200])
def test_doctor_cuts_no_word_and_says_all_of_every_row(width: int) -> None:
    text = printed(width)
    words = set(text.split())
    for row in ROWS:
        told = f"{row.what} {row.detected} {row.needed_for} {row.fix}".split()
        assert all(any(word in shown for shown in words) for word in told)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert ("needed for" in text) == (width == 200)


def test_lists_end_their_lines_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listing.suites()
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    summaries = [suite_file.load_suite(name)[0].summary for name in suite_file.list_suites()]
    together = " ".join(shown.split())
    assert all(summary in together for summary in summaries)


def test_a_file_gets_each_entry_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    listing.suites()
    summary = suite_file.load_suite("acceptance")[0].summary
    assert f"{'acceptance':18} {summary}\n" in capsys.readouterr().out
