"""The journal: append-only JSON lines, each chained to the one before; the only raw evidence.

Each line is one `Line` record in canonical JSON, ended by a newline. Its `prev` is the sha256
of the line before it, without the newline; the first line's is the sha256 of plan.json, so a
journal belongs to one plan. Lines reach the kernel when they are appended, and the disk when
a launch ends, so a power cut loses at most the launch that was running. A journal has one
writer: it is locked while open, because two would break each other's chain.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from appliance.errors import EvidenceError, OutputError
from appliance.ipc import confined_reader
from appliance.records.journal import Event, Line, RunResumed, RunStarted, SessionBegan
from appliance.records.json import from_json, sha256, to_json
from appliance.storage import limits, plain_files

FORGOTTEN_BYTES = 2**22
CHECKED_PASSES = 4
"""How often lines are gone through where they are read, walked through and judged."""


class Digest(Protocol):
    """A hash that takes bytes."""

    def update(self, data: bytes, /) -> None: ...


Rewrite = Callable[[Event], Event]
"""What changes an event before it becomes a line."""
Reader = Callable[[Line], None]
"""What takes each line, in the journal's order."""
Checker = Callable[[tuple[Line, ...]], None]
"""What raises EvidenceError for lines that no run has written."""


@dataclass(frozen=True)
class Clock:
    """Where a line's two times come from; tests give their own."""

    utc: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic_ns: Callable[[], int] = time.monotonic_ns


