"""The console for people: text as it is, on one line, without markup or control characters.

Colours follow NO_COLOR.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from appliance.cli.output import hanging, pasteable
from appliance.foreign_text import one_line

LOG_WIDTH = 140


class Plain(Console):
    """A console that shows texts as they are: no markup, no emoji, no control character."""

    def __init__(self, *, is_error: bool) -> None:
        super().__init__(stderr=is_error, highlight=False, soft_wrap=True, emoji=False)
        self.soft_wrap = not self.is_terminal  # on one, lines end between words

    def print(self, *objects: Any, **options: Any) -> None:
        """A text in lines that end between words, where a person reads it."""
        first = objects[0] if len(objects) == 1 else None
        if self.is_terminal and isinstance(first, str) and not options.get("soft_wrap"):
            objects = (Text(self._lines(first), style=options.pop("style", "")),)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Nobody reads any more: the verb goes on in silence, and ends with a code of its own.

        The library's own way ends the process with 1, which means REJECTED.
        """
        self.quiet = True
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())

    def _lines(self, text: str) -> str:
        """A text in lines, below its own indentation; columns that it has stay apart."""
        text = one_line(pasteable(text))
        sentence = text.lstrip(" ")
        indent = len(text) - len(sentence)
        if len(text) <= self.width or "  " in sentence:
            return text
        return " " * indent + hanging(sentence, self.width, indent)

    def render_str(self, text: str, **options: Any) -> Text:
        """What every text comes through: lines and cells of tables alike."""
        options = {**options, "markup": bool(options.get("markup"))}
        return super().render_str(one_line(text), **options)


def console(*, is_error: bool = True) -> Console:
    """Where text for people goes; in a log, tables keep their columns."""
    out = Plain(is_error=is_error)
    if not out.is_terminal:
        out.width = LOG_WIDTH
    elif out.is_dumb_terminal:  # of which rich asks no size
        out.width = shutil.get_terminal_size().columns
    return out


@contextmanager
def working(sentence: str) -> Iterator[None]:
    """What a verb is at, on a terminal and until it is done; a log gets nothing."""
    out = console()
    if not out.is_terminal:
        yield
        return
    text = one_line(sentence)
    if out.is_dumb_terminal:  # where nothing moves
        out.print(text)
        yield
        return
    # Shown as it begins: the status of rich waits for a thread, which imports keep from running.
    with Live(Spinner("line", text=text), console=out, transient=True):
        yield
