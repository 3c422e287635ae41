"""The process of a run's first fork server, begun while the run is still planned.

Importing torch takes longer than to plan, and needs nothing of the plan but the environment that is
there before the first import. That is foreseen here, for the node's first device; the launcher
takes the process only for a server whose environment is the very same, and any other process is
ended unused.

    ahead = HeadStart(run_id)
    ahead.begin(vendor, work)            planning goes on meanwhile
    execution.run(..., ahead=ahead)
    ahead.close()
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from appliance.ipc import processes
from appliance.runner.children import ServerProcess
from appliance.runner.environment import child_environment, usable_cores
from appliance.vendors.base import Vendor


class HeadStart:
    """At most one process that waits for its request, of the run that gets this name.

    `token` is the one of the run, which all of its processes have; `since_ns` is when it was named,
    by the monotonic clock.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.token = secrets.token_hex(16)
        self.since_ns = time.monotonic_ns()
        self._environment: Mapping[str, str] = {}
        self._process: ServerProcess | None = None

    def begin(self, vendor: Vendor, work: Path) -> None:
        """Start importing for launches on the first device; where none may be forked, nothing.

        `work` is the run's working folder.
        """
        devices = vendor.probe()
        if self._process is not None or not (vendor.fork_safe and devices):
            return
        self._environment = child_environment(
            inherited=os.environ,
            work=work.absolute(),
            num_threads=max(1, usable_cores() // len(devices)),
            vendor=vendor.environment(devices[0]),
            tokens={processes.RUN_TOKEN: self.token},
        )
        self._process = ServerProcess(self._environment, work.absolute() / "first.server.stderr")

    def take(self, environment: Mapping[str, str]) -> ServerProcess | None:
        """The process, once, for a server with this environment; None where it has another."""
        if self._process is None or environment != self._environment:
            return None
        process, self._process = self._process, None
        return process

    def close(self) -> None:
        """End a process that nobody took."""
        if self._process is not None:
            self._process.kill()
            self._process = None
