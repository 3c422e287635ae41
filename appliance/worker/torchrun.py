"""The ranks of a launch: torchrun starts them, or several torchruns that meet as on so many nodes.

All meet on the loopback interface at a port that is free; no name is looked up. The ranks find
the LaunchSpec in the environment, as torchrun's processes share one standard input.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from torch._C._distributed_c10d import TCPStore

from appliance.ipc.processes import SHELL_SIGNAL_BASE
from appliance.ipc.worker_command import worker_command
from appliance.records.json import adapter
from appliance.records.request import LaunchSpec

SPEC_VARIABLE = "BENCH_RANK_SPEC"
"""Variable with the LaunchSpec of a rank."""
PORT_VARIABLE = "BENCH_MEETING"
"""Variable with the port at which several agents meet."""
AGENT_SECONDS, AGENT_TICK_SECONDS = 30.0, 0.05
"""How long the other agents go on when one has failed, and how often their status is read."""
LOOPBACK = "127.0.0.1"


def run_launch(spec: LaunchSpec, text: bytes) -> NoReturn:
    """Be torchrun for the ranks of a launch, or start several; `text` is the spec as JSON."""
    os.environ[SPEC_VARIABLE] = text.decode()
    if spec.case.agents > 1:
        sys.exit(run_agents(spec.case.agents))
    _run_ranks(spec.ranks, f"--rdzv-endpoint={LOOPBACK}:0")


def rank_spec() -> LaunchSpec:
    """The launch that this process is a rank or an agent of."""
    spec: LaunchSpec = adapter(LaunchSpec).validate_json(os.environ[SPEC_VARIABLE])
    return spec


def run_agents(count: int) -> int:
    """Start so many agents that meet at a store of this process; the status of their failure, or 0.

    When one has failed the others have some time to end their own ranks, and then are terminated.
    Their status until then counts as well: the first to fail may only have lost the culprit.
    """
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    os.environ[PORT_VARIABLE] = str(store.port)
    command = worker_command("agent", str(os.getpid()))
    agents = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603 - our own worker
    deadline, failed = math.inf, 0
    while any(agent.poll() is None for agent in agents):
        if failed := _failure(agents):
            deadline = min(deadline, time.monotonic() + AGENT_SECONDS)
        if time.monotonic() > deadline:
            _terminate(agents)
            return failed
        time.sleep(AGENT_TICK_SECONDS)
    return _failure(agents)


def _terminate(agents: Sequence[subprocess.Popen[bytes]]) -> None:
    for agent in agents:
        agent.terminate()
    while any(agent.poll() is None for agent in agents):
        time.sleep(AGENT_TICK_SECONDS)


def _failure(agents: Sequence[subprocess.Popen[bytes]]) -> int:
    """Exit status for the agents that have failed: the signal of a rank before all else; or 0.

    An agent that was killed itself counts as a rank does: a shell's number for the signal.
    """
    failed = [status for agent in agents if (status := agent.poll())]
    statuses = [SHELL_SIGNAL_BASE - status if status < 0 else status for status in failed]
    return max(statuses, default=0)


def run_agent() -> NoReturn:
    """Be one of several torchruns, with its share of the ranks."""
    case = rank_spec().case
    meeting = f"--rdzv-endpoint={LOOPBACK}:{os.environ[PORT_VARIABLE]}"
    several = [f"--nnodes={case.agents}", "--rdzv-id=launch", "--rdzv-conf=is_host=false"]
    _run_ranks(case.ranks // case.agents, meeting, *several)


def _run_ranks(count: int, *meeting: str) -> NoReturn:
    """Start the ranks, end them all when one fails; the exit status is that of the failure."""
    from torch.distributed import run as torchrun  # noqa: PLC0415 - one alone does without
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    here = ["--rdzv-backend=c10d", f"--local-addr={LOOPBACK}", *meeting]
    rank = worker_command("rank", str(os.getpid()))
    try:
        torchrun.main([f"--nproc-per-node={count}", *here, "--no-python", *rank])
    except ChildFailedError as error:
        sys.stderr.write(f"{error}\n")
        failures = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        sys.exit(_exit_status([failure.exitcode for failure in failures]))
    sys.exit(0)


def _exit_status(exit_codes: Sequence[int]) -> int:
    """The signal that ended a rank first, as a shell reports it; 1 if no signal did.

    Those that torchrun had to end itself it ends by SIGTERM.
    """
    signals = [-code for code in exit_codes if code < 0 and -code != signal.SIGTERM]
    return SHELL_SIGNAL_BASE + signals[0] if signals else 1
