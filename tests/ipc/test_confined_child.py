"""The child that parses what a stranger wrote: its limits hold, and its end is one sentence."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import ApplianceError, EvidenceError, UsageError
from appliance.ipc import confined_child, syscall_filter
from appliance.ipc.confined_child import Limits

LIMITS = Limits(seconds=60)
"""More than the slowest machine needs for what ends by itself."""


def endless() -> bytes:
    while True:
        pass


def asleep() -> bytes:
    """As a library that waits for a lock which it holds itself: it takes no time of a processor."""
    time.sleep(3600)
    return b""


def test_answer_comes_back_whole() -> None:
    answer = bytes(range(256)) * 2**12
    assert confined_child.call("it", lambda: answer, LIMITS) == answer


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda: b"x" * 600_000_000, "more memory than evidence of its size needs"),
        (lambda: b"x" * (confined_child.LARGEST_ANSWER + 1), "more time than"),
        (endless, "more time than"),
        (asleep, "more time than"),
        (lambda: ctypes.string_at(0), "what reads it ended"),
        (lambda: os._exit(3), "what reads it ended"),
    ],
    ids=["memory", "answer", "time", "sleep", "fault", "end"],
)
def test_its_end_is_one_sentence(work: Callable[[], bytes], sentence: str) -> None:
    with pytest.raises(EvidenceError, match=sentence) as refused:
        confined_child.call("report.pdf", work, Limits(seconds=1 if work is endless else 60))
    assert str(refused.value).startswith("report.pdf was given up")


def test_a_step_has_a_limit_of_its_own() -> None:
    def work() -> bytes:
        with confined_child.processor_seconds(1):
            pass
        with confined_child.processor_seconds(1):
            return endless()

    with pytest.raises(EvidenceError, match="more time than"):
        confined_child.call("it", work, Limits(seconds=60))
    with confined_child.processor_seconds(1):  # no child: nothing is limited
        assert resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY


def test_a_parser_has_a_room_of_its_own() -> None:
    def taken(num_bytes: int) -> bytes:
        try:
            with mmap.mmap(-1, num_bytes) as mapped:  # an array might lie in what was freed before
                return b"%d" % len(mapped)
        except OSError:
            return b"none"

    def work() -> bytes:
        before = taken(10**8)
        with confined_child.memory_room(5 * 10**7):
            inside = taken(10**8)
        return b"%s %s %s" % (before, inside, taken(10**8))

    assert confined_child.call("it", work, LIMITS) == b"100000000 none 100000000"
    with confined_child.memory_room(0):  # no child: nothing is limited
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_errors_come_back_as_they_were_raised() -> None:
    def refuse() -> bytes:
        raise UsageError("name another file")

    with pytest.raises(UsageError, match="name another file"):
        confined_child.call("it", refuse, LIMITS)
    with pytest.raises(ApplianceError, match="ZeroDivisionError"):
        confined_child.call("it", lambda: bytes(1 // 0), LIMITS)


def attempts(folder: Path, descriptor: int) -> dict[str, Callable[[], object]]:
    """What a parser that was taken over would try."""
    file, victim = folder / "new", folder / "victim"
    return {
        "new file": lambda: file.write_bytes(b""),
        "append": lambda: victim.open("a"),
        "truncate": lambda: os.truncate(victim, 0),
        "rename": lambda: victim.rename(file),
        "unlink": victim.unlink,
        "link": lambda: file.symlink_to(victim),
        "mkdir": file.mkdir,
        "mode": lambda: victim.chmod(0o777),
        "descriptor": lambda: os.read(descriptor, 1),
        "fork": os.fork,
        "exec": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - refused
        "kill": lambda: os.kill(os.getppid(), signal.SIGCONT),
        "network": lambda: socket.socket(socket.AF_INET),
        "local socket": lambda: socket.socket(socket.AF_UNIX),
    }


def test_it_can_neither_write_nor_reach_others(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"kept")
    descriptor = os.open(tmp_path / "victim", os.O_RDONLY)

    def work() -> bytes:
        allowed = []
        for name, attempt in attempts(tmp_path, descriptor).items():
            try:
                attempt()
            except OSError:
                continue
            allowed.append(name)
        return " ".join(allowed).encode()

    assert confined_child.call("it", work, LIMITS) == b""
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim").read_bytes() == b"kept"
    os.close(descriptor)


def test_it_may_read_files_make_threads_and_pairs_of_sockets(tmp_path: Path) -> None:
    """What libraries do that read: without these no PDF could be checked."""
    (tmp_path / "file").write_bytes(b"content")

    def work() -> bytes:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        socket.socketpair()
        return (tmp_path / "file").read_bytes()

    assert confined_child.call("it", work, LIMITS) == b"content"


def test_a_machine_without_a_table_is_not_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not syscall_filter.install()
