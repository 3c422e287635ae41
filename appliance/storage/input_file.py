"""Files that a person names on the command line: read whole, but not without end.

A criteria file, an order or a certificate is small. What is not, a device node or a disk image
named by mistake, would fill the memory of the machine that is to be judged.
"""

from __future__ import annotations

from pathlib import Path

from appliance.errors import UsageError

LARGEST = 2**26
"""Bytes; far above any baseline of a whole fleet."""


def read(path: Path, *, what: str = "", fix: str = "") -> bytes:
    """Bytes of the file; `what` it is and the `fix` go into the sentence of a UsageError.

    UsageError if it cannot be read or has more than `LARGEST` bytes.
    """
    name = f"{what} {path}" if what else f"{path}"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        advice = f"; {fix}" if fix else ""
        raise UsageError(f"{name} cannot be read ({error.strerror}){advice}") from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{name} has more than {LARGEST >> 20} MiB, which no such file has: "
            f"{fix or 'name another'}"
        )
    return data


def read_if(path: Path | None, *, fix: str = "") -> bytes | None:
    """Bytes of the file that may have been named, None where none was; errors as of `read`."""
    return None if path is None else read(path, fix=fix)
