"""Messages of a fork server are read, however its lines come together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.ipc.messages import ServeRequest, ServerMessage
from appliance.records.json import adapter
from appliance.runner import children

MESSAGES = (
    ServerMessage(state="ready"),
    ServerMessage(state="started", pid=7),
    ServerMessage(state="ended", pid=7, status=-6),
    ServerMessage(state="ended", pid=8, status=0),
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[children.ForkServer]:
    """One that has sent everything at once, as for a reader who got no processor meanwhile."""
    lines = b"".join(adapter(ServerMessage).dump_json(one) + b"\n" for one in MESSAGES)
    program = f"import os, sys; os.write(1, {lines!r}); sys.stdin.read()"
    monkeypatch.setattr(children, "worker_command", lambda *_: [sys.executable, "-c", program])
    request = ServeRequest(workloads=(), vendor="cpu", framework="torch", probe_seconds=1.0)
    forkserver = children.ForkServer(request, children.ServerProcess({}, tmp_path / "stderr"))
    yield forkserver
    forkserver.close()


def test_launch_that_ended_before_its_start_was_read_has_its_status(
    server: children.ForkServer,
) -> None:
    assert server.health(lambda: "") == children.Health()
    assert server._next_message(60.0) == MESSAGES[1]
    assert (server.status(7), server.status(8), server.status(9)) == (-6, 0, None)
