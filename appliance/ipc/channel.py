"""The abstract unix socket of a launch: one connection per rank, lines of JSON."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from os import getuid
from typing import get_args

from pydantic import ValidationError

from appliance.ipc.messages import Hello, Message, Ready
from appliance.ipc.processes import user_of
from appliance.records.journal import AheadThrough
from appliance.records.json import Record, adapter

GO = b"go\n"
TURN = b"turn"
GO_ON = b"on"
PLACES: dict[bytes, AheadThrough] = {place.encode(): place for place in get_args(AheadThrough)}
LONGEST_LINE = 64 * 2**20
_CHUNK = 2**16


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
        """Return when the parent sends "go"; raises OSError when it is gone."""
        self.send(Ready())
        if self._word() != GO:
            raise ConnectionResetError("the runner sent something else than go")

    def wait_for_turn(self) -> int | AheadThrough:
        """Return when a launch that was ordered ahead begins: that moment, on CLOCK_MONOTONIC.

        Of a process that stands by it may be how far it goes on first. Raises OSError when the
        parent is gone.
        """
        word, _, said = self._word().strip().partition(b" ")
        if word == GO_ON and said in PLACES:
            return PLACES[said]
        if word != TURN or not said.isdigit():
            raise ConnectionResetError("the runner sent something else than the launch's begin")
        return int(said)

    def _word(self) -> bytes:
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(64)
            if not part:
                raise ConnectionResetError("the runner is gone")
            answer += part
        return answer


class Connection:
    """The parent's end of one connection; who it is is known after its `Hello`."""

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
                yield _parsed(line)
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
        self._say(GO)

    def turn(self, began_ns: int) -> None:
        """Let a process that was started ahead make its launch, which began at this moment."""
        self._say(TURN + b" %d\n" % began_ns)

    def go_on(self, through: AheadThrough) -> None:
        """Let a process that stands by go on as far as that."""
        self._say(GO_ON + b" %s\n" % through.encode())

    def _say(self, word: bytes) -> None:
        try:
            self.socket.sendall(word)
        except OSError:
            self.is_open = False

    def close(self) -> None:
        self.is_open = False
        self.socket.close()


def _parsed(line: bytes) -> Message:
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

    def accept(self) -> list[Connection]:
        """Connections that wait, of our own user only."""
        connections: list[Connection] = []
        while True:
            try:
                accepted, _ = self.socket.accept()
            except OSError:
                return connections
            if user_of(accepted) == getuid():
                connections.append(Connection(accepted))
            else:
                accepted.close()

    def close(self) -> None:
        self.socket.close()
