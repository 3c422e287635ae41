"""What a verb prints: text for people on stderr, one JSON document on stdout.

Every text for people goes through `foreign_text`, as most of it has words of somebody else.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer

from appliance.errors import OutputError
from appliance.foreign_text import lines, one_line

NAME = "bench"
_UNIT = r"(?:%|[mµn]?s|min|h|d|[kMGT]i?B|[kMGT]?Hz|W|columns?|MiB|x)(?![\w/])"
_WORD = re.compile(
    rf"(?:`[^`]*`|(?<=\d) (?={_UNIT})|(?:(?<=\d h)|(?<=\d min)) (?=\d+ {_UNIT})|[^\s`])+|`"
)
"""A word, words in backticks with what stands close to them, or a quantity with its unit."""
_SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")
HANGING = "    "
"""Before the later lines of a command that has several."""


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
    """One sentence for a person; on a terminal its lines end between words."""
    text = one_line(pasteable(text))
    with suppress(OSError):  # no terminal; one that has no size says 0
        if width := os.get_terminal_size(sys.stderr.fileno()).columns:
            text = in_lines(text, width)
    with suppress(BrokenPipeError):  # nobody reads it, and the verb has a code of its own
        typer.echo(text, err=True)


def in_lines(text: str, width: int) -> str:
    """A sentence in lines of a terminal, with each command in backticks whole, to be pasted."""
    done, line = [], ""
    for word in _WORD.findall(text):
        if line and len(line) + 1 + len(word) > width:
            done.append(line)
            line = ""
        *above, line = continued(f"{line} {word}" if line else word, width).split("\n")
        done += above
    return "\n".join([*done, line])


def hanging(text: str, width: int, indent: int) -> str:
    """The same with all lines but the first `indent` columns to the right."""
    return in_lines(text, width - indent).replace("\n", "\n" + " " * indent)


def continued(text: str, width: int) -> str:
    """A command in as many lines as the width asks for, which a shell takes as one when pasted.

    A text that fits is left as it is, and so is a word that is longer than a line.
    """
    if len(text) <= width or " " not in text:
        return text
    room, (first, *words) = width - len(" \\"), _SHELL_WORD.findall(text)
    lines = [first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > room:
            lines.append(HANGING + word)
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def say_lines(text: str) -> None:
    """Several lines for a person, all of which are the program's own."""
    with suppress(BrokenPipeError):
        typer.echo(lines(text), err=True)


def print_json(document: object) -> None:
    """The one document of a verb that was called with --json."""
    answer(json.dumps(document, indent=2))


def answer(text: str, *, ends_line: bool = True) -> None:
    """Text on stdout; OutputError where it does not take it, as a file on a full disk.

    A reader that has gone, as `head` does, is told nothing.
    """
    try:
        typer.echo(text, nl=ends_line)
        if sys.stdout is not None:  # closed by whoever called
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
        raise typer.Exit(OutputError.exit_code) from None
    except OSError as error:
        _leave_stdout()
        raise OutputError(
            f"the answer cannot be written to stdout ({error.strerror}): make room where it goes, "
            "and call this again"
        ) from None


def _leave_stdout() -> None:
    """Send what stdout did not take nowhere, or the interpreter fails over it as it ends."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


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
