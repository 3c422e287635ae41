"""A workload whose build does what a parameter says, and which writes when it does what.

For tests of launches whose processes are started beside the end of the one before. Each line of the
file `log` is what was done, by which process, and from when to when (CLOCK_MONOTONIC, in ns).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from faulty.outspoken import say_to_runner

from appliance.ipc.messages import Ready
from appliance.records.journal import Check
from appliance.records.json import Parameters, adapter
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload

FOREVER = 600.0


@dataclass
class State:
    matrices: list[torch.Tensor]
    cycle: InputCycle
    number: int


def _raise() -> None:
    raise RuntimeError("the device said no")


def _lack() -> None:
    raise MemoryError("launches share it")


def _say_that_it_is_ready() -> None:
    """What no process says that has made no step."""
    say_to_runner(adapter(Ready).dump_json(Ready()) + b"\n")


FAULTS: Mapping[str, Callable[[], None]] = {
    "none": lambda: None,
    "raise": _raise,
    "lack": _lack,
    "be_killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "hang": lambda: time.sleep(FOREVER),
    "say_that_it_is_ready": _say_that_it_is_ready,
}


@dataclass(frozen=True, kw_only=True)
class Hasty(Workload[State, torch.Tensor]):
    """`fault` happens in the build of every launch after the first `healthy` ones.

    `lacks` builds find no memory before one does, and the launch of the build of number `cramped`
    finds none in its check. Checks take `seconds`, steps `step_seconds`, and the step of number
    `hangs_at` for ever. As the first process of the launch of number
    `set_up_at` makes its workload, `set_up` happens.
    """

    summary: ClassVar[str] = "Builds as it is told, and writes when it does what"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    checks_later: ClassVar[bool] = True

    log: str = ""
    fault: str = "none"
    healthy: int = 1
    lacks: int = 0
    cramped: int = -1
    seconds: float = 0.3
    hangs_at: int = -1
    step_seconds: float = 0.0
    set_up: str = "none"
    set_up_at: int = -1

    def __post_init__(self) -> None:
        if self.set_up_at >= 0 and self._is_of(self.set_up_at):
            FAULTS[self.set_up]()

    def _is_of(self, number: int) -> bool:
        """Whether this is the first process of the launch with this number, as its output says.

        By how many there were nobody can tell: two may make their workloads at once.
        """
        if Path("/proc/self/fd/1").readlink().name.split(".")[-2] != str(number):
            return False
        try:
            Path(f"{self.log}.set_up").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def work(self) -> Work:
        return Work(units=1.0, unit="products")

    @contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            with Path(self.log).open("a") as file:
                file.write(f"{what} {os.getpid()} {begin} {time.monotonic_ns()}\n")

    def build(self, target: Target, seed: int) -> State:
        del target
        generator = torch.Generator().manual_seed(seed)
        with self._logged("build"):
            path = Path(self.log)
            number = path.read_text().count("build") if path.exists() else 0
            if number >= self.healthy:
                FAULTS[self.fault]()
                if number < self.healthy + self.lacks:
                    raise MemoryError("two launches share it")
        return State(
            matrices=[torch.randn(16, 16, generator=generator) for _ in range(3)],
            cycle=InputCycle(of=3),
            number=number,
        )

    def step(self, state: State) -> torch.Tensor:
        with self._logged("step"):
            matrix = state.matrices[state.cycle.advance()]
            time.sleep(self.step_seconds)
            if state.cycle.number == self.hangs_at:
                time.sleep(FOREVER)
            return matrix @ matrix

    def check(self, before: object, state: State, output: torch.Tensor) -> Iterator[Check]:
        del before
        with self._logged("check"):
            time.sleep(self.seconds)
            if state.number == self.cramped:
                raise MemoryError("two launches share it")
            matrix = state.matrices[state.cycle.index].double()
            error = float((output.double() - matrix @ matrix).abs().max())
        yield Check(name="product", error=error, bound=1e-4, detects=2e-4, detects_what="error")


WORKLOAD = Hasty
