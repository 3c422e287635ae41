"""What was read already: one line a bundle, appended once it is verified, and never changed.

The ledger is the only state of a collection. A line is written whole or, where the program was
killed in it, is no line: it is cut off and the bundle is read again. A bundle that lies where it
lay, with the same last file, is not read again, but for two reasons: other signatures count now, or
it was refused for what may be another time, as by a clock that was wrong or a certificate that was
not named. What a later line says of it then stands. Everything else is made from the ledger anew.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

from appliance.collection.rows import Entry, RefusalReason
from appliance.errors import EvidenceError, UsageError
from appliance.records.json import Record, from_json, to_json
from appliance.storage import bundle as bundles
from appliance.storage import plain_files

FILE = "ledger.jsonl"
LARGEST = 2**30
"""Bytes of a ledger; that of 100,000 bundles has a tenth of it."""
SYNC_EACH = 64
"""Lines between two that are made durable against a loss of power; a kill loses none."""
MAY_CHANGE: frozenset[RefusalReason] = frozenset({"not_verified", "unreadable"})
"""Refusals that hang on the moment, the trust or the machine of the reading too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Record):
    """First line: of which campaign the ledger is (the sha256 of its file)."""

    schema: str = "bench/collection/1"
    campaign: str


class Ledger:
    """The open ledger of one collection: what it holds, and where more is appended."""

    def __init__(self, file: RawIOBase, path: Path, entries: list[Entry]) -> None:
        self._file = file
        self.path = path
        self._entries = _latest(entries)
        self._unsynced = 0
        self.num_appended = 0

    @property
    def entries(self) -> list[Entry]:
        """What stands of each bundle, in the order in which they were first read."""
        return list(self._entries.values())

    def has(self, source: str, digest: str, trust: str) -> bool:
        """Whether this bundle, with this last file and this trust, need not be read again."""
        entry = self._entries.get((source, digest))
        return entry is not None and entry.trust == trust and entry.finding.reason not in MAY_CHANGE

    def append(self, entry: Entry) -> None:
        """Write a line, unless the bundle's last one says the same.

        OutputError if the disk is full, and then the line is not there.
        """
        key = (entry.source, entry.digest)
        if self._entries.get(key) == entry:
            return
        begin = self._file.tell()
        try:
            _write(self._file, to_json(entry) + b"\n")
            self._unsynced += 1
            if self._unsynced >= SYNC_EACH:
                self.sync()
        except OSError as error:
            os.ftruncate(self._file.fileno(), begin)
            self._file.seek(begin)
            raise bundles.not_written(self.path, error) from None
        self.num_appended += 1
        self._entries[key] = entry

    def sync(self) -> None:
        """Make all lines durable."""
        os.fsync(self._file.fileno())
        self._unsynced = 0


@contextmanager
def opened(folder: Path, campaign: str) -> Iterator[Ledger]:
    """The ledger in a folder, made where there is none, held by one program at a time.

    Raises UsageError for a ledger that another program holds or that is of another campaign,
    EvidenceError for one whose lines are not what was written.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, plain_files.NEW, 0o644))
        file = os.fdopen(plain_files.opened(path, os.O_RDWR), "r+b", 0)
    except OSError as error:
        raise bundles.not_written(path, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder} is being collected by another program: wait for it"
            ) from None
        ledger = Ledger(file, path, _read(file, path, campaign))
        yield ledger
        ledger.sync()


def read(folder: Path) -> tuple[str, list[Entry]]:
    """The campaign's digest and the lines of a collection; UsageError where there is none."""
    path = folder / FILE
    try:
        lines = plain_files.read(path, LARGEST).splitlines(keepends=True)
    except FileNotFoundError:
        raise UsageError(
            f"{folder} holds no collection: `bench fleet collect CAMPAIGN FROM --out {folder}`"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    if not lines:
        raise UsageError(f"{path} is empty: collect again")
    head = from_json(Head, lines[0].rstrip(b"\n"), name=FILE)
    return head.campaign, list(_latest(_entries(lines[1:])).values())


def _latest(entries: Iterable[Entry]) -> dict[tuple[str, str], Entry]:
    """What the last line of each bundle says, by its place and last file."""
    return {(one.source, one.digest): one for one in entries}


def _write(file: RawIOBase, data: bytes) -> None:
    """All of the data, nothing of which stays in this program when the disk is full."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _read(file: RawIOBase, path: Path, campaign: str) -> list[Entry]:
    """The entries of an open ledger, which is left at its end; a line cut short is cut off."""
    lines = (file.readall() or b"").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    begin = to_json(Head(campaign=campaign)) + b"\n"
    if whole:
        head = from_json(Head, whole[0].rstrip(b"\n"), name=FILE)
        if head.campaign != campaign:
            raise UsageError(f"{path} is of another campaign: name another folder with --out")
    elif not all(map(begin.startswith, lines)):
        raise EvidenceError(f"{path} is no ledger: name another folder with --out")
    entries = list(_entries(whole[1:]))
    if len(whole) != len(lines):  # only of a ledger, whatever somebody has laid in its place
        file.seek(0)
        os.ftruncate(file.fileno(), sum(map(len, whole)))
    file.seek(0, os.SEEK_END)
    if not whole:
        _write(file, begin)
    return entries


def _entries(lines: list[bytes]) -> Iterator[Entry]:
    for number, line in enumerate(lines, 2):
        if line.endswith(b"\n"):
            try:
                yield from_json(Entry, line[:-1], name=f"{FILE}, line {number}")
            except EvidenceError as error:
                raise EvidenceError(f"{error}: remove the ledger and collect again") from None
