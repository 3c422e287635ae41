"""What a verb prints: text for people on stderr, one JSON document on stdout."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer

from appliance.foreign_text import lines, one_line


def say(text: str) -> None:
    """One sentence for a person."""
    typer.echo(one_line(text), err=True)


def say_lines(text: str) -> None:
    """Several lines for a person, all of which are the program's own."""
    typer.echo(lines(text), err=True)


def print_json(document: object) -> None:
    """The one document of a verb that was called with --json."""
    typer.echo(json.dumps(document, indent=2))


def conclude(sentence: str, document: object, *, as_json: bool) -> None:
    """The result of a verb: a sentence, or its document."""
    if as_json:
        print_json(document)
    else:
        say(sentence)


def conclude_lines(lines: Sequence[str], document: object, *, as_json: bool) -> None:
    """The result of a verb in several lines, or its document."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        say(line)
