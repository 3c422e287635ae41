"""The process that begins and ends the timer and its neighbour, and passes on what is asked.

It has imported torch and has run nothing, as a fork server has, so the two are forks of it wherever
launches are; elsewhere each is a program of its own. It is asked in `IdleRequest` lines on standard
input, one at a time, and answers each with an `IdleAnswer`.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import time
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from appliance.ipc import processes
from appliance.ipc.endings import status_name
from appliance.ipc.forks import Fork
from appliance.ipc.messages import IdleAnswer, IdleRequest
from appliance.ipc.worker_command import worker_command
from appliance.records.json import adapter
from appliance.vendors.registry import make_vendor
from appliance.worker.idle.roles import ROLES, requests, send

NAMES = {"timer": "the process that times steps", "neighbour": "the process that waits"}
_PAUSE_SECONDS = 0.005


class _Process(Protocol):
    def poll(self) -> int | None: ...


class RoleProcess:
    """A process with a role, begun as a launch of the vendor's is; `inherited` is not for it."""

    def __init__(self, role: str, inherited: Iterable[int], *, is_forked: bool) -> None:
        self._role = role
        ours, self._requests = os.pipe()
        self._answers, theirs = os.pipe()
        self.ends = (self._requests, self._answers)
        self._process: _Process
        if is_forked:
            closed = (*inherited, *self.ends)
            with processes.forking():
                self._process = Fork(partial(_in_fork, role, ours, theirs, closed))
        else:
            self._process = subprocess.Popen(  # noqa: S603 - our own worker
                worker_command("idle-role", str(os.getpid()), role), stdin=ours, stdout=theirs
            )
        for end in (ours, theirs):
            os.close(end)

    def ask(self, request: IdleRequest) -> IdleAnswer:
        """Its answer, or how it ended instead."""
        text = b""
        try:
            os.write(self._requests, adapter(IdleRequest).dump_json(request) + b"\n")
        except BrokenPipeError:
            return self._ending()
        while not text.endswith(b"\n"):
            part = os.read(self._answers, 2**16)
            if not part:
                return self._ending()
            text += part
        answer: IdleAnswer = adapter(IdleAnswer).validate_json(text)
        return answer

    def end(self) -> IdleAnswer:
        """Let it end, and wait until the kernel has let it go; a fault where it had ended so."""
        os.close(self._requests)
        status = self._status()
        os.close(self._answers)
        return IdleAnswer() if status == 0 else self._ending()

    def _ending(self) -> IdleAnswer:
        return IdleAnswer(fault=f"{NAMES[self._role]} ended with {status_name(self._status())}")

    def _status(self) -> int:
        while (status := self._process.poll()) is None:
            time.sleep(_PAUSE_SECONDS)
        return status


def _in_fork(role: str, ours: int, theirs: int, closed: Iterable[int]) -> None:
    """Be the process; what the hub alone reads and writes is closed, so that its end is seen."""
    for end in closed:
        os.close(end)
    os.dup2(ours, 0)
    os.close(ours)
    ROLES[role](theirs)


def serve(answer: int) -> None:
    """Answer what is asked on standard input, until it ends; so do all that were begun then."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.collect()
    gc.freeze()  # a collection in a fork would visit what was imported, and copy its memory
    roles: dict[str, RoleProcess] = {}
    for request in requests():
        if request.ask == "begin":
            inherited = [answer, *(end for one in roles.values() for end in one.ends)]
            is_forked = make_vendor(request.vendor).fork_safe
            roles[request.role] = RoleProcess(request.role, inherited, is_forked=is_forked)
        send(answer, _answered(roles, request))


def _answered(roles: dict[str, RoleProcess], request: IdleRequest) -> IdleAnswer:
    if request.ask == "end":
        return roles.pop(request.role).end()
    return roles[request.role].ask(request)
