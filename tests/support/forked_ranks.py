"""The ranks of one step of a workload, forked from a server that has imported what they need.

A launch starts each rank as a program of its own, which imports the libraries again. Where a test
is of what the ranks compute, and not of how they are started, they meet here: real processes, real
collectives over the loopback interface, without the seconds of each import.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from support import small_steps
from torch.distributed import TCPStore

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target

LOOPBACK = "127.0.0.1"
SECONDS = 300.0
"""How long the ranks may take together, longer than the slowest machine needs."""
SEED = 17
PRELOADED = tuple(
    f"workloads.{name}"
    for name in ("bert", "diffusion", "dinov2_giant", "llm_full", "llm_lora", "resnet50", "rlhf")
)

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*PRELOADED])


@dataclass(frozen=True, kw_only=True)
class Request:
    """What all ranks of one step have in common; `port` is of the store at which they meet."""

    workload: str
    parameters: Mapping[str, Any]
    ranks: int
    port: int
    folder: Path


def checks_of_ranks(
    workload: str, parameters: Mapping[str, Any], ranks: int, folder: Path
) -> list[list[Check]]:
    """The checks of the first step, by rank. Fails with the words of a rank that raises."""
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    request = Request(
        workload=workload,
        parameters={**parameters, "ranks": ranks},
        ranks=ranks,
        port=store.port,
        folder=folder,
    )
    pipes = [_forks.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        _forks.Process(target=_rank, args=(request, rank, writer))
        for rank, (_, writer) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        return [_answer(reader, rank) for rank, (reader, _) in enumerate(pipes)]
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            process.kill()
            process.join()
            process.close()
            for end in pipe:
                end.close()


def _answer(reader: Connection, rank: int) -> list[Check]:
    assert reader.poll(SECONDS), f"rank {rank} says nothing"
    answer: Sequence[Check] | str = reader.recv()
    assert not isinstance(answer, str), f"rank {rank}: {answer}"
    return list(answer)


def _rank(request: Request, rank: int, writer: Connection) -> None:
    os.environ |= {  # as torchrun sets them
        "RANK": f"{rank}",
        "WORLD_SIZE": f"{request.ranks}",
        "LOCAL_RANK": f"{rank}",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": f"{request.port}",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    torch.set_num_threads(1)
    try:
        writer.send(_checks(request, rank))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
        writer.send(f"{type(error).__name__}: {error}")
    # the others may still be at work on what this one has a part in
    wait([writer], timeout=SECONDS)


def _checks(request: Request, rank: int) -> list[Check]:
    torch.manual_seed(SEED)
    workload = importlib.import_module(request.workload).WORKLOAD(**request.parameters)
    target = Target(
        device=torch.device("cpu"),
        artifacts=Artifacts(request.folder / f"rank-{rank}"),
        rank=rank,
        world_size=request.ranks,
        devices=(torch.device("cpu"),) * request.ranks,
        flops=small_steps.OPERATIONS,
    )
    state = workload.build(target, SEED)
    before = workload.snapshot(state)
    workload.load(state)
    output = workload.step(state)
    workload.wait(state)
    return list(workload.check(before, state, output))
