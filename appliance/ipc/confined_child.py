"""A child that reads what a stranger wrote: with limits, without network, and unable to write.

Parsers of PDF, certificates, TOML and HTML may be made to take all memory or to run for ever, and
may have faults that nobody knows yet. So they run in a fork of this process, which has the modules
already, with limits on memory, processor time and open files, no file that it may write and, where
the kernel filters system calls, no network and no process of its own. It answers with bytes, and
nothing that it says is executed here. Whatever becomes of it is one sentence.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from appliance import errors
from appliance.errors import ApplianceError, BenchError, EvidenceError, GivenUpError
from appliance.ipc import processes, syscall_filter

MEMORY_BYTES = 400 * 10**6
"""Of the child, the modules that it shares with its parent included: both stay below 500 MB."""
USUAL_BYTES = 120 * 10**6
"""Of a parent that has loaded what verifying needs; what else a parent has is not the child's."""
OPEN_FILES = 64
LARGEST_ANSWER = 2**22
LOOK_SECONDS, MOST_STILL = 0.5, 3
"""How often a child that says nothing is looked at, and how often it may have done nothing."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # each would reserve memory
_libc = ctypes.CDLL(None)
_ARENA_MAX = -8  # malloc.h, M_ARENA_MAX
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DONE, _FAILED, _NO_MEMORY = b"d", b"f", b"m"
_soft_seconds: list[int] = []
"""In a child the limit on its processor time, in seconds; empty in any other process."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a child may take: `seconds` of processor time, and four times as long on the clock.

    `most_memory_bytes` is what it may allow itself by `allow_memory`, once it knows what it reads;
    `mapped_bytes` are those of files that it may map beside it, by `allow_mapped`.
    `answer_bytes` is the longest answer. A child that does not survive is a `death`.
    """

    seconds: int
    memory_bytes: int = MEMORY_BYTES
    most_memory_bytes: int = MEMORY_BYTES
    mapped_bytes: int = 0
    answer_bytes: int = LARGEST_ANSWER
    death: type[BenchError] = EvidenceError


def call(what: str, work: Callable[[], bytes], limits: Limits) -> bytes:
    """What `work` returns, done in a confined child; `what` it reads is named in sentences.

    Raises what `work` raises where that is a BenchError, the death of its limits if the child was
    ended by one or by a fault of a parser (GivenUpError, where that is an EvidenceError, for time
    and memory), ApplianceError for any other error in it.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    with processes.forking():
        pid = os.fork()
    if pid == 0:
        _child(parent, writer, work, limits)
    os.close(writer)
    try:
        end = time.monotonic() + 4 * limits.seconds
        answer = _answer(reader, pid, end, limits.answer_bytes)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return _result(what, answer, status, limits)


def is_confined() -> bool:
    """Whether this process is a confined child, which starts no other."""
    return bool(_soft_seconds)


@contextmanager
def processor_seconds(seconds: int) -> Iterator[None]:
    """In a confined child, end it if this takes longer; elsewhere without effect."""
    if not _soft_seconds:
        yield
        return
    before = _soft_seconds[-1]
    _limit_time(min(before, _used_seconds() + seconds))
    try:
        yield
    finally:
        _limit_time(before)


@contextmanager
def memory_room(num_bytes: int) -> Iterator[None]:
    """In a confined child, MemoryError if this takes so many bytes more; elsewhere without effect.

    For a parser that needs little: what it is given may make it take all that the child may have.
    """
    if not _soft_seconds:
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min(before, _memory_bytes()[0] + num_bytes), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def allow_memory(num_bytes: int) -> None:
    """In a confined child, go on with so much memory; elsewhere without effect."""
    _allow(num_bytes - MEMORY_BYTES)


def allow_mapped(num_bytes: int) -> None:
    """In a confined child, map so many bytes of a file, which take memory only where they are read.

    Elsewhere without effect.
    """
    _allow(num_bytes)


def give_back() -> None:
    """Give back memory that a library has freed, in whatever process.

    A parser that is not Python's own leaves holes as large as what it has read: a sixth of all that
    is held of a large node.
    """
    if trim := getattr(_libc, "malloc_trim", None):  # of glibc
        trim(0)


def collect_garbage() -> None:
    """In a confined child, free what holds itself, for nothing else does; else without effect.

    It takes as long as there are records, so before there are many.
    """
    if _soft_seconds:
        gc.collect()


def _allow(more: int) -> None:
    if _soft_seconds and more > 0:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (min(soft + more, hard), hard))


def _limit_time(seconds: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def _used_seconds() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime + used.ru_stime) + 1


