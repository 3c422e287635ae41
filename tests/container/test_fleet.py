"""A campaign whose jobs start the image by docker, on a real Slurm and a real engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from support import slurm
from support.campaigns import answer, nodes, planned
from support.program import ROOT, called
from support.slurm import Cluster, wait_for

from appliance.container.container_options import LABEL

pytestmark = [pytest.mark.container, pytest.mark.slow]
SECONDS = 300.0


@pytest.fixture
def cluster(
    engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Virtual nodes whose jobs find the engine of the tests."""
    lacking = slurm.missing()
    if lacking and not os.environ.get("REQUIRE_SLURM"):
        pytest.skip(f"there is no Slurm: {lacking}")
    with slurm.cluster(tmp_path / "slurm") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.api._custom_adapter.socket_path}")
        yield made


def test_a_campaign_by_docker_is_interrupted_by_slurm_goes_on_and_is_accepted(
    cluster: Cluster, engine: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    keys, program = tmp_path / "keys", tmp_path / "bench"
    assert called("keys", "create", "Buyer", "--out", str(keys)).returncode == 0
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m appliance "$@"\n')
    program.chmod(0o755)
    launcher = f'kind = "docker"\nimage = "{image}"'
    campaign = planned(tmp_path, keys, program, nodes="n1,a", launcher=launcher)
    place = campaign / "nodes" / "n1"

    def state() -> dict[str, object]:
        return nodes(campaign, keys)["n1"]

    def is_launching() -> bool:
        journals = place.glob("runs/*/journal.jsonl")
        return any(b"launch_started" in path.read_bytes() for path in journals)

    job = answer("submit", campaign, keys)["submitted"]["n1"]
    wait_for(is_launching, "the image runs", SECONDS)
    # what Slurm sends before a time limit by --signal=B:INT
    cluster.ask("scancel", "--signal=INT", "--batch", str(job))
    wait_for(lambda: state()["state"] == "open", "the run is interrupted", SECONDS)
    assert (state()["attempts"], state()["failed"]) == (1, 1)
    assert "bench start --resume" in (place / "jobs" / "attempt-1.out").read_text()
    assert engine.containers.list(all=True, filters={"label": LABEL}) == []

    assert answer("submit", campaign, keys)["submitted"].keys() == {"n1"}
    wait_for(lambda: state()["state"] == "accepted", "the next job goes on with it", SECONDS)
    (run,) = place.glob("runs/2*")
    assert '"run_resumed"' in (run / "journal.jsonl").read_text()
    # the bundle counts from when it is there; the job, which verifies it after that, may go on
    said = place / "jobs" / "attempt-2.out"
    wait_for(lambda: "verified here: ACCEPTED" in said.read_text(), "the job verifies it", SECONDS)
