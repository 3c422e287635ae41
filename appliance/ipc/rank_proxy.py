"""The program that torchrun starts for a rank which another process forks: it stands for the rank.

It imports no library. It hands its environment and its output streams to the process that forks
the ranks (`RankForks`), waits, and ends as the rank does, by the same exit status or signal.

    python -P -m appliance.ipc.rank_proxy PARENT      dies with PARENT
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from typing import NoReturn

from appliance.ipc import processes

NAME_VARIABLE = "BENCH_RANK_FORKS"
"""Variable with the name of the socket at which ranks are forked; a forked rank has it too."""
STREAMS = (1, 2)
"""Descriptors that are handed over."""
_CHUNK = 2**16


def proxy_command(parent: int) -> list[str]:
    """Command line of a rank's proxy."""
    return [sys.executable, "-P", "-m", "appliance.ipc.rank_proxy", str(parent)]


def _proxy() -> NoReturn:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as forks:
        forks.connect("\0" + os.environ[NAME_VARIABLE])
        socket.send_fds(forks, [b"\0"], STREAMS)
        forks.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        status = b"".join(iter(lambda: forks.recv(_CHUNK), b""))
    if not status:
        sys.exit("the process that forks the ranks has ended")
    _end_with(int(status))


def _end_with(status: int) -> NoReturn:
    """End as the rank did: by its exit status, or by its signal where that is negative."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
        os.kill(os.getpid(), -status)
    os._exit(abs(status))


if __name__ == "__main__":
    processes.die_with(int(sys.argv[1]))
    _proxy()
