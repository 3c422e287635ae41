"""The ranks of a launch: torchrun makes them, or several torchruns that meet as on so many nodes.

All meet on the loopback interface at a port that is free; no name is looked up.

Importing the libraries takes longer than most launches, so where a fork is safe they are imported
once: the launch's first process, which a fork server may have forked, has what the ranks need and
forks both torchrun and, for each proxy that torchrun starts, a rank. Elsewhere each is a program of
its own, which reads the LaunchSpec from memory that the first process shares, as torchrun's
processes share one standard input, and a variable holds no digests of thousands of tensors.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

from torch._C._distributed_c10d import TCPStore

from appliance.ipc import processes
from appliance.ipc.forks import Fork, RankForks, exit_after
from appliance.ipc.import_watch import ImportWatch
from appliance.ipc.probe_fork import PROBE_SECONDS, probed
from appliance.ipc.processes import SHELL_SIGNAL_BASE
from appliance.ipc.rank_proxy import NAME_VARIABLE, proxy_command
from appliance.ipc.worker_command import worker_command
from appliance.records.json import adapter, to_json
from appliance.records.plan import Case
from appliance.records.request import LaunchSpec
from appliance.vendors.registry import make_vendor
from appliance.worker.forkserver import compute_probe
from appliance.worker.workload_loader import import_to_fork

SPEC_VARIABLE = "BENCH_RANK_SPEC"
"""Variable with the path of a rank's LaunchSpec."""
PORT_VARIABLE = "BENCH_MEETING"
"""Variable with the port at which several agents meet."""
AGENT_SECONDS, AGENT_TICK_SECONDS = 30.0, 0.05
"""How long the other agents go on when one has failed, and how often their status is read."""
LOOPBACK = "127.0.0.1"
HERE: tuple[str, ...] = (f"--rdzv-endpoint={LOOPBACK}:0",)
"""How one torchrun meets its ranks."""


class Agent(Protocol):
    """A process that is torchrun."""

    def poll(self) -> int | None:
        """None while it lives; then its exit status, or the negative number of its signal."""

    def terminate(self) -> None: ...


def run_launch(spec: LaunchSpec, text: bytes, begin: Callable[[], NoReturn] | None) -> NoReturn:
    """Have torchrun make the ranks of a launch, or several torchruns; `text` is the spec as JSON.

    They are forked from this process, as is torchrun, if it is told how a rank begins: see
    `forked_ranks`. Else all are programs of their own.
    """
    os.environ[processes.LAUNCH_TOKEN] = spec.token
    if begin is not None:
        sys.exit(_forked_agents(spec.case, begin))
    share_spec(text)
    if spec.case.agents > 1:
        sys.exit(_agent_programs(spec.case.agents))
    _run_ranks(spec.ranks, worker_command("rank", str(os.getpid())), HERE)


def fork_ranks_by(launch: Callable[[LaunchSpec], NoReturn]) -> Callable[[LaunchSpec], NoReturn]:
    """How a fork of a server begins a launch of several ranks, each of which is a `launch`."""

    def begin(spec: LaunchSpec) -> NoReturn:
        exit_after(partial(run_launch, spec, to_json(spec), partial(launch, spec)))

    return begin


def import_torchrun() -> str:
    """Import torch's program, which whoever forks several of it has before; its module's name."""
    from torch.distributed import run as torchrun  # noqa: PLC0415 - what has no ranks does without

    return torchrun.__name__


def share_spec(text: bytes) -> None:
    """Let the programs that this process starts read a LaunchSpec, as JSON, while it lives."""
    memory = os.memfd_create("launch-spec")
    with os.fdopen(os.dup(memory), "wb") as file:
        file.write(text)
    os.environ[SPEC_VARIABLE] = f"/proc/{os.getpid()}/fd/{memory}"


def rank_spec() -> LaunchSpec:
    """The launch that this process is a rank or an agent of."""
    text = Path(os.environ[SPEC_VARIABLE]).read_bytes()
    spec: LaunchSpec = adapter(LaunchSpec).validate_json(text)
    return spec


