"""What a launch and the runner say to each other over the abstract unix socket of the run.

One connection per rank. The child opens with `Hello`, then sends its records as they arise, one
JSON line each, says `Ready` where it waits for the others of its group, and closes with `End`.
The parent says one word, "go". The socket has no file, so it works on a read-only root, and it
outlives what torchrun does to pipes and sessions. A caller of another user is turned away by
the kernel's word for who it is; one that does not know the launch's token is not heard.

The fork server's lines, which go over pipes, are here as well.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from os import getuid
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from appliance.records import (
    Artifact,
    Block,
    Calibrated,
    Checked,
    Digested,
    Environment,
    LaunchSpec,
    Libraries,
    Outcome,
    Record,
    Started,
    Warmed,
    adapter,
)

GO = b"go\n"
LONGEST_LINE = 64 * 2**20
_CHUNK = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Record):
    """Who is calling."""

    kind: Literal["hello"] = "hello"
    launch: str
    rank: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Record):
    """Built, checked and warm; waits for "go"."""

    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Record):
    """How the launch ended, in the child's own words."""

    kind: Literal["end"] = "end"
    outcome: Outcome
    reason: str
    detail: str


Message = Annotated[
    Hello
    | Ready
    | End
    | Environment
    | Artifact
    | Checked
    | Digested
    | Libraries
    | Started
    | Calibrated
    | Warmed
    | Block,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest(Record):
    """First line that a fork server reads: what to import before any fork."""

    workloads: tuple[str, ...]
    vendor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest(Record):
    """Every other line: a launch, and the files of its stdout and stderr."""

    launch: LaunchSpec
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSays(Record):
    """A line of the server: it is ready or not (and why), it started a launch, one has ended.

    `status` is an exit status, or the negative number of the signal that ended the launch.
    """

    says: Literal["ready", "unhealthy", "started", "ended"]
    reason: str = ""
    pid: int = 0
    status: int = 0


class ProtocolFault(Exception):
    """A line that is no message; the text says which."""


class Link:
    """The child's end."""

    def __init__(self, name: str, hello: Hello) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect("\0" + name)
        self.send(hello)

    def send(self, message: Record) -> None:
        """Send one message; raises OSError when the parent is gone."""
        self._socket.sendall(adapter(type(message)).dump_json(message) + b"\n")

    def wait(self) -> None:
        """Return when the parent says "go"; raises OSError when it is gone."""
        self.send(Ready())
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(64)
            if not part:
                raise ConnectionResetError("the runner is gone")
            answer += part
        if answer != GO:
            raise ConnectionResetError("the runner said something else than go")


class Call:
    """The parent's end of one connection; who it is shows after its `Hello`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        self.socket = connection
        self.hello: Hello | None = None
        self._pending = bytearray()
        self.is_open = True

    def read(self) -> Iterator[Message]:
        """Whole messages that have arrived; ProtocolFault at the first line that is none."""
        while self.is_open and (part := self._receive()) is not None:
            begin = len(self._pending)
            self._pending += part
            self.is_open = bool(part)
            while (stop := self._pending.find(b"\n", begin)) >= 0:
                line = bytes(self._pending[:stop])
                del self._pending[: stop + 1]
                yield _message(line)
                begin = 0
            if len(self._pending) > LONGEST_LINE:
                raise ProtocolFault("a line without an end")

    def _receive(self) -> bytes | None:
        """What is there now; empty at the end of the connection, None when nothing waits."""
        try:
            return self.socket.recv(_CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def go(self) -> None:
        """Let the launch begin its timed steps."""
        try:
            self.socket.sendall(GO)
        except OSError:
            self.is_open = False

    def close(self) -> None:
        self.is_open = False
        self.socket.close()


def _message(line: bytes) -> Message:
    try:
        message: Message = adapter(Message).validate_json(line)
    except ValidationError:
        shown = line[:60].decode("utf-8", "replace")
        raise ProtocolFault(f"a line that is no message: {shown!r}") from None
    return message


class Listener:
    """The parent's socket, by a name that nobody can guess."""

    def __init__(self) -> None:
        self.name = f"bench-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind("\0" + self.name)
        self.socket.listen(128)
        self.socket.settimeout(0)

    def accept(self) -> list[Call]:
        """Callers that wait, of our own user only."""
        calls: list[Call] = []
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return calls
            if _user(connection) == getuid():
                calls.append(Call(connection))
            else:
                connection.close()

    def close(self) -> None:
        self.socket.close()


def _user(connection: socket.socket) -> int:
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])
