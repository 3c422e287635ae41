"""Engines that tests have started, once they answer."""

import socket
import subprocess
import time
from pathlib import Path

import docker
import pytest


def connect(folder: Path, process: subprocess.Popen[bytes]) -> docker.DockerClient:
    """A client of the engine, once it answers."""
    for _ in range(3000):
        with socket.socket(socket.AF_UNIX) as trial:
            if trial.connect_ex(f"{folder}/socket") == 0:
                return docker.DockerClient(base_url=f"unix://{folder}/socket", timeout=1800)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"the engine did not start:\n{(folder / 'log').read_text()[-2000:]}")
