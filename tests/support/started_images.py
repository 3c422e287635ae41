"""Containers of an image, started as a user starts them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

ROOT = Path(__file__).parents[2]

CLOSED: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}


class Started:
    """Containers of one test, removed at its end."""

    def __init__(self, engine: docker.DockerClient, image: str) -> None:
        self.engine, self.image = engine, image
        self.all: list[Container] = []

    def __call__(self, *words: str, **options: Any) -> Container:
        options = {"network_mode": "none", **options}
        container = self.engine.containers.run(self.image, list(words), detach=True, **options)
        self.all.append(container)
        return container


def finish(container: Container) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, once the container has ended."""
    code = container.wait(timeout=1800)["StatusCode"]
    out, err = (
        container.logs(stdout=stdout, stderr=not stdout).decode() for stdout in (True, False)
    )
    assert "Traceback" not in err, err
    return code, out, err


def mounted(folder: Path, inside: str = "/out", mode: str = "rw") -> dict[str, dict[str, str]]:
    return {str(folder): {"bind": inside, "mode": mode}}


def bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "appliance", *map(str, words)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
