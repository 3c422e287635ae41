"""What a terminal of 80 columns shows: lists and `bench doctor` without a word that is cut."""

import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from support.launching import case, plan

from appliance.cli import listing, output, progress, results
from appliance.container.doctor_rows import Row
from appliance.records.system import Fact
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


def test_a_sentence_ends_its_lines_between_words_and_keeps_its_commands_whole() -> None:
    command = "`.venv/bin/bench accept --resume out/20261126T003230Z-81422e`"
    text = f"out/x is not finished, so there is nothing to verify: {command} goes on with it"
    lines = output.in_lines(text, 80).split("\n")
    assert " ".join(lines) == text
    assert all(len(line) <= 80 for line in lines)
    assert sum(command in line for line in lines) == 1


def test_a_command_longer_than_a_line_is_still_one_when_pasted() -> None:
    command = "`.venv/bin/bench accept --resume 'out/a run'`"
    text = output.in_lines(f"name it ({command})", 30)
    assert text.split("\n") == [
        *("name it", "(`.venv/bin/bench accept \\", "    --resume 'out/a run'`)"),
    ]
    pasted = text.partition("`")[2].partition("`")[0]
    assert subprocess.check_output(["sh", "-c", pasted.replace(".venv/bin/bench", "echo")]) == (
        b"accept --resume out/a run\n"
    )
    assert output.continued("a_word_longer_than_its_line", 9) == "a_word_longer_than_its_line"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("takes about 2 min 18 s", "2 min 18 s"),
        ("others use 65 % of", "65 % of"),
        ("it takes 1 h 6 min, no more", "1 h 6 min, no more"),
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(text: str, last: str) -> None:
    for width in range(len(last), len(text)):
        lines = output.in_lines(text, width).split("\n")
        assert " ".join(lines) == text
        assert [line for line in lines if re.search(r"\d$|\d (h|min)$", line)] == []


def test_facts_are_in_binary_units_and_what_is_missing_is_said_once_by_its_hint() -> None:
    facts = {
        "memory": Fact(value=24 * 2**30, unit="bytes", source="/proc"),
        "board_serial": Fact(value=None, unit="", source="", hint="run as root"),
        "sockets": Fact(value=1, unit="", source="/proc"),
        "bios_date": Fact(value=None, unit="", source="", hint="run as root"),
        "cache": Fact(value=1000, unit="bytes", source="/proc"),
        "uptime": Fact(value=24962.59, unit="seconds", source="/proc"),
        "frequency": Fact(value=2596122000.0, unit="hertz", source="/proc"),
        "used_by_others": Fact(value=0.9507516014235065, unit="processors", source="/proc"),
        "ld_preload": Fact(value=False, unit="", source="environment"),
    }
    assert list(results.fact_lines(facts)) == [
        "memory: 24 GiB",
        "sockets: 1",
        "cache: 1,000 bytes",
        "uptime: 6 h 56 min",
        "frequency: 2.596 GHz",
        "used_by_others: 0.9508 processors",
        "ld_preload: no",
        "not reported: board_serial, bios_date (run as root)",
    ]


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


@pytest.mark.parametrize("width", [80, 200])
def test_moving_line_has_case_times_and_number_whole(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    out = Console(file=StringIO(), width=width, height=24, force_terminal=True)
    monkeypatch.setattr(progress, "console", lambda: out)
    one = case("onnx_resnet50-single", launches=120, expected_seconds=786.0, reference_seconds=1.0)
    made = replace(plan(one), expected_seconds=120 * 786.0)
    launch = made.launches[-1]
    with progress.observer(quiet=False) as watching:
        assert isinstance(watching, progress.Moving)
        watching.run_begins(made, 0, 1)
        watching.launch_started(launch, "forked")
        for drawn in watching._progress.get_renderables():
            out.print(drawn)
    assert isinstance(out.file, StringIO)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.file.getvalue())
    (line,) = {line.strip() for line in shown.splitlines() if line.startswith(launch.case)}
    assert line.startswith(f"{launch.case} launch 120")
    assert re.search(r" 0/121 0:00:0\d about 13 min \d+ s left$", line)
    is_wide = width > 80
    assert ("(forked)" in line, "━" in line) == (is_wide, is_wide)
