"""What launches have mapped is hashed beside them, once, whoever goes on with the run."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builders import chain

from appliance.linux import libraries
from appliance.records.journal import Event, LibrariesHashed, LibrariesMapped
from appliance.runner.library_hashes import LibraryHashes


def a_file(folder: Path, name: str) -> tuple[str, str]:
    """A file that holds its name, and its identity."""
    path = folder / name
    path.write_text(name)
    known = libraries.identity(path)
    assert known is not None
    return str(path), known


def mapped(*files: tuple[str, str]) -> LibrariesMapped:
    return LibrariesMapped(launch="gemm@cpu:0/0", rank=0, files=dict(files))


def hashed(hashes: LibraryHashes) -> LibrariesHashed | None:
    hashes.wait(lambda: "")
    return hashes.finished()


def held_up(begun: threading.Event, is_wanted: Callable[[], bool]) -> None:
    """Hash nothing for as long as it is wanted."""
    begun.set()
    while is_wanted():
        time.sleep(0.001)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_who_goes_on_hashes_what_the_journal_lacks_and_the_file_is_there_still(
    tmp_path: Path,
) -> None:
    done, left, changed = (a_file(tmp_path, name) for name in ("done", "left", "changed"))
    Path(changed[0]).write_text("changed by an update in the pause")
    events: list[Event] = [
        mapped(done, left, changed),
        LibrariesHashed(digests={done[1]: sha256("done")}),
    ]
    hashes = LibraryHashes()
    hashes.begin(chain(events))
    event = hashed(hashes)
    assert event == LibrariesHashed(digests={left[1]: sha256("left"), changed[1]: None})
    hashes.take(event)
    hashes.take(mapped(done, left, changed))
    assert hashed(hashes) is None
    hashes.close()


def test_hashing_yields_to_everything_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = a_file(tmp_path, "one"), a_file(tmp_path, "other")
    priorities: list[int] = []
    begun = threading.Event()

    def endless(path: Path, wanted: str, is_wanted: Callable[[], bool]) -> None:
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        held_up(begun, is_wanted)

    monkeypatch.setattr(libraries, "sha256_of", endless)
    hashes = LibraryHashes()
    hashes.take(mapped(one, other))
    assert begun.wait(30)
    hashes.wait(lambda: "SIGINT")
    assert hashes.finished() is None
    hashes.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hashing"]
    assert (priorities, hashes.finished()) == ([19], None)


def test_what_the_thread_that_yields_has_not_hashed_whoever_waits_does_by_its_own_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node that others keep busy the thread would come to nothing."""
    one, other = a_file(tmp_path, "one"), a_file(tmp_path, "other")
    begun = threading.Event()
    real, waiting = libraries.sha256_of, threading.current_thread()

    def starved(path: Path, wanted: str, is_wanted: Callable[[], bool]) -> str | None:
        if threading.current_thread() is waiting:
            return real(path, wanted, is_wanted)
        held_up(begun, is_wanted)
        return None

    monkeypatch.setattr(libraries, "sha256_of", starved)
    hashes = LibraryHashes()
    hashes.take(mapped(one, other))
    assert begun.wait(30)
    found = LibrariesHashed(digests={one[1]: sha256("one"), other[1]: sha256("other")})
    assert hashed(hashes) == found
    hashes.close()
