"""Files that a person names on the command line: read whole, but not without end.

A criteria file, an order or a certificate is small, and somebody else may have written it. What is
not small, a disk image named by mistake, would fill the memory of the machine that is to be judged;
a FIFO would keep it waiting, and a device may do something when it is opened.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from appliance.errors import UsageError
from appliance.storage import limits, plain_files

LARGEST = 2**26
"""Bytes; far above any baseline of a whole fleet."""
CAPS = {
    ".toml": limits.TOML,
    ".pem": limits.TRUSTED,
    ".crt": limits.TRUSTED,
    ".cer": limits.TRUSTED,
}
"""Of files whose kind their name says; the kind that a verb wants may have less."""


def read(
    path: Path, *, what: str = "", fix: str = "", follow: bool = True, most: int | None = None
) -> bytes:
    """Bytes of the file; `what` it is and the `fix` go into the sentence of a UsageError.

    UsageError if it is no plain file, cannot be read, or has more bytes than a file of this name
    may have, or than `most`. `follow` a link only where a person named it, and not where it lies
    in a folder.
    """
    name = f"{what} {path}" if what else f"{path}"
    most = CAPS.get(path.suffix, LARGEST) if most is None else most
    try:
        return plain_files.read(path, most, follow=follow)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(
                f"{name} has more than {limits.size_words(most)}, which no such file has: "
                f"{fix or 'name another'}"
            ) from None
        reason = error.strerror or os.strerror(error.errno or 0)
        raise UsageError(f"{name} cannot be read ({reason}); {fix or advice(error)}") from None


def advice(error: OSError) -> str:
    """What to do about a file that cannot be read."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "give read permission"
    if error.errno == errno.EISDIR:
        return "name a file in it"
    return "name a file that is there"


def read_if(path: Path | None, *, fix: str = "") -> bytes | None:
    """Bytes of the file that may have been named, None where none was; errors as of `read`."""
    return None if path is None else read(path, fix=fix)
