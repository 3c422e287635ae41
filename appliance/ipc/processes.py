"""The processes of a launch as Linux shows them: who belongs, what they hold, how they are ended.

A launch is every process that carries its token in the environment that it was started with,
that is in its session, or that descends from its first process. The first way finds what
changed its session or lost its parent; the others find what was forked by a server, whose
environment shows the server's. All of a run's processes carry the run's token as well, so a
last sweep finds whatever is left of any of them.

Run as a program (`python -m appliance.ipc.processes TOKEN`) this module is the run's guard: it
waits until its standard input closes, which happens however the parent ends, and then ends
all that still carries the token. PR_SET_PDEATHSIG alone would leave a workload's own children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LAUNCH_TOKEN = "BENCH_LAUNCH_TOKEN"  # noqa: S105 - a variable's name
RUN_TOKEN = "BENCH_RUN_TOKEN"  # noqa: S105 - a variable's name
GRACE_SECONDS = 1.0
"""How long a process may take to end itself after SIGTERM."""
_KILL_SECONDS = 10.0
_PAUSE_SECONDS = 0.01
SHELL_SIGNAL_BASE = 128
"""What a program adds to the number of the signal that ended what it ran, for its exit status."""
_PR_SET_PDEATHSIG = 1
_PF_FORKNOEXEC = 0x40
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One process: its parent, session, and start in clock ticks (a number may be reused).

    `is_fork`: it runs what its parent ran when it was forked.
    """

    pid: int
    parent: int
    session: int
    start: int
    is_alive: bool
    is_fork: bool


def table() -> dict[int, Entry]:
    """All processes that are seen now, by number."""
    entries = (_entry(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return {entry.pid: entry for entry in entries if entry is not None}


def _entry(pid: int) -> Entry | None:
    text = _read(pid, "stat")
    if not text:
        return None
    # The name in parentheses may hold anything; the fields after the last one are plain.
    fields = text[text.rindex(b")") + 2 :].split()
    return Entry(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        is_alive=fields[0] not in (b"Z", b"X"),
        is_fork=bool(int(fields[6]) & _PF_FORKNOEXEC),
    )


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty when the process is gone or is not ours to read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def carries(pid: int, variable: str, value: str) -> bool:
    """Whether a process was started with this variable in its environment."""
    return f"{variable}={value}".encode() in _read(pid, "environ").split(b"\0")


class Family:
    """The processes of one launch: `root`, its session, its descendants, and its token's bearers.

    Environments are read once per process, because reading all of them at each time would cost
    the launch that is being timed.
    """

    def __init__(self, root: int, token: str, *, variable: str = LAUNCH_TOKEN) -> None:
        self._root = root
        first = _entry(root) if root else None
        self._start = first.start if first else None
        self._variable = variable
        self._token = token
        self._bearers: dict[tuple[int, int], bool] = {}

    def members(self) -> tuple[int, ...]:
        """Living processes of the launch; the parent that asks is never one."""
        entries = table()
        root = entries.get(self._root)
        if root is not None and root.start != self._start:
            self._root = 0  # the launch is long gone, and its number is another's
        members = {entry.pid for entry in entries.values() if self._belongs(entry)}
        size = -1
        while size < len(members):
            size = len(members)
            members |= {entry.pid for entry in entries.values() if entry.parent in members}
        return tuple(
            pid for pid in members - {os.getpid()} if pid in entries and entries[pid].is_alive
        )

    def _belongs(self, entry: Entry) -> bool:
        if self._root and self._root in (entry.pid, entry.session):
            return True
        key = (entry.pid, entry.start)
        if key not in self._bearers:
            self._bearers[key] = carries(entry.pid, self._variable, self._token)
        return self._bearers[key]


def sweep(token: str, spared: Collection[int] = ()) -> None:
    """End every process that carries the run's token, and its descendants, but those spared."""
    family = Family(0, token, variable=RUN_TOKEN)
    end(lambda: [pid for pid in family.members() if pid not in spared])


def end(find: Callable[[], Collection[int]], grace_seconds: float = GRACE_SECONDS) -> None:
    """End all processes that `find` names: first by SIGTERM, then by SIGKILL.

    Looks again until none is left, because a process may start others while it is being ended;
    gives up on what the kernel does not let die within ten seconds.
    """
    found = find()
    _signal(found, signal.SIGTERM)
    if found and not _are_gone(find, grace_seconds, kill=False):
        _are_gone(find, _KILL_SECONDS, kill=True)


def _are_gone(find: Callable[[], Collection[int]], seconds: float, *, kill: bool) -> bool:
    deadline = time.monotonic() + seconds
    while left := find():
        if kill:
            _signal(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def user_of(connection: socket.socket) -> int:
    """Number of the user whose process holds the other end of a Unix socket."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


# ------------------------------------------------------------------ memory


def resident_bytes(pid: int) -> int:
    """Memory that a process holds and files do not back; cheap, and counts shared pages whole."""
    return sum(_kibibytes(_read(pid, "status"), (b"RssAnon:", b"RssShmem:"))) * _KIB


def shared_bytes(root: int, pids: Iterable[int]) -> int:
    """The part of these processes' resident bytes that forks of `root` share with it."""
    entries = (_entry(pid) for pid in pids)
    forks = [one.pid for one in entries if one is not None and one.is_fork and one.parent == root]
    bound = resident_bytes(root)
    return sum(min(bound, resident_bytes(pid)) for pid in forks)


def proportional_bytes(pid: int) -> int:
    """The same with each shared page divided among its holders; costs a walk of all pages."""
    shares = _kibibytes(_read(pid, "smaps_rollup"), (b"Pss_Anon:", b"Pss_Shmem:"))
    return sum(shares) * _KIB if shares else resident_bytes(pid)


def _kibibytes(text: bytes, names: tuple[bytes, ...]) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith(names)]


def out_of_memory_kills() -> int:
    """How often the kernel has killed for lack of memory, here or in our control group."""
    files = [Path("/proc/vmstat")]
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                files.append(Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                folder = Path("/sys/fs/cgroup/memory")
                files.append(folder / path.lstrip("/") / "memory.oom_control")
                files.append(folder / "memory.oom_control")
    except OSError:
        pass
    return sum(_oom_kill(file) for file in files)


def _oom_kill(file: Path) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


# ------------------------------------------------------------------ in the child


@contextmanager
def forking() -> Iterator[None]:
    """Let a process fork whose child leaves alone what threads of numerical libraries hold.

    Python and JAX, where it is loaded, warn of such threads at each fork.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def die_with(parent: int) -> None:
    """Arrange that this process is killed when `parent` ends; ends it now if that has happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def offer_to_the_kernel() -> None:
    """Make this process the first that the kernel kills for lack of memory, if it lets us."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def _guard(token: str) -> None:
    """Wait until nobody holds the other end of standard input, then end what is left."""
    while os.read(0, 4096):
        pass
    sweep(token)


if __name__ == "__main__":
    _guard(sys.argv[1])
