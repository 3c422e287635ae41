"""How a child is started: the one place that knows the program's module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

WORKER_MODULE = "appliance.worker.entry"


def worker_command(*arguments: str) -> list[str]:
    """Command line of the worker; `-P` keeps its working directory out of what it imports."""
    return [sys.executable, "-P", "-m", WORKER_MODULE, *arguments]


def asked_process(
    words: Sequence[str], environment: Mapping[str, str], stderr: Path
) -> subprocess.Popen[bytes]:
    """A worker that is asked on its standard input and answers on its standard output.

    It works in the folder of the file that its standard error is added to, in a session of its own.
    """
    with stderr.open("ab") as err:
        return subprocess.Popen(  # noqa: S603 - our own worker
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            env=dict(environment),
            cwd=stderr.parent,
            start_new_session=True,
        )
