"""A launcher without a run, and launches that it starts, with what they print."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from faulty.vendor import Vendor
from support.launching import SEED, plan

from appliance.ipc.channel import Listener
from appliance.records.plan import Case
from appliance.records.request import LaunchSpec
from appliance.records.suite import LaunchMode, LibraryMode
from appliance.runner.launcher import Launcher

LONG = 300.0


def a_launcher(work: Path, cases: Sequence[Case], mode: LaunchMode = "forked") -> Launcher:
    vendor = Vendor()
    return Launcher(
        plan=plan(*cases, mode=mode),
        vendors={vendor.name: vendor},
        devices={device.id: device for device in vendor.probe()},
        work=work,
        num_threads=1,
        token="run",  # noqa: S106 - names the processes
        interrupted=lambda: "",
    )


def a_spec(launcher: Launcher, one: Case, listener: Listener, mode: LibraryMode) -> LaunchSpec:
    """The untimed launch of a case, which waits for nobody."""
    return LaunchSpec(
        launch=f"{one.id}/0",
        case=one,
        vendor=Vendor.name,
        protocol=launcher.plan.protocol,
        is_timed=False,
        check_last=False,
        seed=int(SEED[:8], 16),
        data=None,
        artifacts_folder=str(launcher.work / "artifacts"),
        artifacts={},
        socket=listener.name,
        token="launch",  # noqa: S106 - names the processes
        num_threads=1,
        library_mode=mode,
    )


def printed(launcher: Launcher, spec: LaunchSpec) -> str:
    """What a launch writes to its stdout until it has ended with success."""
    out = launcher.work / "stdout"
    child = launcher.start(spec, out, launcher.work / "stderr")
    deadline = time.monotonic() + LONG
    while (status := child.status()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status == 0, (launcher.work / "stderr").read_text()
    return out.read_text().strip()
