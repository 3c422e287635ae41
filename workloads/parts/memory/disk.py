"""A file of known content on a disk, read past the memory that caches it.

The content follows from a seed and the place in the file alone (SplitMix64 of Steele, Lea and
Flood 2014 of the number of each 64-bit word), so what was read is checked without keeping it. The
file has no name from the start on: however the process ends, its room is free again.

Reading goes past the page cache (O_DIRECT) into memory that begins on a page. Where the file
system refuses that, each block is dropped from the cache after it was read, and `how` says so.
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
from numpy.typing import NDArray

from workloads.contract.failures import ParameterError, Unsupported

PAGE = 4096
WORD = 8
ROOM = 1.05  # of the file's size, that must be free
_PIECE = 2**20  # words written at once
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MOUNTS = Path("/proc/self/mountinfo")

Words = NDArray[np.uint64]


def content(seed: int, numbers: Words) -> Words:
    """The words of a file at these places, counted in words."""
    mixed = (numbers + np.uint64(1)) * np.uint64(_STEP) + np.uint64(seed % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
    return mixed ^ (mixed >> np.uint64(31))


def blocks_content(seed: int, offsets: Sequence[int], block_bytes: int) -> torch.Tensor:
    """What blocks at these offsets in bytes hold, one after another: int64, (words,)."""
    inside = np.arange(block_bytes // WORD, dtype=np.uint64)
    begins = np.asarray(offsets, dtype=np.uint64)[:, None] // np.uint64(WORD)
    return torch.from_numpy(content(seed, begins + inside).view(np.int64).ravel())


@dataclass(kw_only=True)
class NamelessFile:
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


def make_file(folder: str, num_bytes: int, seed: int) -> NamelessFile:
    """A file of so many bytes in this folder, written out, and gone once it is closed.

    Raises ParameterError where the folder cannot be written, Unsupported where it lacks room.
    """
    place = Path(folder or tempfile.gettempdir())
    try:
        disk = os.statvfs(place)
        free = disk.f_bavail * disk.f_frsize
        if free < ROOM * num_bytes:
            raise Unsupported(
                f"{place} has {free / 1e9:.1f} GB free, and a file of {num_bytes / 1e9:.1f} GB "
                "is to be read there"
            )
        number, name = tempfile.mkstemp(dir=place)
    except OSError as error:
        raise ParameterError(f"folder {place} cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(number, "wb") as file:
            _write(file, num_bytes, seed)
        return _opened(Path(name), _file_system(place.resolve()))
    finally:
        Path(name).unlink()


def _write(file: BinaryIO, num_bytes: int, seed: int) -> None:
    """The content, on the disk and no longer in the cache."""
    for begin in range(0, num_bytes // WORD, _PIECE):
        end = min(begin + _PIECE, num_bytes // WORD)
        file.write(content(seed, np.arange(begin, end, dtype=np.uint64)).data)
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _opened(path: Path, file_system: str) -> NamelessFile:
    """Past the page cache where the file system allows it, as one read shows."""
    direct = os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC
    with suppress(OSError):
        past = NamelessFile(
            number=os.open(path, direct), is_direct=True, how=f"{file_system}, past the page cache"
        )
        with mmap.mmap(-1, PAGE) as page:
            os.preadv(past.number, [page], 0)
        return past
    usual = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(usual, 0, 0, os.POSIX_FADV_RANDOM)
    how = f"{file_system}, which refuses O_DIRECT: dropped from the page cache"
    return NamelessFile(number=usual, is_direct=False, how=how)


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

    file: NamelessFile
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


def reader(file: NamelessFile, *, num_blocks: int, block_bytes: int, threads: int) -> Reader:
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
