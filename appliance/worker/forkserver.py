"""The fork server, in the child: it has imported everything, run nothing, and forks launches.

Importing torch and the model libraries takes longer than a small launch. A process that has
imported them and has started no operator may be forked safely; one that has not may hold locks,
threads or a device's context that the fork loses. So the server imports, one workload after the
other, and notes what each import started; then it forks one probe that computes under a time
limit. It is healthy if nothing that it started outlives a fork's handlers (OpenBLAS ends its
threads there) and the probe's results are right. What it forks is in its own session, dies with
it, and writes to its own files.

It is spoken to in JSON lines: `ServeRequest`, then `ForkRequest`s on stdin; `ServerMessage` on
stdout. What the imported libraries print goes to stderr.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from appliance.ipc import processes
from appliance.ipc.endings import last_words, status_name
from appliance.ipc.import_watch import ImportWatch
from appliance.ipc.messages import ForkRequest, ServerMessage
from appliance.records.json import adapter
from appliance.records.request import LaunchSpec

_ABORT_SECONDS = 2.0
"""How long a probe fork that hangs may take to write where it hangs."""
_PAUSE_SECONDS = 0.005


def claim_stdout() -> int:
    """The real stdout under another number; what is printed from now on goes to stderr."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


class ForkServer:
    """Forks launches; `begin` makes one and never returns, `probe` raises when something is off."""

    def __init__(
        self,
        answer: int,
        probe: Callable[[], None],
        begin: Callable[[LaunchSpec], NoReturn],
        imports: ImportWatch,
        probe_seconds: float,
    ) -> None:
        self._answer = answer
        self._probe = probe
        self._begin = begin
        self._imports = imports
        self._probe_seconds = probe_seconds
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._own = (answer, self._wake, wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Send whether the server is healthy, then fork what is requested until stdin closes."""
        gc.collect()
        gc.freeze()  # so that a collection in a child does not copy the server's pages
        self._send(self._probed())
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._wake:
                        self._reap()
                        continue
                    part = os.read(0, 2**16)
                    if not part:
                        return
                    *lines, pending = (pending + part).split(b"\n")
                    for line in lines:
                        self._start(adapter(ForkRequest).validate_json(line))

    def _send(self, line: ServerMessage) -> None:
        os.write(self._answer, adapter(ServerMessage).dump_json(line) + b"\n")

    def _reap(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._send(
                ServerMessage(state="ended", pid=pid, status=os.waitstatus_to_exitcode(status))
            )

    def _start(self, request: ForkRequest) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid:
            self._send(ServerMessage(state="started", pid=pid))
            return
        try:
            self._become_child(server)
            _redirect(request)
            self._begin(request.launch)
        finally:
            os._exit(70)  # never back into the server's loop

    def _become_child(self, server: int) -> None:
        """Leave everything of the server behind but what it has imported."""
        os.setsid()
        processes.die_with(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in self._own:
            os.close(descriptor)

    # -------------------------------------------------------------- the probe fork

    def _probed(self) -> ServerMessage:
        """Whether a fork works, and if not why."""
        words, server = os.memfd_create("last words"), os.getpid()
        with _stderr_into(words):  # before the fork, whose handlers may be what fails
            pid = os.fork()
            if pid == 0:
                self._run_probe(server)
        started = self._imports.outlived_fork(pid)
        ending = self._ending(pid)
        reasons = "; ".join(filter(None, (started, ending)))
        if not reasons:
            os.close(words)
            return ServerMessage(state="ready")
        with os.fdopen(words, "rb") as file:
            return ServerMessage(state="unhealthy", reason=reasons, last_words=last_words(file))

    def _run_probe(self, server: int) -> NoReturn:
        """The probe fork: exit status 0 if it computed rightly, else 1 and why on its stderr."""
        status = 1
        try:
            self._become_child(server)
            self._probe()
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the server reports it
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _ending(self, pid: int) -> str:
        """Empty once the probe fork has ended with success; else how it ended, or that it hung."""
        limit = f"the probe fork did not end within {self._probe_seconds:g} s"
        status = _status_within(pid, self._probe_seconds)
        if status is not None:
            return "" if status == 0 else f"the probe fork ended with {status_name(status)}"
        os.kill(pid, signal.SIGABRT)  # it writes where it hangs, if it can
        if _status_within(pid, _ABORT_SECONDS) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return limit


@contextlib.contextmanager
def _stderr_into(file: int) -> Iterator[None]:
    """While it is entered, stderr is this file, and a fatal signal writes a traceback to it."""
    own = os.dup(2)
    os.dup2(file, 2)
    faulthandler.enable()
    try:
        yield
    finally:
        faulthandler.disable()
        os.dup2(own, 2)
        os.close(own)


def _status_within(pid: int, seconds: float) -> int | None:
    """Exit status of a child, negative for a signal; None if it lives after so long."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_PAUSE_SECONDS)


def _redirect(request: ForkRequest) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for path, number in ((request.stdout, 1), (request.stderr, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.close(nothing)
