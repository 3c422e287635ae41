"""The worker's program for trials of a process that waits, whose neighbour does something else.

    python -m faulty.neighbours MANNER PARENT

"computes" takes the time of every processor until it is ended; "dies" kills itself while it waits;
"lacks" finds no memory on the device.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import cast

import torch

from appliance.ipc.forks import Fork
from appliance.ipc.messages import IdleAnswer
from appliance.worker import child
from appliance.worker.idle import roles

SPINNING = 4
"""Processes, on two processors, beside which a step takes about three times as long."""


def _spin() -> None:
    while True:
        pass


def computes(answer: int) -> None:
    asked = roles.requests()
    next(asked)
    spinning = [Fork(_spin) for _ in range(SPINNING)]
    roles.send(answer, IdleAnswer())
    for _ in asked:
        pass
    for one in spinning:
        one.terminate()


def dies(answer: int) -> None:
    next(roles.requests())
    roles.send(answer, IdleAnswer())
    os.kill(os.getpid(), signal.SIGKILL)


def lacks(answer: int) -> None:
    next(roles.requests())
    with roles.faults_sent(answer):
        raise torch.OutOfMemoryError("out of memory: tried to allocate 64 MiB")


MANNERS: Mapping[str, Callable[[int], None]] = {"computes": computes, "dies": dies, "lacks": lacks}

if __name__ == "__main__":
    own = cast("dict[str, Callable[[int], None]]", roles.ROLES)
    own["neighbour"] = MANNERS[sys.argv[1]]
    child.main(["idle", sys.argv[2]])
