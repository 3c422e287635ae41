"""`bench --help` and the light verbs load no heavy library."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from appliance.cli import main, program
from appliance.cli.output import NAME

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "onnxruntime", "docker", "weasyprint", "transformers", "scipy", "pyhanko"}


def loaded(*words: str) -> tuple[set[str], str]:
    """Top-level packages that a command imports, and what it prints."""
    command = [sys.executable, "-X", "importtime", "-m", "appliance.cli.main", *words]
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, env={"COLUMNS": "200"}
    )
    times = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in times}, done.stdout


@pytest.mark.parametrize("words", [("--help",), ("accept", "--help"), ("verify", "--help")])
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    packages, printed = loaded(*words)
    assert "typer" in packages
    assert "Usage" in printed
    assert not packages & HEAVY


@pytest.mark.parametrize("words", [("--help",), ("accept", "-h"), ("fleet", "plan", "--help")])
def test_help_converts_no_value_and_reads_no_record(words: tuple[str, ...]) -> None:
    packages, printed = loaded(*words)
    assert "Usage" in printed
    assert not packages & {"pydantic", "rfc8785", "rich", "tomllib", "numpy"}


@pytest.mark.parametrize("words", [(), ("accept",), ("fleet", "plan"), ("list",)])
def test_help_is_what_reading_the_whole_line_shows(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main.app([*words, "--help"], prog_name=NAME, standalone_mode=False)
    read = capsys.readouterr().out
    text = program.help_text(typer.main.get_command(main.app), [*words, "--help"])
    assert text is not None
    assert f"{text}\n" == read


@pytest.mark.parametrize("words", [[], ["accept"], ["acept", "--help"], ["accept", "--json", "-h"]])
def test_other_lines_are_read_whole(words: list[str]) -> None:
    assert program.help_text(typer.main.get_command(main.app), words) is None


def test_help_names_every_verb_of_the_flow() -> None:
    _, printed = loaded("--help")
    flow = ("accept", "probe", "plan", "run", "report", "sign", "verify")
    others = ("compare", "selftest", "baseline", "list", "keys", "data", "challenge")
    verbs = (*flow, *others, "start", "doctor")
    assert [verb for verb in verbs if verb not in printed] == []
