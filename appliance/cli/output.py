"""What a verb prints: text for people on stderr, one JSON document on stdout.

What a driver, a library, an order or a bundle of somebody else says is printed on the terminal of
whoever verifies. A control character in it could wipe out the line that says NOT VERIFIED, and a
bidirectional one could reverse a figure. So every text for people goes through `harmless`: nothing
that hides, reorders or commands.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import typer

LONGEST = 20_000
"""Characters of one text that are shown; the bundle and `--json` have the rest."""
NAME = "bench"


def harmless(text: str) -> str:
    """The text with every character that cannot be seen as [U+001B]; its lines stay."""
    rest = len(text) - LONGEST
    shown = "".join(map(_shown, text[:LONGEST]))
    return f"{shown} ... ({rest:,} more characters)" if rest > 0 else shown


def _shown(character: str) -> str:
    is_plain = character.isprintable() or character in "\n\t"
    return character if is_plain else f"[U+{ord(character):04X}]"


def program() -> str:
    """How this program was called, if its name alone would not be it: .venv/bin/bench."""
    called = Path(sys.argv[0])
    if called.name != NAME or called == Path(NAME):
        return NAME
    by_name = shutil.which(NAME)
    is_same = by_name is not None and called.exists() and called.samefile(by_name)
    return NAME if is_same else shlex.quote(sys.argv[0])


def command(*words: str) -> str:
    """A command line that works as it is pasted."""
    return " ".join((program(), *map(shlex.quote, words)))


def bench(*words: str) -> str:
    """A command as sentences have it in backticks, which `pasteable` makes work."""
    return " ".join((NAME, *map(shlex.quote, words)))


def pasteable(text: str) -> str:
    """A sentence whose commands in backticks work as they are pasted."""
    return text if program() == NAME else text.replace(f"`{NAME} ", f"`{program()} ")


def say(text: str) -> None:
    """One sentence for a person."""
    typer.echo(harmless(pasteable(text)), err=True)


def print_json(document: object) -> None:
    """The one document of a verb that was called with --json."""
    typer.echo(json.dumps(document, indent=2))


def conclude(sentence: str, document: object, *, as_json: bool) -> None:
    """The result of a verb: a sentence, or its document."""
    if as_json:
        print_json(document)
    else:
        say(sentence)
