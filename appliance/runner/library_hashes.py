"""The digests of files that launches have mapped to run: each file hashed once, beside launches.

A launch lists its files and goes on (`LibrariesMapped`); here they are hashed, by one thread that
yields processors and disk to whoever wants them. Nothing is hashed while anything is timed: the
runner hashes the rest before it begins a launch that is, by its own priority, as the one that
yields may get next to nothing of a node that others keep busy. What is hashed when is not left to
the launches: the files of the first fork servers are begun when these have imported, as launches
will map nearly the same.

    hashes.begin(journal.lines)         what an earlier process of the run has left
    hashes.ahead(server.pid)            beside untimed launches
    hashes.take(event)                  every event of the journal
    hashes.wait(interrupted)            before a launch that is timed, and at the end
    hashes.finished()                   the event with what is known and not recorded yet
    hashes.close()

The runner records what `finished` gives: a run has the digest of every file that a launch mapped
before it times one, and before it ends. None is the digest of a file that was gone or changed when
its turn came, or that lay on the disk of another boot.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from appliance.linux import libraries
from appliance.records.journal import Event, LibrariesHashed, LibrariesMapped, Line

WAIT_SECONDS = 0.1
"""How often a wait asks whether a person has ended the run."""
LEAST_PRIORITY = 19

GoesOn = Callable[[], bool]
Work = Callable[[GoesOn], None]
"""What hashes, as long as it may go on."""


class LibraryHashes:
    """Of one process of a run; all but the hashing is called by one thread."""

    def __init__(self) -> None:
        self._digests: dict[str, str | None] = {}
        self._due: dict[str, None] = {}
        self._recorded: set[str] = set()
        self._servers: set[int] = set()
        self._work: deque[Work] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_handed_over = False

    def begin(self, lines: Iterable[Line]) -> None:
        """Take what the run's journal holds already."""
        for line in lines:
            self.take(line.event)

    def ahead(self, process: int) -> None:
        """Hash what another process has mapped, once, if it is there when its turn comes."""
        if process not in self._servers:
            self._servers.add(process)
            self._add(partial(self._hash_process, Path(f"/proc/{process}/maps")))

    def take(self, event: Event) -> None:
        """Hash what a launch has mapped, unless the journal has its digest."""
        if isinstance(event, LibrariesHashed):
            self._recorded.update(event.digests)
            self._due = dict.fromkeys(one for one in self._due if one not in event.digests)
        elif isinstance(event, LibrariesMapped):
            for path, known in event.files.items():
                if known is not None:
                    self._ask(path, known)

    def _ask(self, path: str, known: str) -> None:
        if known not in self._recorded and known not in self._due:
            self._due[known] = None
            self._add(partial(self._hash, path, known))

    def wait(self, interrupted: Callable[[], str]) -> None:
        """Hash what is left, in the place of the thread, unless a person has ended the run."""
        self._is_handed_over = True
        while (thread := self._thread) is not None and not interrupted():
            thread.join(WAIT_SECONDS)
        while self._work and not interrupted():
            self._work.popleft()(lambda: not interrupted())
        self._is_handed_over = bool(interrupted())  # then nothing is hashed any more

    def finished(self) -> LibrariesHashed | None:
        """What is known of the files that launches have mapped, and not recorded; None: nothing."""
        known = {one: self._digests[one] for one in self._due if one in self._digests}
        return LibrariesHashed(digests=known) if known else None

    def close(self) -> None:
        """Leave the rest; nothing is hashed any more."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def _add(self, work: Work) -> None:
        """A thread that is there takes it; none stays when all is done."""
        with self._lock:
            self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._hash_all, name="hashing")
                self._thread.start()

    def _hash_all(self) -> None:
        _yield_to_others()
        while True:
            with self._lock:
                if not (self._work and self._goes_on()):
                    self._thread = None
                    return
                work = self._work[0]
            work(self._goes_on)
            if self._goes_on():  # else whoever waits makes it
                self._work.popleft()

    def _goes_on(self) -> bool:
        """Whether the thread does: until the end, or until another hashes in its place."""
        return not (self._is_closed or self._is_handed_over)

    def _hash(self, path: str, known: str, goes_on: GoesOn) -> None:
        if known not in self._digests:
            digest = libraries.sha256_of(Path(path), known, goes_on)
            if digest is not None or goes_on():
                self._digests[known] = digest

    def _hash_process(self, maps: Path, goes_on: GoesOn) -> None:
        """What cannot be read is left to the launch that maps it."""
        files: dict[str, str | None] = {}
        with suppress(OSError):
            files = libraries.loaded(maps)
        for path, known in files.items():
            if known is not None and goes_on():
                self._hash(path, known, goes_on)
                if self._digests.get(known, "") is None:
                    del self._digests[known]


def _yield_to_others() -> None:
    """Give this thread the least priority of processors and disk, where the kernel lets it."""
    thread = threading.get_native_id()
    with suppress(OSError, psutil.Error):
        os.setpriority(os.PRIO_PROCESS, thread, LEAST_PRIORITY)
    with suppress(OSError, psutil.Error, AttributeError):
        psutil.Process(thread).ionice(psutil.IOPRIO_CLASS_IDLE)
