"""Every help ends with command lines that the program takes, and with its exit codes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from support.program import ROOT

from appliance.cli import help_texts, program
from appliance.cli.main import app

MAIN = typer.main.get_command(app)


def verbs(command: Any = MAIN, *words: str) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, *words, name)
    if words and not hasattr(command, "commands"):
        yield " ".join(words), command


VERBS = dict(verbs())
HELPS = [*(tuple(name.split()) for name in VERBS), (), ("fleet",), ("challenge",)]


def test_each_verb_has_examples_and_codes_of_a_verb_that_there_is() -> None:
    assert set(help_texts.EXAMPLES) == set(VERBS)
    assert set(help_texts.EXIT_CODES) <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_examples_are_command_lines_of_their_verb(verb: str) -> None:
    for line, _ in help_texts.EXAMPLES[verb]:
        name, *words = shlex.split(line)
        assert (name, words[: len(verb.split())]) == ("bench", verb.split())
        VERBS[verb].make_context(verb.rsplit(maxsplit=1)[-1], words[len(verb.split()) :])


def test_exit_codes_are_those_of_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "verbs.md").read_text()
    known = set(re.findall(r"^\| ([0-9]+) \|", page, re.MULTILINE))
    for verb in VERBS:
        assert {code for code, _ in help_texts.exit_codes(verb)} <= known


def _inner(words: tuple[str, ...]) -> dict[str, Any]:
    command: Any = MAIN
    for word in words:
        command = command.commands[word]
    return getattr(command, "commands", {})


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("words", HELPS)
def test_help_is_no_wider_than_its_terminal_and_cuts_nothing(
    words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = program.help_text(MAIN, [*words, "-h"]) or ""
    summaries = [one.short_help or one.help for one in _inner(words).values()]
    assert [one for one in summaries if one.split("\n\n")[0] not in " ".join(text.split())] == []
    assert all(len(line) <= width for line in text.splitlines())
    assert program.WHOLE not in text
    assert width < 80 or re.findall(r"\w-$", text, re.MULTILINE) == []
    assert re.findall(r"x>=|<=x|<str>|\{", text) == []
