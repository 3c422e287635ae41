"""A short form as a QR code: in the terminal for a camera, as a picture, and as fields."""

from __future__ import annotations

import io
from pathlib import Path

import segno

from appliance.errors import OutputError
from appliance.storage import plain_files


def printed(text: str) -> str:
    """The code in half blocks of characters, light on dark."""
    out = io.StringIO()
    segno.make(text, micro=False).terminal(out, compact=True)
    return out.getvalue().rstrip("\n")


def modules(text: str) -> tuple[tuple[bool, ...], ...]:
    """The code as rows of fields, True where dark, without the quiet zone around it."""
    return tuple(tuple(map(bool, row)) for row in segno.make(text, micro=False, error="m").matrix)


def save(text: str, path: Path) -> None:
    """Write the code as a PNG; OutputError if it cannot be written."""
    out = io.BytesIO()
    segno.make(text, micro=False).save(out, kind="png", scale=6)
    try:
        plain_files.replace(path, out.getvalue())
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None
