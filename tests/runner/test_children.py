"""What a fork server says of its launches is heard, however its lines come together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.ipc.messages import ServerSays
from appliance.records.json import adapter
from appliance.runner import children

SAID = (
    ServerSays(says="ready"),
    ServerSays(says="started", pid=7),
    ServerSays(says="ended", pid=7, status=-6),
    ServerSays(says="ended", pid=8, status=0),
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[children.ForkServer]:
    """One that has said everything at once, as a reader finds it who got no processor meanwhile."""
    lines = b"".join(adapter(ServerSays).dump_json(one) + b"\n" for one in SAID)
    program = f"import os, sys; os.write(1, {lines!r}); sys.stdin.read()"
    monkeypatch.setattr(children, "worker", lambda *_: [sys.executable, "-c", program])
    made = children.ForkServer((), "cpu", {}, tmp_path / "stderr")
    yield made
    made.close()


def test_launch_that_ended_before_its_start_was_heard_has_its_status(
    server: children.ForkServer,
) -> None:
    assert server.fault(lambda: "") == ""
    assert server._hear(60.0) == SAID[1]
    assert (server.status(7), server.status(8), server.status(9)) == (-6, 0, None)
