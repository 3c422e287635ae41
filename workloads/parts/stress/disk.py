"""Stress of a disk: a file without a name, each region read back a lap after it was written.

A turn reads the region that was written longest ago, past the page cache (`parts.memory.disk`),
compares every word with what its place and lap make it, writes the next lap's words over it, and
has the disk confirm them (fdatasync). However its process ends, the file's room is free again.
Writing wears a disk out, so the rate is bounded: 16 MiB a second are 10 TB in a week.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from appliance.generator.words import WORD, Words, content
from appliance.stress.scratch import REGION
from workloads.contract.failures import ParameterError, Unsupported
from workloads.parts.burning.mismatches import Event
from workloads.parts.memory.disk import OpenFile, make_file
from workloads.parts.stress.turns import FEW, Independent, OutOfRoom, Turn, again, difference

RATE = 2**25
"""Bytes a second, of which half are written and half are read."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


@dataclass(kw_only=True)
class Disk(Independent):
    """A file of `regions` regions, what it is written through, and a page-aligned buffer of one."""

    file: OpenFile
    writer: int
    buffer: mmap.mmap
    regions: int
    seed: int
    share: float = 1.0
    rate: float | None = RATE
    number: int = 0
    asked: str = field(init=False)

    def __post_init__(self) -> None:
        self.asked = (
            f"1 thread, {RATE:,} bytes a second at most, half written and half read, over "
            f"{self.regions * REGION:,} bytes on {self.file.how}"
        )

    @classmethod
    def make(cls, *, seed: int, num_bytes: int, folder: str) -> Disk:
        """Write the file, lap 0. Raises OutOfRoom."""
        regions = max(1, num_bytes // REGION)
        try:
            file = make_file(folder, regions * REGION, seed)
        except (ParameterError, Unsupported) as error:
            raise OutOfRoom(str(error)) from None
        except OSError as error:
            raise _named(error, "the file's first words") from None
        path = f"/proc/self/fd/{file.number}"  # of a file that has no name any more
        writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        return cls(
            file=file, writer=writer, buffer=mmap.mmap(-1, REGION), regions=regions, seed=seed
        )

    def turn(self) -> Turn:
        """Read and compare a region, then write it for the next lap."""
        region, lap = self.number % self.regions, self.number // self.regions
        wrong = [*self._compare(region, lap), *self._write(region, lap + 1)]
        self.number += 1
        return Turn(proven=REGION, moved=2 * REGION, wrong=wrong)

    def read(self, region: int) -> Words:
        """A region as the disk gives it: uint64, (words,)."""
        self.file.read(memoryview(self.buffer), region * REGION)
        return np.frombuffer(self.buffer, dtype=np.uint64)

    def expected(self, region: int, lap: int) -> Words:
        """What a region holds since a lap: uint64, (words,)."""
        first = region * (REGION // WORD)
        return content(self.seed + lap, np.arange(first, first + REGION // WORD, dtype=np.uint64))

    def _compare(self, region: int, lap: int) -> Iterator[Event]:
        expected = self.expected(region, lap)
        place = self._wrong_in(region, expected)
        if place:
            times = sum(bool(self._wrong_in(region, expected)) for _ in range(FEW))
            yield again(f"disk, lap {lap + 1:,}, {place}", times)

    def _wrong_in(self, region: int, expected: Words) -> str:
        """What is wrong with a region, or nothing."""
        try:
            read = self.read(region)
        except OSError as error:
            return f"no words from byte {region * REGION:,} on ({error.strerror or error})"
        apart = np.flatnonzero(read != expected)
        if not len(apart):
            return ""
        first = int(apart[0])
        words = difference(int(read[first]), int(expected[first]))
        return f"{len(apart):,} words: {words} at byte {region * REGION + first * WORD:,}"

    def _write(self, region: int, lap: int) -> Iterator[Event]:
        """The words of a lap, on the disk and out of the page cache."""
        data = self.expected(region, lap).data.cast("B")
        offset = region * REGION
        try:
            written = os.pwrite(self.writer, data, offset)
            os.fdatasync(self.writer)
            os.posix_fadvise(self.writer, offset, REGION, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise _named(error, f"byte {offset:,}") from None
            yield again(f"disk, byte {offset:,} on not written ({error.strerror})", FEW)
            return
        if written != REGION:
            yield again(f"disk, {written:,} of {REGION:,} bytes written at byte {offset:,}", FEW)


def _named(error: OSError, what: str) -> OutOfRoom:
    return OutOfRoom(f"the disk refused {what} ({error.strerror})")
