"""Child processes as the runner has them: started fresh by exec, or forked by the server.

Both are a process with a number, a status once it has ended, and memory that it did not take
itself. A server that ends or stops answering takes its forks with it; that is `ServerLost`,
which is no result of the launch or of the device.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from appliance.ipc import processes
from appliance.ipc.endings import last_words, status_name
from appliance.ipc.messages import ForkRequest, ImportRequest, ServeRequest, ServerMessage
from appliance.ipc.worker_command import asked_process, worker_command
from appliance.records.json import Record, adapter
from appliance.records.request import LaunchSpec

SERVER_SECONDS = 300.0
"""How long a server may take to import everything and to probe; a cold disk is slow."""
_ANSWER_SECONDS = 30.0
_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.2


class ServerLost(Exception):
    """The fork server ended, or does not answer; one sentence that says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a server may be forked: `fault` is one sentence, empty if it may.

    `last_words` is the end of what its probe fork wrote to stderr, or it itself where it ended.
    `importers` are the workloads whose import is why, as far as that is known.
    """

    fault: str = ""
    last_words: str = ""
    importers: tuple[str, ...] = ()


class Child(Protocol):
    """A launch's first process."""

    @property
    def pid(self) -> int: ...

    @property
    def shared_bytes(self) -> int:
        """Memory that it shares with the process that forked it."""

    def status(self) -> int | None:
        """None while it lives; then its exit status, or the negative number of its signal."""


class FreshChild:
    """A launch in a process of its own from the first instruction on.

    It imports torch and what `workloads` build with, and then waits for its launch.
    """

    shared_bytes = 0

    def __init__(
        self, environment: Mapping[str, str], stdout: Path, stderr: Path, *workloads: str
    ) -> None:
        self._imports, end = os.pipe()  # the child closes its end when it has imported
        with stdout.open("ab") as out, stderr.open("ab") as err:
            self._process = subprocess.Popen(  # noqa: S603 - our own worker
                worker_command("launch", str(os.getpid()), str(end), *workloads),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=dict(environment),
                cwd=stdout.parent,
                start_new_session=True,
                pass_fds=(end,),
            )
        os.close(end)
        self.pid = self._process.pid

    @property
    def is_importing(self) -> bool:
        """Whether it imports still; what has ended does not."""
        return self._imports >= 0 and not select.select([self._imports], [], [], 0.0)[0]

    def begin(self, spec: LaunchSpec) -> None:
        """Have it make the launch."""
        _write(self._process, spec)
        _close(self._process)
        self._forget_imports()

    def status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        """End it, wherever it is in its imports; it was given no launch."""
        self._process.kill()
        _close(self._process)
        self._process.wait()
        self._forget_imports()

    def _forget_imports(self) -> None:
        if self._imports >= 0:
            os.close(self._imports)
            self._imports = -1


