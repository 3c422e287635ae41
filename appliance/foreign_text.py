"""Foreign text as people may be shown it: on one line, with nothing that hides or commands.

What a driver, a library, an order, a certificate or a bundle of somebody else says is printed on
the terminal of whoever verifies, and on pages that others sign. A control character in it could
wipe out the line that says NOT VERIFIED, a line break could add a line of its own, a bidirectional
mark could reverse a figure. So every text for people goes through here before it reaches the
terminal. Pages say it by `reports.words.clean`, which shows no less and knows what their font can
draw; what `--json` prints is ASCII, in which JSON writes all of them as escapes.
"""

from __future__ import annotations

import unicodedata

LONGEST = 20_000
"""Characters of one text that are shown; the bundle and `--json` have the rest."""
SPACE = "Zs"  # Unicode's category of spaces, of which only some have a width of their own


def one_line(text: str) -> str:
    """The text with every character that cannot be seen as [U+001B], and every line break too."""
    if text.isprintable() and len(text) <= LONGEST:
        return text
    rest = len(text) - LONGEST
    shown = "".join(map(_shown, text[:LONGEST]))
    return f"{shown} ... ({rest:,} more characters)" if rest > 0 else shown


def lines(text: str) -> str:
    """Text of several lines that are the program's own, each as `one_line` shows it."""
    return "\n".join(map(one_line, text.split("\n")))


def _shown(character: str) -> str:
    is_plain = character.isprintable() or unicodedata.category(character) == SPACE
    return character if is_plain else f"[U+{ord(character):04X}]"
