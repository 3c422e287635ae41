"""Plain files, opened and written so that neither a link nor a device takes their place.

A run's folder may have been written by somebody else: a container, a vendor, whoever signed it. A
name in it may be a link to a file of the reader's own, a FIFO that nobody writes to, or a device
without an end. Nothing here follows a link in the last part of a path or waits for a writer, and a
file is written under a name that nobody can know before it takes its place.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".unfinished-"
"""Begin of the name of a file that is being written."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def opened(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """A descriptor of the plain file at `path`, which the caller closes.

    `follow` a link only where a person named the file. Raises OSError, with EINVAL for what is no
    plain file (a link where none is followed), EISDIR for a folder.
    """
    # Without waiting: a FIFO would keep the reader until somebody writes to it.
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a socket
            raise _no_plain_file(path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        is_folder = stat.S_ISDIR(mode)
        raise _error(errno.EISDIR, path) if is_folder else _no_plain_file(path)
    return descriptor


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _no_plain_file(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a plain file", str(path))


def replace(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old or the whole new one is there.

    Whatever had its name is replaced and not written through, a link too. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, FOLDER_FLAGS)
    unfinished = f"{UNFINISHED}{secrets.token_hex(8)}-{path.name}"
    try:
        _remove_unfinished(folder, path.name)
        _write_new(unfinished, data, folder)
        os.replace(unfinished, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)  # makes the new name durable, not only the content
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise
    finally:
        os.close(folder)


def _write_new(name: str, data: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _remove_unfinished(folder: int, name: str) -> None:
    """Remove what a writer of this file left when it was killed; the link, where it is one."""
    for entry in os.listdir(folder):
        if entry.startswith(UNFINISHED) and entry.endswith(name):
            with suppress(OSError):
                os.unlink(entry, dir_fd=folder)
