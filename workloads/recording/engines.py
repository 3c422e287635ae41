"""The engines of a reference set: ways to multiply, and the processes in which they exist.

What a processor's library chooses when it starts can be changed only in a new process. So there is
one for each row of `PROCESSES`, and in it the engines that can be had there: other numbers of
threads, without oneDNN, and products added in groups of 16 to a float32 sum, as matrix units do;
for 16-bit inputs also with that sum cut instead of rounded, as some of them do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from appliance.errors import ApplianceError
from appliance.records.json import FiniteFloat, Parameters, Record, from_json, to_json
from workloads.parts.curves.variations import Sums, Variation

CUT: Sums = "blocks of 16, truncated"
PLAIN = "library"


def _older(torch_name: str, onednn: str, mkl: str) -> dict[str, str]:
    return {
        "ATEN_CPU_CAPABILITY": torch_name,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "XLA_FLAGS": f"--xla_cpu_max_isa={mkl}",  # of JAX's compiler
    }


PROCESSES: Mapping[str, Mapping[str, str]] = {
    PLAIN: {},
    "library held to AVX2": _older("avx2", "AVX2", "AVX2"),
    "library held to SSE": _older("default", "SSE41", "SSE4_2"),
}
"""Variables of each process; those that belong to another vendor's library change nothing."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One way to multiply: its process, what its runs vary, and the only dtype that has it."""

    name: str
    variations: tuple[Variation, ...]
    process: str = PLAIN
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """How much of a workload is recorded. `nudged`: runs from moved weights.

    `is_whole`: the slow engines run on every curve, not on the first alone.
    """

    curves: int
    steps: int
    nudged: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """What a process is asked for.

    `plan`: None where it shall choose one by the time of a step; `only_cheap`: and none if a step
    takes long. `width`: of a trajectory.
    """

    task: Literal["loss", "trajectory"]
    process: str
    workload: str
    dtype: str
    is_small: bool = True
    width: int = 0
    data: str | None = None
    plan: Plan | None = None
    only_cheap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun(Record):
    """One run of the curve `number`; without losses and with a reason where it was left out."""

    number: int
    engine: str
    perturbation: str
    losses: tuple[FiniteFloat, ...]
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Record):
    """What a process did, or the one sentence of why it could not.

    `still`: by curve, the losses of weights that are put back after every step.
    """

    refused: str = ""
    plan: Plan | None = None
    step_seconds: FiniteFloat = 0.0
    version: int = 0
    parameters: Parameters = field(default_factory=dict)
    digests: tuple[str, ...] = ()
    still: tuple[tuple[FiniteFloat, ...], ...] = ()
    runs: tuple[OneRun, ...] = ()


R = TypeVar("R")


def described(variation: Variation) -> str:
    """What a run varied, in words."""
    if variation.order is not None:
        return f"gathered terms in another order, seed {variation.order}"
    if variation.perturbed is not None:
        return f"first weights moved by 1 ulp, seed {variation.perturbed}"
    if variation.relabelled is not None:
        return f"relabelled, seed {variation.relabelled}"
    return "none"


def command(word: str) -> list[str]:
    """Command line of this program; `-P` keeps the folder it starts in out of what it imports."""
    return [sys.executable, "-P", "-m", "workloads.recording", word, str(os.getpid())]


def ask(order: Order) -> Answer:
    """Have a process of its own do what is ordered.

    Raises ApplianceError if it ends without an answer.
    """
    done = subprocess.run(  # noqa: S603 - this program
        command("engine"),
        input=to_json(order),
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **PROCESSES[order.process]},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise ApplianceError(
            f"{order.process} ended with status {done.returncode}: {lines[-1][:300]}"
        )
    return from_json(Answer, done.stdout, name="the engine's answer")
