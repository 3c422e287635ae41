"""The simulated accelerator that other tests rely on: what it does well, and each way to lie."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support import simulated_device
from support.program import ROOT, WITH_FAULTS
from support.simulated_checks import CHECKS


@pytest.fixture(scope="module")
def errors(simulated_accelerator: None) -> dict[str, str]:
    """What went wrong in each check, by its name; all are made by one process."""
    del simulated_accelerator
    done = subprocess.run(
        [sys.executable, "-m", "support.simulated_checks"],
        cwd=ROOT,
        env=WITH_FAULTS,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CHECKS)
def test_simulated_accelerator(errors: dict[str, str], name: str) -> None:
    assert errors[name] == ""


def test_every_fault_has_a_check() -> None:
    planted = " ".join(
        variables.get(simulated_device.PLANTED, "") for _, variables in CHECKS.values()
    )
    of_the_driver = {"unlinked"}  # the device itself knows nothing of it
    names = {word.partition("=")[0] for word in planted.split()}
    assert names == simulated_device.FAULTS.keys() - of_the_driver


def test_device_is_built_anew_for_another_source(monkeypatch: pytest.MonkeyPatch) -> None:
    before = simulated_device.library()
    monkeypatch.setattr(simulated_device, "SOURCE", simulated_device.SOURCE.with_suffix(".py"))
    assert simulated_device.library() != before
