"""A workload that does what no workload may, as its parameter says; for tests of the runner.

It lies outside the shipped packages and is named with a dot, "faulty.misbehaving", by tests
that put this folder's parent on PYTHONPATH.
"""

# ruff: noqa: ARG005 - the table of faults names the argument

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from faulty.outspoken import say_to_runner

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload

FOREVER = 600.0


@dataclass
class State:
    matrix: torch.Tensor
    target: Target
    number: int = -1


def _abort(state: State) -> None:
    os.abort()


def _segfault(state: State) -> None:
    ctypes.string_at(0)


def _raise(state: State) -> None:
    raise RuntimeError("the device said no\nand more")


def _lack_a_name(state: State) -> None:
    state.matrix.activation_checkpointing_enable()


def _lack_a_library(state: State) -> None:
    import no_such_library  # type: ignore[import-not-found]  # noqa: F401, PLC0415


def _lack_a_kernel(state: State) -> None:
    torch.linalg.qr(torch.zeros(2, 2).to_sparse())


def _hang(state: State) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def _eat(state: State) -> None:
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (16 * 2**20))
        time.sleep(0.005)


def _refuse_to_allocate(state: State) -> None:
    torch.empty(2**50, dtype=torch.uint8)


def _chatter(state: State) -> None:
    os.write(1, b'{"kind":"end"}\n' * 1000)
    print("chatter", file=sys.stderr)  # noqa: T201 - that is the misbehaviour


def _chatter_and_die(state: State) -> None:
    for _ in range(3 * 2**10):
        os.write(1, b"x" * 2**10)
    sys.exit(3)


def _leave_a_child(state: State) -> None:
    code = f"import os, time; os.setsid(); time.sleep({FOREVER})"
    child = subprocess.Popen([sys.executable, "-c", code])
    (state.target.artifacts._folder.parent / "grandchild").write_text(str(child.pid))


def _leave_a_child_and_hang(state: State) -> None:
    _leave_a_child(state)
    time.sleep(FOREVER)


def _babble(state: State) -> None:
    say_to_runner(b"what is this?\n")


def _tell_who_is_beside(state: State) -> None:
    beside = state.target.beside
    assert beside is not None
    place = state.target.artifacts._folder.parent / f"beside-{beside.number}"
    place.write_text(f"{','.join(beside.devices)} {beside.meeting}")


def _exit_at_once(state: State) -> None:
    os._exit(9)


FAULTS: Mapping[str, Callable[[State], None]] = {
    "none": lambda state: None,
    "abort": _abort,
    "segfault": _segfault,
    "raise": _raise,
    "lack_a_name": _lack_a_name,
    "lack_a_library": _lack_a_library,
    "lack_a_kernel": _lack_a_kernel,
    "hang": _hang,
    "eat": _eat,
    "refuse_to_allocate": _refuse_to_allocate,
    "chatter": _chatter,
    "chatter_and_die": _chatter_and_die,
    "leave_a_child": _leave_a_child,
    "leave_a_child_and_hang": _leave_a_child_and_hang,
    "babble": _babble,
    "exit_at_once": _exit_at_once,
    "tell_who_is_beside": _tell_who_is_beside,
    "disk_full": lambda state: Path("/dev/full").write_text("x" * 10**6),
}


@dataclass(frozen=True, kw_only=True)
class Misbehaving(Workload[State, torch.Tensor]):
    """Healthy until step `at`, counted from 0; then `fault` happens."""

    summary: ClassVar[str] = "Does what no workload may"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {"size": 8}

    fault: str = "none"
    at: int = 0
    size: int = 64
    seconds: float = 0.0
    num_steps: int = 0
    is_quick: bool = True

    def __post_init__(self) -> None:
        if self.fault not in FAULTS:
            raise ParameterError(f'there is no fault "{self.fault}"')

    @property
    def steps(self) -> int | None:
        return self.num_steps or None

    def work(self) -> Work:
        return Work(units=self.size, unit="rows", flops=2.0 * self.size**3)

    def build(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        matrix = torch.randn(self.size, self.size, generator=rng).to(target.device)
        target.artifacts.once("reference.txt", lambda path: path.write_text("made once"))
        return State(matrix, target)

    def step(self, state: State) -> torch.Tensor:
        state.number += 1
        if state.number == self.at:
            FAULTS[self.fault](state)
        if self.seconds:
            time.sleep(self.seconds)
        return state.matrix @ state.matrix

    def snapshot(self, state: State) -> object:
        return state.number

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        exact = state.matrix.double() @ state.matrix.double()
        error = float((output.double() - exact).abs().max() / exact.abs().max())
        yield Check(name="product", error=error, bound=1e-4, detects=2e-4, detects_what="error")
        stale = float(before != state.number - 1)
        yield Check(name="snapshot is of the step before", error=stale, bound=0.0)


WORKLOAD = Misbehaving
