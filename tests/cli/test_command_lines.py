"""How command lines are read: help without an error, near misses, settings, errors as JSON."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from support.builders import a_plan
from support.bundles import healthy, sealed
from support.program import ROOT, TINY, called

from appliance.cli import console as terminal
from appliance.cli import output, program, progress, results
from appliance.errors import UsageError
from appliance.signing import keys
from appliance.storage import bundle
from appliance.storage.settings_file import NAME, NAMES, NEVER, Setting, settings
from appliance.vendors.visibility import vendor_of
from appliance.verbs import listing
from appliance.verbs.run_options import PlanOptions
from appliance.version import VERSION


@pytest.mark.parametrize(
    "words", [(), ("-h",), ("keys",), ("baseline", "plan", "-h"), ("verify", "--help")]
)
def test_help_is_no_error(words: tuple[str, ...]) -> None:
    done = called(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")
    assert re.findall(r"<(?!run id>|=)", done.stdout) == []  # types are words


def test_version_is_one_line() -> None:
    done = called("--version")
    assert (done.returncode, done.stdout) == (0, f"bench {VERSION}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("verfy", "x"), 'there is no verb "verfy" (did you mean verify?); `bench -h`'),
        (("list", "suite"), 'there is no verb "suite" (did you mean suites?); `bench list -h`'),
        (("quxx",), 'there is no verb "quxx"; `bench -h` shows what there is'),
        (("accept", "--siute", "x"), "bench: accept has no option --siute (did you mean --suite?)"),
        (
            ("plan", "--sessions", "two"),
            "bench: plan: --sessions takes an integer (Parts of the run, 1 to 12, each begun",
        ),
        (("accept", "--hours", "x"), "bench: accept: --hours takes a number (Hours that a suite"),
        (("fleet", "run", "--attempt", "0"), "--attempt takes a number from 1 to 999 (Number of"),
        (("fleet", "run", "--attempt", "1.5"), "--attempt takes an integer from 1 to 999 ("),
        (("plan", "--suite", ""), "--suite is empty: `bench list suites` names what there is"),
        (("plan", "smoke", "--suite", "intake"), 'named twice, "smoke" and "intake"'),
    ],
)
def test_wrong_line_is_one_sentence_with_the_next_command(
    words: tuple[str, ...], expected: str
) -> None:
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


@pytest.mark.parametrize("words", [("plan", "--suite", "smok"), ("plan", "--siute", "smoke")])
def test_error_of_a_verb_with_json_is_json_too(words: tuple[str, ...]) -> None:
    done = called(*words, "--json")
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode == 2
    assert done.stderr == f"bench: {document['error']}\n"


def test_suite_may_stand_alone() -> None:
    done = called("plan", TINY, "--json")
    assert (done.returncode, json.loads(done.stdout)["suite"]) == (0, "tiny")
    assert PlanOptions(suite="a").of_suite("a").of_suite(None).suite == "a"


def test_companies_stand_for_their_devices() -> None:
    words = ("NVIDIA", "amd", "intel", "cuda", "cpu", None)
    assert [vendor_of(word) for word in words] == ["cuda", "rocm", "xpu", "cuda", "cpu", None]


def test_commands_work_as_they_are_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called_as = tmp_path / "a folder" / "bench"
    monkeypatch.setattr("sys.argv", [str(called_as)])
    assert output.command("verify", "out/a b") == f"'{called_as}' verify 'out/a b'"
    assert output.pasteable("make it: `bench sign X`") == f"make it: `'{called_as}' sign X`"
    monkeypatch.setattr("sys.argv", ["/x/pytest"])
    assert output.command("verify", "out") == "bench verify out"


def test_the_last_lines_are_pasted(tmp_path: Path) -> None:
    """A development key is named with the option that takes it; the address can be clicked."""
    folder = sealed(tmp_path / "a run", healthy(), keys.development_key())
    report, verify = results.last_lines(folder, is_signed=True)
    assert report == f"report: file://{tmp_path}/a%20run/report.pdf"
    words = shlex.split(verify.removeprefix("verify: bench "))
    assert words == ["verify", str(folder), "--allow-dev"]
    assert called(*words).returncode == 0
    assert results.last_lines(folder, is_signed=False) == (f"unsigned: bench sign '{folder}'",)


def test_what_cannot_be_verified_yet_names_the_next_command(tmp_path: Path) -> None:
    run = sealed(tmp_path / "out" / "r2", healthy(), keys.development_key())
    sealed(tmp_path / "out" / "r1", healthy(), keys.development_key())
    done = called("verify", str(tmp_path / "out"))
    assert (done.returncode, f"`bench verify {run}`" in done.stderr) == (2, True)
    for name in (bundle.STATEMENT, bundle.REPORT, bundle.HTML, bundle.PDF):
        (run / name).unlink()
    done = called("verify", str(run))
    assert (done.returncode, f"`bench sign {run}`" in done.stderr) == (4, True)
    (run / bundle.VERDICT).unlink()
    (run / bundle.SIGNER).unlink()
    done = called("verify", str(run), "--json")
    assert (done.returncode, f"`bench accept --resume {run}`" in done.stderr) == (4, True)
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    (run / bundle.JOURNAL).unlink()
    (run / bundle.STATEMENT).touch()  # not all of it: the checks say what is missing
    assert "missing" in called("verify", str(run)).stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (138.2, "2 min 18 s"),
        (3599.6, "1 h"),
        (3900, "1 h 5 min"),
        (93600, "26 h"),
    ],
)
def test_a_length_of_time_is_in_hours_and_minutes(seconds: float, words: str) -> None:
    assert progress.minutes(seconds) == words


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_the_terminal_and_part_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Console(file=io.StringIO(), width=width, soft_wrap=False, force_terminal=True)
    monkeypatch.setattr(results, "console", lambda **_: out)
    plan, workloads = a_plan(), listing.listed()
    results.print_plan(plan)
    results.print_workloads(workloads)
    row = ("lightning_resnet152@cpu:0", "9/9", "133/133", "16.639 ms", "60.1 images/s", "3 TFLOP/s")
    results.print_table(out, results.RESULT, [row])
    assert isinstance(out.file, io.StringIO)
    lines = Text.from_ansi(out.file.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    names = {*(case.id for case in plan.cases), *(item.name for item in workloads)}
    assert {row[0], "60.1", "images/s", *names} <= words
    assert ("TFLOP/s" in words) == (width > 80)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_sees_what_a_verb_is_at_and_a_log_nothing(
    is_terminal: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Console(file=io.StringIO(), width=80, force_terminal=is_terminal)
    monkeypatch.setattr(terminal, "console", lambda: out)
    with terminal.working("verifying \x1b[2Jout"):
        pass
    assert isinstance(out.file, io.StringIO)
    assert ("verifying [U+001B][2Jout" in out.file.getvalue()) == is_terminal
    assert bool(out.file.getvalue()) == is_terminal


# ------------------------------------------------------------------ settings


def test_a_variable_stands_before_the_folders_file_and_that_before_the_users(
    tmp_path: Path,
) -> None:
    folder, user = tmp_path / "here", tmp_path / "config" / "bench"
    folder.mkdir()
    user.mkdir(parents=True)
    (folder / NAME).write_text('suite = "intake"\nminutes = 30\n')
    (user / NAME).write_text('suite = "smoke"\nminutes = 9\nout = "/srv"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "BENCH_SUITE": "extended"}
    assert settings(environ, folder) == {
        "suite": Setting(value="extended", source="BENCH_SUITE"),
        "minutes": Setting(value=30, source=str(folder / NAME)),
        "out": Setting(value="/srv", source=str(user / NAME)),
    }


def test_what_evidence_is_worth_is_no_setting(tmp_path: Path) -> None:
    assert not NEVER & set(NAMES)
    for name in sorted(NEVER):
        for key in (name, name.replace("_", "-"), f'"{name}"'):
            (tmp_path / NAME).write_text(f"{key} = true\n")
            with pytest.raises(UsageError, match=f"sets {name}, which no file may: give --"):
                settings({}, tmp_path)
        (tmp_path / NAME).unlink()
        assert settings({f"BENCH_{name.upper()}": "x", "BENCH_VENDOR": "x"}, tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("suit = 'smoke'", 'unknown key "suit" (did you mean "suite"?)'),
        ("minutes = 'x'", 'key "minutes" must be an integer'),
        ("[protocol", "is not TOML"),
    ],
)
def test_wrong_file_of_settings_is_one_sentence(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(UsageError) as error:
        settings({}, tmp_path)
    assert expected in str(error.value)
    assert str(tmp_path / NAME) in str(error.value)


def test_settings_that_are_no_plain_file_are_not_opened(tmp_path: Path) -> None:
    """A folder that somebody else made may have a FIFO of that name, which would never end."""
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(UsageError, match="it is not a plain file"):
        settings({}, tmp_path)


def test_settings_stand_for_options_that_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).write_text('suite = "nowhere"\n')
    done = called("plan")
    assert done.stderr.startswith(f"bench: --suite nowhere is set by {tmp_path / NAME}\n")
    assert 'there is no suite called "nowhere"' in done.stderr
    assert "set by" not in called("plan", "--suite", "gone").stderr
    assert "set by" not in called("plan", "--suite=gone").stderr
    assert "set by" not in called("run", "--resume", "gone").stderr  # which has its suite
    assert "set by" not in called("verify", "gone").stderr
    monkeypatch.setenv("BENCH_SESSIONS", "two")
    assert "--sessions takes an integer" in called("plan").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_not_written_over_a_file_of_somebody_else(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = dict(zip(("bash", "zsh", "fish"), program.INSTALLED, strict=True))
    path = tmp_path / names[shell]
    path.parent.mkdir(parents=True)
    path.write_text("mine\n")
    done = called("--install-completion")
    assert (done.returncode, path.read_text()) == (2, "mine\n")
    assert f"{path} is of something else than bench: move it away" in done.stderr


def test_completion_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    done = called("--install-completion")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be written" in done.stderr


@pytest.mark.parametrize(("line", "expected"), [("bench fleet s", "status"), ("bench ver", "from")])
def test_completion_cuts_no_summary(line: str, expected: str) -> None:
    """As fish asks for it; bash and zsh are given the same words."""
    done = subprocess.run(
        [sys.executable, "-m", "appliance"],
        env=os.environ
        | {
            f"_{output.NAME.upper()}_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert expected in done.stdout
    assert "..." not in done.stdout


def test_a_reader_that_has_gone_is_no_rejection() -> None:
    """`bench accept | head` goes on, where the library would leave with 1: REJECTED."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        out = terminal.Plain(is_error=True)
        out.file = gone
        out.print("one line that nobody reads")
        out.print("another")
        assert out.quiet
