"""The page of a comparison as one HTML file; nothing is signed and nothing carried."""

from __future__ import annotations

from reports import render
from reports.comparing.page import Page


def html(page: Page) -> bytes:
    """The page as a file that stands alone, like that of a report."""
    return render.environment().get_template("comparison.html").render(page=page).encode()
