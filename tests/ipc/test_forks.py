"""Forks of a process, and ranks that are forked where torchrun starts proxies of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.program import ROOT

from appliance.ipc.processes import table

SECONDS = 600.0  # longer than the slowest machine needs
RANK = """
import os, signal, subprocess, sys, time
from appliance.ipc.forks import RankForks
from appliance.ipc.rank_proxy import NAME_VARIABLE, proxy_command

def rank():
    os.write(1, f"rank {{os.environ['RANK']}} {{os.environ['OF_PARENT']}}\\n".encode())
    {act}
    os._exit(0)

forks = RankForks(rank)
os.environ["OF_PARENT"] = "yes"
proxies = [
    subprocess.Popen(
        proxy_command(os.getpid()),
        env={{**os.environ, NAME_VARIABLE: forks.name, "RANK": str(number), "OF_PARENT": "no"}},
    )
    for number in range({count})
]
while any(proxy.poll() is None for proxy in proxies) or forks._proxies:
    forks.serve(0.01)
    {meanwhile}
print(*[proxy.returncode for proxy in proxies])
"""
FORK = """
import os, sys, time
from appliance.ipc.forks import Fork

def work():
    {act}

fork = Fork(work)
while fork.poll() is None:
    time.sleep(0.001)
print(fork.poll())
"""


def printed(program: str, **parts: object) -> list[str]:
    """Lines on stdout of a program of one thread, in an order of their own."""
    text = program.format(**{"meanwhile": "", "count": 2, **parts})
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("act", "statuses"),
    [
        ("pass", (0, 0)),
        ("os._exit(3 * int(os.environ['RANK']))", (0, 3)),
        ("os.kill(os.getpid(), signal.SIGKILL)", (-9, -9)),
        ("os.kill(os.getpid(), signal.SIGSEGV)", (-11, -11)),
        ("raise ValueError", (70, 70)),
    ],
)
def test_proxy_ends_as_its_rank_which_has_its_environment_and_streams(
    act: str, statuses: Sequence[int]
) -> None:
    lines = printed(RANK, act=act)
    assert lines == [" ".join(map(str, statuses)), "rank 0 no", "rank 1 no"]


def test_rank_ends_with_its_proxy(tmp_path: Path) -> None:
    said = str(tmp_path / "said")  # there once the rank has told its number
    lines = printed(
        RANK,
        count=1,
        act=f"os.write(1, f'pid {{os.getpid()}}\\n'.encode()); os.mkdir({said!r}); time.sleep(600)",
        meanwhile=f"if os.path.isdir({said!r}): proxies[0].terminate()",
    )
    pid = next(int(line.removeprefix("pid ")) for line in lines if line.startswith("pid "))
    assert str(-signal.SIGTERM) in lines
    assert pid not in table()  # its parent has waited for it


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ("pass", 0),
        ("sys.exit(5)", 5),
        ("sys.exit('a word')", 1),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", -9),
    ],
)
def test_fork_has_the_status_of_its_work(act: str, status: int) -> None:
    assert printed(FORK, act=act) == [f"{status}"]


def test_connection_of_another_program_is_no_rank() -> None:
    """Whoever connects and says nothing more is dropped."""
    meanwhile = (
        "import socket; caller = socket.socket(socket.AF_UNIX); "
        "caller.connect('\\0' + forks.name); caller.close()"
    )
    lines = printed(RANK, act="pass", meanwhile=meanwhile)
    assert lines == ["0 0", "rank 0 no", "rank 1 no"]


def test_memory_that_a_fork_shares_with_its_parent_is_counted_once() -> None:
    megabytes = 64
    program = """
import os, signal, time
from appliance.ipc import processes
from appliance.ipc.forks import Fork

block = b"x" * ({megabytes} * 2**20)
fork = Fork(lambda: time.sleep(600))
program = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)
pids = (os.getpid(), fork.pid, program)
print(processes.resident_bytes(fork.pid) >= len(block))
print(0 <= processes.shared_bytes(os.getpid(), pids) - processes.resident_bytes(fork.pid) <= 2**20)
os.kill(program, signal.SIGKILL)
"""
    assert printed(program, megabytes=megabytes) == ["True", "True"]
