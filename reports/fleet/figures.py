"""Figures and names as the site writes them, and where its pages lie."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reports import words
from reports.words import clean

STATES = ("accepted", "rejected", "open")
SHAPES = {"accepted": "✓", "rejected": "✗", "open": "◆"}
"""A state with its shape, so that a grey copy reads."""
NONE = "not reported"
SHADES = ((0.005, 0), (0.01, 1), (0.02, 2), (0.04, 3))
DARKEST = 4
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")


def percent(value: float | None, digits: int = 1) -> str:
    """0.05 as "+5.0 %", on one line; what rounds to nothing has no sign but plus."""
    if value is None:
        return NONE
    return f"{round(value * 100, digits) + 0.0:+.{digits}f}\u00a0%"


def duration(seconds: float | None) -> str:
    """Seconds with a unit that suits them."""
    return NONE if seconds is None else words.duration(seconds)


def word(value: Any) -> str:
    """Foreign text as a page may show it; what is not there as such."""
    return NONE if value is None else clean(str(value))


def shade(difference: float | None) -> str:
    """Class of a rack's tile: how far it is from the fleet, and on which side."""
    if difference is None:
        return "unknown"
    size = abs(difference)
    level = next((level for most, level in SHADES if size < most), DARKEST)
    side = "slow" if difference > 0 else "fast"
    return f"{side}-{level}" if level else "even"


def slug(name: str) -> str:
    """A file's name for what a bundle or an inventory calls so; two names never have one.

    Some file systems know no case, and "--" parts a name from the number of its page.
    """
    if _SLUG.fullmatch(name) and "--" not in name:
        return name
    return f"x-{sha256(name.encode()).hexdigest()[:16]}"


def place(source: str, page: Path) -> str | None:
    """Where a bundle lies as a page links to it; None for object storage, which no page opens."""
    if "://" in source:
        return source if source.startswith(("https://", "http://")) else None
    return quote(os.path.relpath(source, page.parent))
