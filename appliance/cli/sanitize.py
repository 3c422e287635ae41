"""Foreign text as a terminal may show it: nothing that hides, reorders or commands.

What a driver, a library, an order or a bundle of somebody else says is printed on the terminal of
whoever verifies. A control character in it could wipe out the line that says NOT VERIFIED, and a
bidirectional one could reverse a figure. So every text for people goes through here.
"""

from __future__ import annotations

LONGEST = 20_000
"""Characters of one text that are shown; the bundle and `--json` have the rest."""


def harmless(text: str) -> str:
    """The text with every character that cannot be seen as [U+001B]; its lines stay."""
    rest = len(text) - LONGEST
    shown = "".join(map(_shown, text[:LONGEST]))
    return f"{shown} ... ({rest:,} more characters)" if rest > 0 else shown


def _shown(character: str) -> str:
    is_plain = character.isprintable() or character in "\n\t"
    return character if is_plain else f"[U+{ord(character):04X}]"
