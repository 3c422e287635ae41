"""A file of known content on a disk, read past the memory that caches it.

The content follows from a seed and the place in the file alone (`appliance/generator/words.py`), so
what was read is checked without keeping it. A file that is one process's own has no name from the
start on: however the process ends, its room is free again. One that the launches of a case share
is written by the first of them, which notes its size, inode and times in a file beside it; the
others compare these, and drawn pages with the words that the seed makes of them.

Reading goes past the page cache (O_DIRECT) into memory that begins on a page. Where the file
system refuses that, each block is dropped from the cache after it was read, and `how` says so. So
no launch leaves pages of the file in the memory of the host, and each drops what is there before it
reads. What a disk or a hypervisor caches by itself, nothing that reads can go past.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from appliance.errors import ApplianceError
from appliance.generator.words import FILE, PAGE, WORD, content, digest_of, sampled_pages
from workloads.contract.failures import ParameterError, Unsupported
from workloads.contract.target import Artifacts

ROOM = 1.05  # of the file's size, that must be free
_PIECE = 2**20  # words written at once
_MOUNTS = Path("/proc/self/mountinfo")


def blocks_content(seed: int, offsets: Sequence[int], block_bytes: int) -> torch.Tensor:
    """What blocks at these offsets in bytes hold, one after another: int64, (words,)."""
    inside = np.arange(block_bytes // WORD, dtype=np.uint64)
    begins = np.asarray(offsets, dtype=np.uint64)[:, None] // np.uint64(WORD)
    return torch.from_numpy(content(seed, begins + inside).view(np.int64).ravel())


@dataclass(kw_only=True)
class OpenFile:
    """A file that is open as `number`; `how` says what it lies on and how it is read."""

    number: int
    is_direct: bool
    how: str

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.number)

    def read(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer from this place; OSError where the file gives less."""
        got = os.preadv(self.number, [buffer], offset)
        if got != len(buffer):
            raise OSError(f"the disk gave {got} of {len(buffer)} bytes")
        if not self.is_direct:
            os.posix_fadvise(self.number, offset, got, os.POSIX_FADV_DONTNEED)


def make_file(folder: str, num_bytes: int, seed: int) -> OpenFile:
    """A file of so many bytes in this folder, written out, and gone once it is closed.

    Raises ParameterError where the folder cannot be written, Unsupported where it lacks room.
    """
    place = Path(folder or tempfile.gettempdir())
    try:
        _check_room(place, num_bytes)
        number, name = tempfile.mkstemp(dir=place)
    except OSError as error:
        raise ParameterError(f"folder {place} cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(number, "wb") as file:
            _write(file, num_bytes, seed)
        return _opened(Path(name))
    finally:
        Path(name).unlink()


def shared_file(artifacts: Artifacts, num_bytes: int, seed: int) -> OpenFile:
    """The file that a case's untimed launch writes and its others read.

    Raises Unsupported where there is no room for it, ApplianceError where it is not what was
    written.
    """
    path = artifacts.once(
        FILE,
        lambda path: _write_at(path, num_bytes, seed),
        lambda path: _digest(path, num_bytes, seed),
    )
    return _opened(path)


def _check_room(place: Path, num_bytes: int) -> None:
    """Raises Unsupported where a folder lacks room for a file of so many bytes."""
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    if free < ROOM * num_bytes:
        raise Unsupported(
            f"{place} has {free / 1e9:.1f} GB free, and a file of {num_bytes / 1e9:.1f} GB "
            "is to be read there"
        )


def _write_at(path: Path, num_bytes: int, seed: int) -> None:
    """Write the file, and note beside it what it is known by once it has its own name."""
    path.unlink(missing_ok=True)  # of a process that was cut short
    _check_room(path.parent, num_bytes)
    try:
        with path.open("wb") as file:
            _write(file, num_bytes, seed)
            _noted(path.with_name(FILE)).write_text(_stamp(file.fileno()))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _digest(path: Path, num_bytes: int, seed: int) -> str:
    """SHA-256 of the pages that the seed draws, as they lie on the disk.

    Raises ApplianceError where size, inode or time are not what was noted.
    """
    file = _opened(path)
    noted = _noted(path)
    if not noted.exists() or noted.read_text() != _stamp(file.number):
        message = f"{path.name} was written again or moved since this run's untimed launch made it"
        raise ApplianceError(f"{message}: run it again")
    with mmap.mmap(-1, PAGE) as page:

        def read(number: int) -> bytes:
            with memoryview(page) as buffer:
                file.read(buffer, number * PAGE)
                return bytes(buffer)

        return digest_of(map(read, sampled_pages(seed, num_bytes)))


def _noted(path: Path) -> Path:
    return path.with_name(f"{FILE}.stamp")


def _stamp(number: int) -> str:
    """What an open file is known by: size, inode and the time when its content was last written."""
    known = os.fstat(number)
    return f"{known.st_size} {known.st_dev} {known.st_ino} {known.st_mtime_ns}"


def _write(file: BinaryIO, num_bytes: int, seed: int) -> None:
    """The content, on the disk and no longer in the cache."""
    for begin in range(0, num_bytes // WORD, _PIECE):
        end = min(begin + _PIECE, num_bytes // WORD)
        file.write(content(seed, np.arange(begin, end, dtype=np.uint64)).data)
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _opened(path: Path) -> OpenFile:
    """Past the page cache where the file system allows it, as one read shows.

    What of it lies in the page cache is dropped.
    """
    file_system = _file_system(path.parent.resolve())
    direct = os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC
    with suppress(OSError):
        past = OpenFile(
            number=os.open(path, direct), is_direct=True, how=f"{file_system}, past the page cache"
        )
        with mmap.mmap(-1, PAGE) as page:
            os.preadv(past.number, [page], 0)
        os.posix_fadvise(past.number, 0, 0, os.POSIX_FADV_DONTNEED)
        return past
    usual = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(usual, 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(usual, 0, 0, os.POSIX_FADV_DONTNEED)
    how = f"{file_system}, which refuses O_DIRECT: dropped from the page cache"
    return OpenFile(number=usual, is_direct=False, how=how)


def _file_system(place: Path) -> str:
    """Type of the file system that a folder lies on; empty words where the kernel hides it."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return "a file system that is not told"
    types = {}
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")
        if place.is_relative_to(mount):
            types[len(mount)] = right.split()[0]  # a later mount hides an earlier one
    return types[max(types)] if types else "a file system that is not told"


@dataclass(kw_only=True)
class Reader:
    """Reads blocks of a file into one buffer, several at a time."""

    file: OpenFile
    buffer: torch.Tensor
    blocks: list[memoryview]
    pool: ThreadPoolExecutor
    threads: int

    def read(self, offsets: Sequence[int]) -> torch.Tensor:
        """The blocks at these offsets, one after another in the buffer: int64, (words,)."""

        def share(first: int) -> None:
            for place in range(first, len(offsets), self.threads):
                self.file.read(self.blocks[place], offsets[place])

        for _ in self.pool.map(share, range(self.threads)):
            pass  # a read that failed is raised here
        return self.buffer


def reader(file: OpenFile, *, num_blocks: int, block_bytes: int, threads: int) -> Reader:
    """A reader with a buffer of so many blocks, which begins on a page."""
    memory = mmap.mmap(-1, num_blocks * block_bytes)
    whole = memoryview(memory)
    return Reader(
        file=file,
        buffer=torch.frombuffer(memory, dtype=torch.int64),
        blocks=[whole[n * block_bytes : (n + 1) * block_bytes] for n in range(num_blocks)],
        pool=ThreadPoolExecutor(threads),
        threads=threads,
    )
