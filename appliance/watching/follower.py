"""The journal of a run that goes on, read as it grows.

The file is opened once and read from where the last reading stopped; half a line at its end waits
for its rest. Each line must follow the one before it, as in `storage.journal`: who watches a folder
that somebody else can write to is told so, and is shown nothing made up. Whether the run still goes
on is what the lock of its journal says, which its writer holds also where it works in a container
that has the folder mounted.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from appliance.errors import EvidenceError, UsageError
from appliance.records.journal import Line
from appliance.records.json import from_json, sha256
from appliance.records.plan import Plan
from appliance.storage import bundle, limits
from appliance.storage.plain_files import Folder

PIECE = 2**20


class Follower:
    """An open journal with the plan that it belongs to; made by `at`, closed by its end."""

    def __init__(self, folder: Path, plan: Plan, descriptor: int, head: str) -> None:
        self.folder = folder
        self.plan = plan
        self._descriptor = descriptor
        self._head = head
        self._rest = b""
        self._number = 0
        self._size = 0

    @classmethod
    def at(cls, path: Path) -> Follower:
        """The run in a folder, or the newest of the runs in it.

        Raises UsageError where there is no run, EvidenceError for a file that is not plain or a
        plan that is none.
        """
        try:
            with Folder.at(path) as folder:
                names = folder.names()
                if bundle.PLAN in names:
                    return cls._in(folder, path)
                runs = [name for name in names if _has_plan(folder, name)]
                if not runs:
                    raise UsageError(f"{path} holds no run: name the folder of one, out/<run id>")
                with folder.inner(runs[-1]) as inner:
                    return cls._in(inner, path / runs[-1])
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"{path} cannot be watched ({reason}): name a run's folder") from None

    @classmethod
    def _in(cls, folder: Folder, path: Path) -> Follower:
        try:
            data = folder.read(bundle.PLAN, limits.of_name(bundle.PLAN))
            descriptor = folder.open(bundle.JOURNAL)
        except FileNotFoundError:
            raise UsageError(f"{path} has no journal yet: wait until its run has begun") from None
        except OSError as error:
            raise EvidenceError(f"{path}: {error.filename}: {error.strerror}") from None
        try:
            plan = from_json(Plan, data, name=bundle.PLAN)
        except EvidenceError:
            os.close(descriptor)
            raise
        return cls(path, plan, descriptor, sha256(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def new_lines(self) -> Iterator[Line]:
        """The lines that came since the last time; EvidenceError at one that does not follow."""
        if os.fstat(self._descriptor).st_size < self._size:
            raise EvidenceError(f"{bundle.JOURNAL} became shorter: it is not the one that was read")
        while piece := os.pread(self._descriptor, PIECE, self._size):
            self._size += len(piece)
            *texts, self._rest = (self._rest + piece).split(b"\n")
            yield from map(self._line, texts)
            if len(self._rest) > limits.JOURNAL_LINE:
                size = limits.size_words(limits.JOURNAL_LINE)
                raise EvidenceError(
                    f"{bundle.JOURNAL} line {self._number + 1} has more than {size}"
                )

    def _line(self, text: bytes) -> Line:
        self._number += 1
        name = f"{bundle.JOURNAL} line {self._number}"
        line = from_json(Line, text, name=name)
        if line.prev != self._head or line.seq != self._number - 1:
            raise EvidenceError(f"{name} does not follow the one before it")
        self._head = sha256(text)
        return line

    def is_written(self) -> bool:
        """Whether a process holds the journal to write to it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: nobody can say
            return False
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False


def _has_plan(folder: Folder, name: str) -> bool:
    with suppress(OSError), folder.inner(name) as inner:
        return inner.has(bundle.PLAN)
    return False