def forked_ranks(spec: LaunchSpec, begin: Callable[[], NoReturn]) -> Callable[[], NoReturn] | None:
    """`begin` if ranks may be forked from this process; then it has imported what they need."""
    vendor = make_vendor(spec.vendor)
    if not vendor.fork_safe:
        return None
    imports = ImportWatch()
    import_to_fork(spec.case.workload)
    imports.imported(spec.case.workload)
    result = probed(imports, lambda: compute_probe(vendor, "torch"), PROBE_SECONDS)
    if result.reason:
        reason = f"the ranks are programs of their own: {result.reason}\n{result.last_words}"
        print(reason, file=sys.stderr)  # noqa: T201 - a log
        return None
    return begin


def _forked_agents(case: Case, begin: Callable[[], NoReturn]) -> int:
    """Start torchrun, or several, for ranks that this process forks; the status of a failure, or 0.

    This process starts no thread: what does, torchrun and the store at which several meet, runs
    in forks of it.
    """
    forks = RankForks(begin)
    os.environ[NAME_VARIABLE] = forks.name
    endpoint = HERE
    if case.agents > 1:
        os.environ[PORT_VARIABLE] = str(_meeting_port())
        endpoint = _meeting(case)

    def agent() -> NoReturn:
        _run_ranks(case.ranks // case.agents, proxy_command(os.getpid()), endpoint)

    return run_agents([Fork(agent) for _ in range(case.agents)], forks.serve)


def _meeting_port() -> int:
    """Port of a store that a process of its own has."""
    reader, writer = os.pipe()

    def have_store() -> NoReturn:
        store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
        os.write(writer, f"{store.port}\n".encode())
        while True:
            signal.pause()

    Fork(have_store)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return int(answer.readline())


def _agent_programs(count: int) -> int:
    """Start torchruns that meet at a store of this process; the status of a failure, or 0."""
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    os.environ[PORT_VARIABLE] = str(store.port)
    command = worker_command("agent", str(os.getpid()))
    agents = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603 - our own worker
    return run_agents(agents, time.sleep)


def run_agents(agents: Sequence[Agent], wait: Callable[[float], object]) -> int:
    """Wait until these agents have ended; the status of their failure, or 0.

    When one has failed the others have some time to end their own ranks, and then are terminated.
    Their status until then counts as well: the first to fail may only have lost the culprit.
    """
    deadline, failed = math.inf, 0
    while any(agent.poll() is None for agent in agents):
        if failed := _failure(agents):
            deadline = min(deadline, time.monotonic() + AGENT_SECONDS)
        if time.monotonic() > deadline:
            _terminate(agents, wait)
            return failed
        wait(AGENT_TICK_SECONDS)
    return _failure(agents)


def _terminate(agents: Sequence[Agent], wait: Callable[[float], object]) -> None:
    for agent in agents:
        agent.terminate()
    while any(agent.poll() is None for agent in agents):
        wait(AGENT_TICK_SECONDS)


def _failure(agents: Sequence[Agent]) -> int:
    """Exit status for the agents that have failed: the signal of a rank before all else; or 0.

    An agent that was killed itself counts as a rank does: a shell's number for the signal.
    """
    failed = [status for agent in agents if (status := agent.poll())]
    statuses = [SHELL_SIGNAL_BASE - status if status < 0 else status for status in failed]
    return max(statuses, default=0)


def run_agent() -> NoReturn:
    """Be one of several torchruns, with its share of the ranks."""
    case = rank_spec().case
    rank = worker_command("rank", str(os.getpid()))
    _run_ranks(case.ranks // case.agents, rank, _meeting(case))


def _meeting(case: Case) -> tuple[str, ...]:
    """How each of several torchruns meets the others."""
    endpoint = f"--rdzv-endpoint={LOOPBACK}:{os.environ[PORT_VARIABLE]}"
    return (endpoint, f"--nnodes={case.agents}", "--rdzv-id=launch", "--rdzv-conf=is_host=false")


def _run_ranks(count: int, rank: Sequence[str], meeting: Sequence[str]) -> NoReturn:
    """Start the ranks, end them all when one fails; the exit status is that of the failure."""
    from torch.distributed import run as torchrun  # noqa: PLC0415 - one alone does without
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    here = ["--rdzv-backend=c10d", f"--local-addr={LOOPBACK}", *meeting]
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
