"""Plain files, opened and written so that neither a link nor a device takes their place.

A run's folder may have been written by somebody else: a container, a vendor, whoever signed it. A
name in it may be a link to a file of the reader's own, a FIFO that nobody writes to, or a device
without an end, and it may become one at any moment. So a folder is opened once (`Folder`), and
names are looked up in what was opened, wherever its path leads later. Nothing here follows a link
in the last part of a path or waits for a writer, and a file is written under a name that nobody can
know before it takes its place.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from appliance.ipc import confined_child

UNFINISHED = ".unfinished-"
"""Begin of the name of a file that is being written."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = {errno.ELOOP, errno.ENXIO}  # a link; a socket


def opened(
    path: Path | str, flags: int = os.O_RDONLY, *, follow: bool = False, folder: int | None = None
) -> int:
    """A descriptor of the plain file at `path` (in `folder`, an open one), which the caller closes.

    `follow` a link only where a person named the file. What is no plain file is not even opened: a
    device may do something when it is. Raises OSError, with EINVAL for what is no plain file (a
    link where none is followed), EISDIR for a folder.
    """
    _require_plain(os.stat(path, dir_fd=folder, follow_symlinks=follow).st_mode, path)
    # Without waiting: it may have become a FIFO, which keeps the reader until somebody writes to it
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        raise _no_plain_file(path) if error.errno in LINKS else error from None
    try:
        _require_plain(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_plain(mode: int, path: Path | str) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise _no_plain_file(path)


def _no_plain_file(path: Path | str) -> OSError:
    return OSError(errno.EINVAL, "it is not a plain file", str(path))


def read(
    path: Path | str, largest: int, *, follow: bool = False, folder: int | None = None
) -> bytes:
    """Bytes of a plain file; OSError as of `opened`, and EFBIG if it has more than `largest`."""
    with os.fdopen(opened(path, follow=follow, folder=folder), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= largest else b""  # one more: it has grown since
    if size > largest or len(data) > size:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def mapped(path: str, largest: int, *, folder: int) -> mmap.mmap:
    """A plain file as a mapping of it; OSError as of `read`. It must hold something.

    It takes memory only where it is read, and what `forget` is told of takes none any more. Whoever
    shortens the file meanwhile ends the reader (SIGBUS), so only a child may read it.
    """
    descriptor = opened(path, folder=folder)
    try:
        size = os.fstat(descriptor).st_size
        if size > largest:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        confined_child.allow_mapped(size)
        return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def forget(data: bytes | mmap.mmap, begin: int, end: int) -> None:
    """Give back the memory of whole pages of a mapping, which are read again if asked for."""
    if isinstance(data, mmap.mmap):
        first, last = -(-begin // mmap.PAGESIZE), end // mmap.PAGESIZE
        if last > first:
            data.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def room(size: int) -> mmap.mmap:
    """Room for `size` bytes, one at least, outside of memory: a file that has no name.

    It lies in the folder for temporary files, has its blocks from the beginning, and goes when
    nobody maps it any more. Raises OSError, with that folder for its file name, where the folder is
    not there or does not have the room.
    """
    with _unnamed() as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def laid_by(data: bytes) -> mmap.mmap:
    """The same bytes outside of memory, in a file as of `room`, to be read. Raises as `room`."""
    with _unnamed() as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), len(data), prot=mmap.PROT_READ)


@contextmanager
def _unnamed() -> Iterator[IO[bytes]]:
    """A file without a name in the folder for temporary files; OSError names that folder."""
    folder = ""
    try:
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None


def replace(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old or the whole new one is there.

    Whatever had its name is replaced and not written through, a link too. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Folder.at(path.parent) as folder:
        folder.write(path.name, data)


class Folder:
    """A folder that stays open: what is read and written by name is in it and nowhere else."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path

    @classmethod
    def at(cls, path: Path, *, follow: bool = True) -> Folder:
        """The folder at `path`; `follow` a link there only where a person named it.

        Raises OSError, with ENOTDIR for what is no folder.
        """
        return cls(_opened_folder(path, follow=follow), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)

    def inner(self, name: str, *, make: bool = False) -> Folder:
        """A folder in this one, no link; `make` it where it is not there. Raises OSError."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.descriptor)
        return Folder(_opened_folder(name, follow=False, folder=self.descriptor), self.path / name)

    def names(self) -> list[str]:
        """All names in it, sorted, those that begin with a dot too."""
        return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - of a descriptor

    def status(self, name: str) -> os.stat_result:
        """What has the name; of a link, the link. Raises OSError."""
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether anything has the name, a link without a goal too."""
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, largest: int) -> bytes:
        """Bytes of a plain file in it; OSError as of `opened`, EFBIG beyond `largest`."""
        return read(name, largest, folder=self.descriptor)

    def map(self, name: str, largest: int) -> mmap.mmap:
        """A plain file in it as `mapped`."""
        return mapped(name, largest, folder=self.descriptor)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of a plain file in it, as `opened`."""
        return opened(name, flags, folder=self.descriptor)

    def create(self, name: str, mode: int = 0o666) -> int:
        """A descriptor of a new file, for writing; FileExistsError if anything has the name."""
        return os.open(name, NEW, mode, dir_fd=self.descriptor)

    def write(self, name: str, data: bytes, mode: int = 0o666) -> None:
        """Write a file as `replace` does. Raises OSError."""
        unfinished = f"{UNFINISHED}{secrets.token_hex(8)}-{name}"
        try:
            self._remove_unfinished(name)
            with os.fdopen(self.create(unfinished, mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.rename(unfinished, name)
            os.fsync(self.descriptor)  # makes the new name durable, not only the content
        except OSError:
            with suppress(OSError):
                self.unlink(unfinished)
            raise

    def rename(self, source: str, goal: str) -> None:
        """Put a file in the place of whatever has the name `goal`, which is not followed."""
        os.replace(source, goal, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        """Remove a name, of a link the link. Raises OSError."""
        os.unlink(name, dir_fd=self.descriptor)

    def _remove_unfinished(self, name: str) -> None:
        """Remove what a writer of this file left when it was killed; the link, where it is one."""
        for entry in self.names():
            if entry.startswith(UNFINISHED) and entry.endswith(f"-{name}"):
                with suppress(OSError):
                    self.unlink(entry)


def _opened_folder(path: Path | str, *, follow: bool, folder: int | None = None) -> int:
    try:
        return os.open(path, FOLDER_FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            message = "it is a link"
            raise OSError(errno.ENOTDIR, message, str(path)) from None
        raise
