"""The console for people: text as it is, on one line, without markup or control characters.

Colours follow NO_COLOR.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from appliance.foreign_text import one_line

LOG_WIDTH = 140


class Plain(Console):
    """A console that shows texts as they are: no markup, no emoji, no control character."""

    def __init__(self, *, is_error: bool) -> None:
        super().__init__(stderr=is_error, highlight=False, soft_wrap=True, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """What every text comes through: lines and cells of tables alike."""
        options = {**options, "markup": bool(options.get("markup"))}
        return super().render_str(one_line(text), **options)


def console(*, is_error: bool = True) -> Console:
    """Where text for people goes; in a log, tables keep their columns."""
    out = Plain(is_error=is_error)
    if not out.is_terminal:
        out.width = LOG_WIDTH
    return out
