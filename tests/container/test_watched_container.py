"""A burn-in in a container, watched from the host by the folder that is mounted into it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from support.short_segments import short_segments
from support.started_images import Started, bench, mounted

from appliance.watching.status import SHOWN

SUITE = short_segments(
    "watched", 40, block_seconds=1.0, seconds=(4, 4), more='parameters = { formats = "float32" }'
)
ENOUGH_SECONDS = 600

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def start(engine: docker.DockerClient, image: str) -> Iterator[Started]:
    started = Started(engine, image)
    yield started
    for container in started.all:
        container.remove(force=True)


def look(out: Path) -> dict[str, Any]:
    """What the host's `bench watch` says of the newest run, in one document."""
    done = bench("watch", out, "--once", "--json")
    assert done.returncode in (0, 2, 3), done.stderr  # 2 before there is a run
    return dict(json.loads(done.stdout)) if done.stdout else {}


def test_host_watches_a_burn_in_that_runs_in_a_container(start: Started, tmp_path: Path) -> None:
    out, suite = tmp_path / "out", tmp_path / "suite"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    suite.mkdir()
    (suite / "watched.toml").write_text(SUITE)
    volumes = {**mounted(out), **mounted(suite, "/suite", "ro")}
    container = start("run", "--suite", "/suite/watched.toml", volumes=volumes)
    seen: dict[str, Any] = {}
    begin = time.monotonic()
    while not seen.get("products") and time.monotonic() - begin < ENOUGH_SECONDS:
        container.reload()
        assert container.status != "exited", container.logs().decode()
        time.sleep(2)
        seen = look(out)
    assert seen["state"] == "running"
    assert seen["products"] > 0
    assert seen["mismatches"] == 0
    assert seen["done"] < seen["launches"] == 41
    assert seen["remaining_seconds"] > 0
    (device,) = seen["devices"]
    assert device["device"] == "cpu:0"
    assert device["age_seconds"] >= 0
    assert set(device["values"]) <= set(SHOWN)  # of processors as far as their kernel reports them
    shown = bench("watch", out, "--once")
    assert "proven" in shown.stdout + shown.stderr
