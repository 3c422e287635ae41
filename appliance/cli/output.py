"""What a verb prints: text for people on stderr, one JSON document on stdout."""

from __future__ import annotations

import json

import typer

from appliance.cli.sanitize import harmless


def say(text: str) -> None:
    """One sentence for a person."""
    typer.echo(harmless(text), err=True)


def print_json(document: object) -> None:
    """The one document of a verb that was called with --json."""
    typer.echo(json.dumps(document, indent=2))


def conclude(sentence: str, document: object, *, as_json: bool) -> None:
    """The result of a verb: a sentence, or its document."""
    if as_json:
        print_json(document)
    else:
        say(sentence)
