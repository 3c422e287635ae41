"""How command lines are read: help without an error, near misses, settings, errors as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.program import TINY, called

from appliance.cli import output
from appliance.errors import UsageError
from appliance.storage.settings_file import NAME, NAMES, NEVER, Setting, settings
from appliance.vendors.visibility import vendor_of
from appliance.verbs.run_options import PlanOptions
from appliance.version import VERSION


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",), ("keys",), ("plan", "-h")])
def test_help_is_no_error(words: tuple[str, ...]) -> None:
    done = called(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")
    assert "<str>" not in done.stdout


def test_version_is_one_line() -> None:
    done = called("--version")
    assert (done.returncode, done.stdout) == (0, f"bench {VERSION}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("verfy", "x"), 'there is no verb "verfy" (did you mean verify?); `bench -h`'),
        (("list", "suite"), 'there is no verb "suite" (did you mean suites?); `bench list -h`'),
        (("quxx",), 'there is no verb "quxx"; `bench -h` shows what there is'),
        (("accept", "--siute", "x"), "bench accept has no option --siute (did you mean --suite?)"),
        (("plan", "--sessions", "two"), "bench plan: invalid value for '--sessions'"),
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
    by_word, by_option = called("plan", TINY, "--json"), called("plan", "--suite", TINY, "--json")
    assert by_word.returncode == 0
    plans = [json.loads(done.stdout) for done in (by_word, by_option)]
    first, second = [(plan["suite"], [case["id"] for case in plan["cases"]]) for plan in plans]
    assert first == second
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
    assert "invalid value for '--sessions'" in called("plan").stderr
