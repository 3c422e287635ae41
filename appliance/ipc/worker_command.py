"""How a child is started: the one place that knows the program's module."""

from __future__ import annotations

import sys

WORKER_MODULE = "appliance.worker.entry"


def worker_command(*arguments: str) -> list[str]:
    """Command line of the worker; `-P` keeps its working directory out of what it imports."""
    return [sys.executable, "-P", "-m", WORKER_MODULE, *arguments]