class ServerProcess:
    """A fork server's process, which imports torch and then waits for its request.

    `environment` is there before its first import, and all that it forks inherits it.
    """

    def __init__(self, environment: Mapping[str, str], stderr: Path) -> None:
        self.stderr = stderr
        words = worker_command("serve", str(os.getpid()))
        self.process = asked_process(words, environment, stderr)

    def kill(self) -> None:
        """End it, wherever it is in its imports."""
        self.process.kill()
        _close(self.process)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class ForkServer:
    """A server that has its request, and the exit statuses that it has sent.

    It `is_lost` once it was seen to have ended, or gave no answer.
    """

    def __init__(self, request: ServeRequest, of: ServerProcess) -> None:
        self.is_lost = False
        self._stderr = of.stderr
        self._process = of.process
        assert self._process.stdout is not None  # noqa: S101 - a pipe was requested
        self._stdout = self._process.stdout
        self.pid = self._process.pid
        self._pending = b""
        self._statuses: dict[int, int] = {}
        self._workloads = set(request.workloads)
        _write(self._process, request)

    @property
    def is_importing(self) -> bool:
        """Whether it imports still, or probes itself; what has ended does not."""
        return not self._has_message(0.0)

    def has_imported(self, workloads: Iterable[str]) -> bool:
        """Whether each of these was imported, as far as it can be, when it last probed itself."""
        return self._workloads.issuperset(workloads)

    def import_more(self, workloads: Iterable[str]) -> None:
        """Have it import these and probe itself again; none of its forks may run."""
        new = sorted(set(workloads) - self._workloads)
        self._workloads.update(new)
        _write(self._process, ImportRequest(workloads=tuple(new)))

    def health(self, interrupted: Callable[[], str]) -> Health:
        """Wait until the server has probed itself."""
        deadline = time.monotonic() + SERVER_SECONDS
        while not self._has_message(_PAUSE_SECONDS):
            if interrupted():
                return Health(fault=f"interrupted by {interrupted()}")
            if time.monotonic() >= deadline:
                fault = f"the fork server was not ready within {SERVER_SECONDS:g} s"
                return Health(fault=fault, last_words=self._last_words())
        try:
            message = self._next_message(_PAUSE_SECONDS)
        except ServerLost as lost:
            return Health(fault=str(lost), last_words=self._last_words())
        return Health(
            fault=message.reason, last_words=message.last_words, importers=message.importers
        )

    def _last_words(self) -> str:
        with self._stderr.open("rb") as file:
            return last_words(file)

    def fork(self, spec: LaunchSpec, stdout: Path, stderr: Path) -> ForkedChild:
        """Start a launch; ServerLost if there is no answer."""
        shared = processes.resident_bytes(self.pid)
        request = ForkRequest(launch=spec, stdout=str(stdout), stderr=str(stderr))
        _write(self._process, request)
        while (line := self._next_message(_ANSWER_SECONDS)).state != "started":
            self._statuses[line.pid] = line.status
        return ForkedChild(self, line.pid, shared)

    def status(self, pid: int) -> int | None:
        """Status of a fork; ServerLost if the server has ended."""
        while pid not in self._statuses and self._has_message(0.0):
            line = self._next_message(_ANSWER_SECONDS)
            self._statuses[line.pid] = line.status
        return self._statuses.get(pid)

    def close(self) -> None:
        """Let the server end; kill it if it does not."""
        _close(self._process)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def _ending(self) -> str:
        """Its exit status, or the name of the signal that ended it."""
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "its stdout closed"
        return status_name(status)

    def _has_message(self, seconds: float) -> bool:
        """Whether a message waits; two lines may have come in one reading."""
        if b"\n" in self._pending:
            return True
        return bool(select.select([self._stdout], [], [], max(0.0, seconds))[0])

    def _next_message(self, seconds: float) -> ServerMessage:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            if not self._has_message(deadline - time.monotonic()):
                raise self._lost(f"the fork server did not answer within {seconds:.0f} s")
            part = os.read(self._stdout.fileno(), 2**16)
            if not part:
                raise self._lost(f"the fork server ended with {self._ending()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message: ServerMessage = adapter(ServerMessage).validate_json(line)
        except ValidationError:
            raise self._lost("the fork server sent something that is no message") from None
        return message

    def _lost(self, words: str) -> ServerLost:
        self.is_lost = True
        return ServerLost(words)


class ForkedChild:
    """A launch that the server has forked."""

    def __init__(self, server: ForkServer, pid: int, shared_bytes: int) -> None:
        self._server = server
        self.pid = pid
        self.shared_bytes = shared_bytes

    def status(self) -> int | None:
        return self._server.status(self.pid)


class Guard:
    """The process that ends what is left of a run, however the run's parent ends."""

    def __init__(self, token: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "appliance.ipc.processes", token],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: environment[name] for name in ("PATH", "PYTHONPATH") if name in environment},
            start_new_session=True,
        )

    def close(self) -> None:
        """Tell it that the run has ended; waits until nothing is left."""
        _close(self._process)
        try:
            self._process.wait(2 * _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _write(process: subprocess.Popen[bytes], record: Record) -> None:
    """One line to a child; a child that has ended already shows by its status."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        assert process.stdin is not None  # noqa: S101 - a pipe was requested
        process.stdin.write(adapter(type(record)).dump_json(record) + b"\n")
        process.stdin.flush()


def _close(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()