# ------------------------------------------------------------------ the child


def _child(parent: int, writer: int, work: Callable[[], bytes], limits: Limits) -> NoReturn:
    """Do the work, answer, and end without any of the parent's exit handlers."""
    try:
        _confine(parent, writer, limits)
        answer = b""
        try:
            kind, answer = _DONE, work()
        except MemoryError:
            kind = _NO_MEMORY
        except BenchError as error:
            kind, answer = _FAILED, _words(type(error).__name__, str(error))
        except BaseException as error:  # noqa: BLE001 - the parent says what it was
            kind, answer = _FAILED, _words("", f"{type(error).__name__}: {error}")
        for part in (memoryview(kind), memoryview(answer)):  # which may be a large run, so no copy
            left = part
            while left:
                left = left[os.write(writer, left) :]
    finally:
        os._exit(0)


def _words(kind: str, text: str) -> bytes:
    return json.dumps([kind, text]).encode()


def _confine(parent: int, writer: int, limits: Limits) -> None:
    processes.die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names are numbers
        if descriptor > 2 and descriptor != writer:  # noqa: PLR2004 - the standard streams
            with suppress(OSError):
                os.close(descriptor)
    os.environ.update(ONE_THREAD)
    gc.disable()  # it ends soon, and looking through millions of records takes minutes
    gc.freeze()  # to look through what the parent has would make it the child's own
    _libc.mallopt(_ARENA_MAX, 1)  # each thread's own arena would reserve 64 MiB
    seconds = _used_seconds() + limits.seconds
    virtual, resident = _memory_bytes()
    room = limits.memory_bytes - min(resident, USUAL_BYTES)
    more = limits.most_memory_bytes - limits.memory_bytes + limits.mapped_bytes
    for which, most in (
        (resource.RLIMIT_AS, virtual + room + more),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, max(OPEN_FILES, writer + 1)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(which, most)
    _, last = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min(virtual + room, last), last))
    _soft_seconds[:] = [resource.getrlimit(resource.RLIMIT_CPU)[0]]
    syscall_filter.install()


def _lower(which: int, most: int) -> None:
    """Limit a resource for good, time with a second in which the signal that says so comes."""
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    last = most + 1 if which == resource.RLIMIT_CPU and most != hard else most
    resource.setrlimit(which, (most, last))


def _memory_bytes() -> tuple[int, int]:
    """Address space and resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - quick in a fork
        virtual, resident, *_ = file.read().split()
    return int(virtual) * _PAGE, int(resident) * _PAGE


# ------------------------------------------------------------------ the parent


def _answer(reader: int, pid: int, deadline: float, most: int) -> bytes | None:
    """All that the child writes until it ends; None if it takes too long or says too much.

    Or if it sleeps: it waits for nobody, but a library without memory may wait for itself for ever.
    """
    parts: list[bytes] = []
    length, still, before = 0, 0, b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and still < MOST_STILL:
        if not poll.poll(min(left, LOOK_SECONDS) * 1000):
            now = _sleeping(pid)
            still, before = (still + 1 if now and now == before else 0), now
            continue
        still, part = 0, os.read(reader, 2**16)
        parts.append(part)
        if not part:
            return b"".join(parts)
        length += len(part)
        if length > most:
            return None
    return None


def _sleeping(pid: int) -> bytes:
    """What a child that sleeps has used of processors, as the kernel says it; else nothing."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
        fields = file.read().rpartition(b") ")[2].split()
        if fields[0] == b"S":
            return b" ".join(fields[11:13])
    return b""


def _result(what: str, answer: bytes | None, status: int, limits: Limits) -> bytes:
    given_up = GivenUpError if limits.death is EvidenceError else limits.death
    if answer is None or status == -signal.SIGXCPU:
        raise given_up(
            f"{what} was given up: to read it takes more time than evidence of its size needs; "
            "ask for the original"
        )
    if answer[:1] == _NO_MEMORY:
        raise given_up(
            f"{what} was given up: to read it takes more memory than evidence of its size needs; "
            "ask for the original"
        )
    if answer[:1] == _DONE:
        return answer[1:]
    if answer[:1] == _FAILED:
        raise _error(answer[1:])
    reason = f"signal {-status}" if status < 0 else "no answer"
    raise limits.death(f"{what} was given up: what reads it ended ({reason}); ask for the original")


def _error(words: bytes) -> BenchError:
    kind, text = json.loads(words)
    known = getattr(errors, kind, None) if kind else None
    if isinstance(known, type) and issubclass(known, BenchError):
        return known(text)
    return ApplianceError(f"what reads evidence failed ({text}); report it")
