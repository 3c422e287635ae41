"""A cluster of Slurm on this machine: a controller and virtual nodes, on ports of its own.

The daemons are Debian's (slurm-wlm, munge), of this user, with state, keys and sockets in a folder
of the test; nothing of the machine's own Slurm is read or written. All of them end with the test,
whatever becomes of it. The nodes share this machine's processors, so nothing is said of speed.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TOOLS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "sinfo",
    "scontrol",
    "scancel",
)
NODES = ("n1", "n2", "n3", "n4")
APART, LIMITED = "n5", "n6"
"""Two more nodes, for jobs that take long and hinder nobody; the second has accelerators."""
SECONDS = 300.0
"""Longer than the slowest machine needs for anything that is waited for."""
STEP = "slurmstepd"
PORTS = range(20_000, 32_000)
SBIN = "/usr/sbin:/sbin"
PATH = f"{os.environ.get('PATH', '')}{os.pathsep}{SBIN}"
CONFIGURATION = """\
ClusterName=benchtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=30
MessageTimeout=8
KillWait=30
MinJobAge=300
SchedulerParameters=bf_interval=1,sched_interval=2,defer
GresTypes=gpu
{nodes}
PartitionName=all Nodes=n[1-6] Default=YES State=UP MaxTime=60
"""


def missing() -> str:
    """What this machine lacks for a cluster; empty if nothing."""
    return ", ".join(tool for tool in TOOLS if shutil.which(tool, path=PATH) is None)


@dataclass(frozen=True)
class Cluster:
    """A running cluster; its commands find it by `environment`."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.configuration), "PATH": PATH}

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def ask(self, *words: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        return done.stdout

    # ------------------------------------------------------------ daemons

    def start_controller(self) -> None:
        self._daemon("slurmctld", "-f", str(self.configuration))
        wait_for(self._is_up, "slurmctld answers")

    def stop_controller(self) -> None:
        """As an operator stops it: killed, it would come back with jobs that were cancelled last.

        It saves them seconds after a change, or when it is asked to end.
        """
        pid = self._pid("slurmctld.pid")
        assert pid is not None, "no slurmctld runs"
        process = psutil.Process(pid)
        process.terminate()
        process.wait(SECONDS)

    def start_node(self, name: str) -> None:
        self._daemon("slurmd", "-N", name, "-f", str(self.configuration))

    def kill_node(self, name: str) -> None:
        """Power off: the node's daemon and all that runs on it, without a word."""
        on_it = [process for process in mine() if self._is_on(process, name)]
        steps = [one for process in on_it for one in process.parents() if one.name() == STEP]
        for process in dict.fromkeys([*steps, *on_it]):
            kill_tree(process)
        self._end(f"slurmd-{name}.pid")

    def node_state(self, name: str) -> str:
        """As Slurm words it; of several nodes with commas between, a line each."""
        return self.ask("sinfo", "-h", "-N", "-n", name, "-o", "%T").strip()

    def idle(self) -> bool:
        """Whether every node may take a job."""
        return set(self.node_state(",".join(NODES)).split()) == {"idle"}

    def _is_up(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            return bool(self.ask("sinfo", "-h"))
        return False

    def _daemon(self, *words: str) -> None:
        subprocess.run(
            words,
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )

    def _pid(self, name: str) -> int | None:
        with suppress(OSError, ValueError):
            return int((self.folder / name).read_text())
        return None

    def _end(self, name: str) -> None:
        pid = self._pid(name)
        if pid is not None:
            with suppress(psutil.NoSuchProcess):
                kill_tree(psutil.Process(pid))

    def _is_on(self, process: psutil.Process, name: str) -> bool:
        """Whether it is a step's process of that node, by its variables."""
        with suppress(psutil.Error):
            variables = process.environ()
            own = variables.get("SLURM_CONF") == str(self.configuration)
            return own and variables.get("SLURMD_NODENAME") == name
        return False

    def processes(self) -> list[psutil.Process]:
        """Every process of the cluster, its jobs included: those that know its folder."""
        found = []
        for process in mine():
            with suppress(psutil.Error):
                is_of_it = str(self.folder) in " ".join(process.cmdline())
                if is_of_it or process.environ().get("SLURM_CONF") == str(self.configuration):
                    found.append(process)
        return found

    def end(self) -> None:
        """End every daemon and job, and nothing else."""
        for _ in range(3):
            own = {os.getpid(), *(one.pid for one in psutil.Process().parents())}
            left = [process for process in self.processes() if process.pid not in own]
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(left, timeout=5)
            if not left:
                return


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose nodes are idle, and that is gone when the test ends."""
    (folder / "log").mkdir(parents=True)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    made = Cluster(folder)
    _configure(made)
    try:
        _start_munge(made)
        made.start_controller()
        for name in (*NODES, APART, LIMITED):
            made.start_node(name)
        wait_for(made.idle, "the nodes are idle")
        yield made
    finally:
        made.end()


def _configure(made: Cluster) -> None:
    controller, *ports = free_ports(3 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1"
        f"{' Gres=gpu:2' if name == LIMITED else ''}"
        for name, port in zip((*NODES, APART, LIMITED), ports, strict=True)
    )
    for number in range(2):
        (made.folder / f"gpu{number}").touch()
    accelerators = f"NodeName={LIMITED} Name=gpu File={made.folder}/gpu[0-1]\n"
    (made.folder / "gres.conf").write_text(accelerators)
    made.configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            controller=controller,
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=made.folder,
            nodes=nodes,
        )
    )


def _start_munge(made: Cluster) -> None:
    key = made.folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
    words = [f"--{option}={made.folder}/munge.{word}" for option, word in names.items()]
    made._daemon("munged", "--force", *words, f"--log-file={made.folder}/log/munged.log")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on.

    Below those that the kernel gives to whoever asks for any: one of these could be somebody's
    before the daemon has it.
    """
    sockets: list[socket.socket] = []
    for port in random.sample(PORTS, len(PORTS)):
        one = socket.socket()
        try:
            one.bind(("", port))
        except OSError:
            one.close()
            continue
        sockets.append(one)
        if len(sockets) == count:
            break
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(
    is_so: Callable[[], bool], what: str, seconds: float = SECONDS, *, every: float = 0.1
) -> None:
    """Until it is so; AssertionError when the time is over."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"after {seconds:.0f} s it is not so that {what}"
        time.sleep(every)


def mine() -> list[psutil.Process]:
    """Every process of this user."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == os.getuid():
                found.append(process)
    return found


def kill_tree(process: psutil.Process) -> None:
    """The process and all that it started."""
    with suppress(psutil.Error):
        family = [process, *process.children(recursive=True)]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=5)
