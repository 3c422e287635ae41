"""The worker's program that times steps beside a process that waits, as who orders it has it.

One device, one request at a time, each with a time limit. Whatever keeps the program from answering
is `TrialFailed` with one clause: what a process raised, how it ended, a limit, a person's signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from appliance.ipc.endings import last_words, status_name
from appliance.ipc.messages import IdleAnswer, IdleRequest
from appliance.ipc.worker_command import asked_process, worker_command
from appliance.records.json import adapter

BEGIN_SECONDS = 180.0
"""How long a process may take to begin: the first imports torch, from a cold disk perhaps."""
ANSWER_SECONDS = 60.0
"""How long any other answer may take beyond the block that was asked for."""
_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.2

Role = Literal["timer", "neighbour"]


class TrialFailed(Exception):
    """Why steps were not timed beside a process that waits: one clause."""


def command() -> list[str]:
    """Starts the program, which ends with this process."""
    return worker_command("idle", str(os.getpid()))


class IdleProgram:
    """The program on the device that its environment shows, until it is closed.

    `memory_bytes` is the device's; `interrupted` names a signal that a person sent, or is empty.
    Its standard error goes to the file `errors`, in a folder where it works.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        errors: Path,
        vendor: str,
        memory_bytes: int,
        interrupted: Callable[[], str],
    ) -> None:
        self._errors = errors
        self._vendor = vendor
        self._memory_bytes = memory_bytes
        self._interrupted = interrupted
        self._process = asked_process(words, environment, errors)

    def begin(self, role: Role) -> None:
        """Have a process of this role begin, and set its device up."""
        self._ask(self._request("begin", role), BEGIN_SECONDS)

    def end(self, role: Role) -> None:
        """Have it end; it is gone when this returns."""
        self._ask(self._request("end", role), ANSWER_SECONDS)

    def time(
        self, kind: str, seconds: float, meanwhile: Callable[[], object] = lambda: None
    ) -> tuple[float, ...]:
        """Seconds of each step of a block; `meanwhile` is called while they are made."""
        request = self._request("time", "timer", kind=kind, seconds=seconds)
        return self._ask(request, seconds + ANSWER_SECONDS, meanwhile)

    def close(self) -> None:
        """End the program, and with it its processes."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _request(
        self, ask: Literal["begin", "time", "end"], role: Role, kind: str = "", seconds: float = 0.0
    ) -> IdleRequest:
        return IdleRequest(
            ask=ask,
            role=role,
            vendor=self._vendor,
            memory_bytes=self._memory_bytes,
            kind=kind,
            seconds=seconds,
        )

    def _ask(
        self,
        request: IdleRequest,
        limit: float,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[float, ...]:
        deadline = time.monotonic() + limit
        self._send(request)
        meanwhile()
        text = self._line(deadline, limit)
        try:
            answer: IdleAnswer = adapter(IdleAnswer).validate_json(text)
        except ValidationError:
            raise TrialFailed("the program that times steps sent what is no answer") from None
        if answer.fault:
            raise TrialFailed(answer.fault)
        return answer.step_seconds

    def _send(self, request: IdleRequest) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was requested
        with contextlib.suppress(BrokenPipeError):  # how it ended shows as no answer comes
            self._process.stdin.write(adapter(IdleRequest).dump_json(request) + b"\n")
            self._process.stdin.flush()

    def _line(self, deadline: float, limit: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was requested
        text = b""
        while not text.endswith(b"\n"):
            if self._interrupted():
                raise TrialFailed(f"stopped by {self._interrupted()}")
            if time.monotonic() >= deadline:
                raise TrialFailed(f"the program that times steps did not answer in {limit:.0f} s")
            if select.select([self._process.stdout], [], [], _PAUSE_SECONDS)[0]:
                part = os.read(self._process.stdout.fileno(), 2**16)
                if not part:
                    raise TrialFailed(self._ending())
                text += part
        return text

    def _ending(self) -> str:
        """How the program ended, with the last line that it wrote."""
        try:
            status = status_name(self._process.wait(_END_SECONDS))
        except subprocess.TimeoutExpired:
            status = "its output closed"
        with self._errors.open("rb") as file:
            lines = last_words(file).splitlines()
        last = f": {lines[-1][:200]}" if lines else ""
        return f"the program that times steps ended with {status}{last}"
