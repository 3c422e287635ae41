"""Forks of a process that has one thread: a child that does one thing, and ranks on demand.

A library imported once is there in every fork. Ranks are forked for the proxies (`rank_proxy`)
that torchrun starts in their stead: a proxy that is ended takes its rank along, and a rank dies
with the process that forked it.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from appliance.ipc import processes
from appliance.ipc.rank_proxy import STREAMS

_CHUNK = 2**16


class Fork:
    """A child that does `work`, dies with its parent, and is watched as a subprocess.Popen is."""

    def __init__(self, work: Callable[[], object]) -> None:
        parent = os.getpid()
        self.pid = os.fork()
        self._status: int | None = None
        if self.pid == 0:
            exit_after(partial(_of_parent, parent, work))

    def poll(self) -> int | None:
        """None while it lives; then its exit status, or the negative number of its signal."""
        if self._status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if done else None
        return self._status

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def _of_parent(parent: int, work: Callable[[], object]) -> None:
    processes.die_with(parent)
    work()


def exit_after(work: Callable[[], object]) -> NoReturn:
    """End this process as a program ends that does `work`, but run no exit handler."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, its parent sees the status
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class RankForks:
    """Forks a rank for each proxy that calls; `begin` is the rank, and never returns.

    Its process must have no thread but the one that calls `serve`.
    """

    def __init__(self, begin: Callable[[], NoReturn]) -> None:
        self._begin = begin
        self.name = f"bench-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.name)
        self._listener.listen(128)
        self._proxies: dict[int, socket.socket] = {}

    def serve(self, seconds: float) -> None:
        """Fork and end ranks as their proxies come and go, for so long or until one did."""
        proxies = {proxy: pid for pid, proxy in self._proxies.items()}
        for end in select.select([self._listener, *proxies], [], [], seconds)[0]:
            if end is self._listener:
                self._accept()
            else:  # it has nothing more to say, so it has ended
                os.kill(proxies[end], signal.SIGKILL)
        self._reap()

    def _accept(self) -> None:
        proxy, _ = self._listener.accept()
        pid = None
        if processes.user_of(proxy) == os.getuid():
            _, streams, _, _ = socket.recv_fds(proxy, 1, len(STREAMS))
            environment = _line(proxy)
            if environment:
                pid = self._fork(proxy, streams, environment)
            for stream in streams:
                os.close(stream)
        if pid is None:
            proxy.close()
        else:
            self._proxies[pid] = proxy

    def _fork(self, proxy: socket.socket, streams: Sequence[int], environment: bytes) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            processes.die_with(parent)
            for end in (self._listener, proxy, *self._proxies.values()):
                end.close()
            for stream, number in zip(streams, STREAMS, strict=True):
                os.dup2(stream, number)
                os.close(stream)
            os.environ.clear()
            os.environ.update(json.loads(environment))
            self._begin()
        finally:
            os._exit(70)  # never back into the loop

    def _reap(self) -> None:
        for pid, proxy in list(self._proxies.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._proxies[pid]
                with proxy:
                    _send(proxy, f"{os.waitstatus_to_exitcode(status)}".encode())


def _send(proxy: socket.socket, text: bytes) -> None:
    try:
        proxy.sendall(text)
    except OSError:
        return  # it has ended


def _line(connection: socket.socket) -> bytes:
    """A line without its end; empty if the connection ends before."""
    text = b""
    while not text.endswith(b"\n"):
        part = connection.recv(_CHUNK)
        if not part:
            return b""
        text += part
    return text[:-1]