class Journal:
    """An open journal. Made by `create` or `reopen`; one writer, the runner."""

    def __init__(
        self,
        path: Path,
        descriptor: int,
        lines: list[Line],
        head: str,
        clock: Clock,
        *,
        rewrite: Rewrite | None = None,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._lines = lines
        self._head = head
        self._clock = clock
        self._rewrite = rewrite
        self._readers: list[Reader] = []

    @classmethod
    def create(
        cls,
        path: Path,
        first_prev: str,
        clock: Clock | None = None,
        *,
        rewrite: Rewrite | None = None,
    ) -> Journal:
        """Start a journal at `path`; OutputError if there is one already or none can be made.

        `rewrite` changes every event before it becomes a line.
        """
        try:
            descriptor = os.open(path, plain_files.NEW | os.O_APPEND, 0o644)
        except FileExistsError:
            raise OutputError(f"{path} exists already; name a folder that does not exist") from None
        except OSError as error:
            raise _not_written(path, error) from None
        _lock(path, descriptor)
        return cls(path, descriptor, [], first_prev, clock or Clock(), rewrite=rewrite)

    @classmethod
    def reopen(
        cls,
        path: Path,
        first_prev: str,
        clock: Clock | None = None,
        *,
        rewrite: Rewrite | None = None,
        check: Checker | None = None,
    ) -> tuple[Journal, tuple[Line, ...], str]:
        """Open a journal to go on with it: the journal, its lines, and an unfinished last line.

        A writer that was killed may leave half a line. It was never a record, so it is cut off
        here and handed back, for the caller to keep in its `RunResumed`. A confined child reads
        the lines first, and makes the `check` of what they say, each without its place. Raises
        EvidenceError, and changes nothing, if a whole line is not as it was written or the child
        did not survive that; OutputError if the run still goes on.
        """
        try:
            descriptor = plain_files.opened(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise EvidenceError(
                f"{path} is missing, so there is no run to go on with: start a new one"
            ) from None
        except OSError as error:
            raise _not_written(path, error) from None
        _lock(path, descriptor)
        try:
            _require_own(path, descriptor)
            data = _content(path, descriptor)
            whole = data[: data.rfind(b"\n") + 1]
            _rehearse(path, whole, first_prev, check)
            lines = replay(whole, first_prev)
            os.ftruncate(descriptor, len(whole))
        except OSError as error:
            os.close(descriptor)
            raise _not_written(path, error) from None
        except EvidenceError:
            os.close(descriptor)
            raise
        head = sha256(whole.split(b"\n")[-2]) if lines else first_prev
        journal = cls(path, descriptor, list(lines), head, clock or Clock(), rewrite=rewrite)
        return journal, lines, data[len(whole) :].decode("utf-8", "replace")

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines so far, those of an earlier writer included."""
        return tuple(self._lines)

    def now_ns(self) -> int:
        """The clock of its lines."""
        return self._clock.monotonic_ns()

    def follow(self, reader: Reader) -> None:
        """Give `reader` every line so far, and each later one as soon as it is written."""
        for line in self._lines:
            reader(line)
        self._readers.append(reader)

    def append(self, event: Event, *, sync: bool = False) -> Line:
        """Write one event; with `sync`, wait until the disk has it. OutputError if it cannot."""
        line = Line(
            seq=len(self._lines),
            utc=as_written(self._clock.utc()),
            monotonic_ns=self._clock.monotonic_ns(),
            prev=self._head,
            event=event if self._rewrite is None else self._rewrite(event),
        )
        text = to_json(line)
        try:
            self._write(text + b"\n")
            self._lines.append(line)
            self._head = sha256(text)
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            raise _not_written(self._path, error) from None
        for reader in self._readers:
            reader(line)
        return line

    def _write(self, data: bytes) -> None:
        """Write all of it or, on a full disk, take the half line back before raising."""
        begin = os.fstat(self._descriptor).st_size
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except OSError:
            os.ftruncate(self._descriptor, begin)
            raise

    def close(self) -> None:
        os.close(self._descriptor)


def as_written(moment: datetime) -> str:
    """A time as lines have it: in UTC, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def replay(data: bytes, first_prev: str) -> tuple[Line, ...]:
    """Lines of a journal, with the chain, the numbering and the clock checked.

    Raises EvidenceError naming the first line that is cut short, edited, missing or moved.
    """
    return tuple(followed(data, first_prev))


def followed(data: bytes, first_prev: str, digest: Digest | None = None) -> Iterator[Line]:
    """As `replay`, one line after another; what was read of a mapping is given back.

    `digest` takes all bytes as they were read.
    """
    if data and data[-1:] != b"\n":
        number = sum(1 for _ in _texts(data)) + 1
        raise EvidenceError(
            f"journal.jsonl line {number} is cut short; ask for the whole bundle, or resume the run"
        )
    prev, last_ns = first_prev, -1
    for number, text in enumerate(_texts(data), 1):
        if len(text) > limits.JOURNAL_LINE:
            size = limits.size_words(limits.JOURNAL_LINE)
            raise EvidenceError(f"journal.jsonl line {number} has more than {size}")
        if digest is not None:
            digest.update(text + b"\n")
        line = from_json(Line, text, name=f"journal.jsonl line {number}")
        if line.prev != prev:
            before = "plan.json" if number == 1 else f"line {number - 1}"
            raise EvidenceError(
                f"journal.jsonl line {number} does not follow {before}: a line was edited, "
                "removed or moved; ask for the bundle as it was written"
            )
        if line.seq != number - 1:
            raise EvidenceError(f"journal.jsonl line {number} carries the number {line.seq}")
        if isinstance(line.event, RunStarted | RunResumed | SessionBegan):
            last_ns = -1  # another boot may count from zero
        if len(line.utc) != LENGTH_OF_TIME or not _is_time(line.utc):
            raise EvidenceError(f"journal.jsonl line {number}: {line.utc!r} is no time in UTC")
        if line.monotonic_ns < last_ns:
            raise EvidenceError(f"journal.jsonl line {number}: its clock runs backwards")
        prev, last_ns = sha256(text), line.monotonic_ns
        yield line


def without_place(line: Line) -> Line:
    """The same line once its place was checked, which takes a quarter of its memory.

    Its number is 0 then, and it names no line before it.
    """
    return Line(seq=0, utc=line.utc, monotonic_ns=line.monotonic_ns, prev="", event=line.event)


def _texts(data: bytes) -> Iterator[bytes]:
    """Lines without their ends, one at a time: a copy of all of them would double the memory."""
    begin = last = 0
    while (end := data.find(b"\n", begin)) >= 0:
        yield data[begin:end]
        begin = end + 1
        if begin - last > FORGOTTEN_BYTES:
            plain_files.forget(data, last, begin)
            last = begin


LENGTH_OF_TIME = len("2026-01-01T00:00:00.000Z")


@lru_cache(maxsize=64)
def _is_time(text: str) -> bool:
    """Whether a text is a time as `append` writes it: in UTC, to the millisecond."""
    try:
        return as_written(datetime.fromisoformat(text)) == text and text.endswith("Z")
    except ValueError:
        return False


def _require_own(path: Path, descriptor: int) -> None:
    """EvidenceError for a journal that has another name too: it may be a file of somebody else."""
    if os.fstat(descriptor).st_nlink != 1:
        raise EvidenceError(f"{path} is a file that has another name too: put a copy in its place")


def _content(path: Path, descriptor: int) -> bytes:
    """What the journal holds; EvidenceError for more than any run's folder may have in all."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(limits.TOTAL + 1)
    if len(data) > limits.TOTAL:
        raise EvidenceError(
            f"{path} has more than {limits.size_words(limits.TOTAL)}, so its run could not be "
            "signed: start a new one"
        )
    return data


def _rehearse(path: Path, whole: bytes, first_prev: str, check: Checker | None) -> None:
    """Have a confined child read the lines of a journal, and check what they say."""

    def work() -> None:
        lines = tuple(without_place(line) for line in followed(whole, first_prev))
        if check is not None:
            check(lines)

    passes = 1 if check is None else CHECKED_PASSES
    confined_reader.rehearse(str(path), work, len(whole), passes=passes)


def _lock(path: Path, descriptor: int) -> None:
    """Keep a second writer out for as long as this one lives; closes the file if there is one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(
            f"{path} is being written by another process: this run still goes on, wait for its end"
        ) from None
    except OSError:
        return  # a file system without locks still keeps a journal


def _not_written(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path} cannot be written ({error.strerror}): make room or give write permission, "
        f"then go on with `bench accept --resume {path.parent}`"
    )
