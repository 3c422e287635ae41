"""The operations among ranks with one rank that does what no rank may, as its parameter says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from workloads.collectives import Collectives, State

FOREVER = 600.0
CULPRIT = 1


def _die(state: State) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(state: State) -> None:
    os._exit(0)


def _raise(state: State) -> None:
    raise ValueError("this rank has had enough")


def _hang(state: State) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOREVER)


def _lie(state: State) -> None:
    for given in state.inputs:
        given[0] += 1


def _withhold(state: State) -> None:
    for given in state.inputs:
        given.zero_()


IN_STEP: Mapping[str, Callable[[State], None]] = {
    "lies": _lie,
    "withholds": _withhold,
    "dies": _die,
    "leaves": _leave,
    "raises": _raise,
    "hangs": _hang,
}


@dataclass(frozen=True, kw_only=True)
class Unfaithful(Collectives):
    """Rank 1 misbehaves in its first step, or is "absent" and never meets the others."""

    fault: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fault == "absent" and os.environ.get("RANK") == str(CULPRIT):
            time.sleep(FOREVER)

    def step(self, state: State) -> dict[str, torch.Tensor]:
        if state.ranks.rank == CULPRIT and state.cycle.number < 0 and self.fault in IN_STEP:
            IN_STEP[self.fault](state)
        return super().step(state)


WORKLOAD = Unfaithful
