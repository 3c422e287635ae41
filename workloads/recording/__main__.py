"""Records bands: the program that scripts/record_bands.py starts.

    python -m workloads.recording record PARENT    a Request on stdin, a Summary on stdout
    python -m workloads.recording engine PARENT    an Order on stdin, an Answer on stdout

PARENT is the number of the process that this one dies with. Progress goes to stderr. Workloads are
recorded side by side, one on each core, each engine in a process of its own; one that cannot be
recorded is left out with its reason, and takes no other down.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from appliance.errors import BenchError
from appliance.ipc import processes
from appliance.records.json import FiniteFloat, Record, from_json, to_json
from workloads.contract.failures import ParameterError
from workloads.parts.curves import bands, curves
from workloads.recording import digits, engines, losses

TRAJECTORY, STEPS = "trajectory", "steps_to_target"
AnyBand = bands.Band | bands.StepsBand | bands.LossBand


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """What to record and where; without names everything, without dtypes what each one has."""

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    out: str
    data: str | None
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Record):
    """One file that was written. `allowed`: at the first and at the last step, in |d ln(loss)|."""

    file: str
    workload: str
    dtype: str
    num_steps: int
    num_curves: int
    num_runs: int
    allowed: tuple[FiniteFloat, ...]
    seconds: FiniteFloat
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Record):
    """What was not recorded, and why."""

    workload: str
    dtype: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Record):
    """Everything that was asked for; `refused` says why nothing was begun."""

    schema: Literal["bench/recorded-bands/1"] = "bench/recorded-bands/1"
    refused: str
    recorded: tuple[Recorded, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One file to make; `make` gives None where it need not be."""

    workload: str
    dtype: str
    name: str
    make: Callable[[], AnyBand | None]


def main() -> None:
    """Do what the first word says."""
    word, parent = sys.argv[1], int(sys.argv[2])
    processes.die_with(parent)
    question = sys.stdin.buffer.read()
    answer: Record
    if word == "engine":
        answer = _engine(from_json(engines.Order, question, name="the order"))
    else:
        answer = _record(from_json(Request, question, name="the request"))
    sys.stdout.buffer.write(to_json(answer))


def _engine(order: engines.Order) -> engines.Answer:
    return losses.run(order) if order.task == "loss" else digits.run(order)


# ------------------------------------------------------------------ what is wanted


def _record(request: Request) -> Summary:
    torch.set_num_threads(1)
    try:
        tasks = list(_tasks(request))
    except ParameterError as error:
        return Summary(refused=str(error), recorded=(), left_out=())
    done = partial(_done, Path(request.out))
    with ThreadPoolExecutor(max_workers=max(1, request.cores)) as pool:
        results = list(pool.map(done, tasks))
    return Summary(
        refused="",
        recorded=tuple(one for one in results if isinstance(one, Recorded)),
        left_out=tuple(one for one in results if isinstance(one, LeftOut)),
    )


def _tasks(request: Request) -> Iterator[Task]:
    for name in request.names or _known():
        if name in (TRAJECTORY, STEPS):
            yield from _digits_tasks(name, request.dtypes or tuple(bands.FLOORS))
        else:
            yield from _loss_tasks(name, request)


def _known() -> list[str]:
    """Training workloads of the suite, and those on digits."""
    names = []
    for path in sorted(curves.FOLDER.glob("*.py")):
        try:
            kind = curves.find(path.stem)
        except ParameterError:
            continue
        if curves.is_training(kind):
            names.append(path.stem)
    return [*names, TRAJECTORY, STEPS]


def _digits_tasks(name: str, dtypes: tuple[str, ...]) -> Iterator[Task]:
    for width, dtype in itertools.product(digits.WIDTHS, dtypes):
        file = bands.band_name(digits.MODEL, width, dtype)
        if name == TRAJECTORY:
            make: Callable[[], AnyBand] = partial(digits.record_curves, width, dtype)
        else:
            make, file = partial(digits.record_steps, width, dtype), f"{file}-steps"
        yield Task(workload=name, dtype=dtype, name=file, make=make)


def _loss_tasks(name: str, request: Request) -> Iterator[Task]:
    """In float32, and in bfloat16 where it is asked for, or can be had and is cheap."""
    for dtype in request.dtypes or tuple(bands.FLOORS):
        is_extra = not request.dtypes and dtype != curves.DTYPE
        try:
            curves.training_workload(name, dtype, is_small=True)
        except ParameterError:
            if is_extra or not (request.names or dtype == curves.DTYPE):
                continue
            raise
        yield Task(
            workload=name,
            dtype=dtype,
            name=bands.loss_band_name(name, dtype, is_small=True),
            make=partial(losses.record, name, dtype, data=request.data, only_cheap=is_extra),
        )


# ------------------------------------------------------------------ doing it


def _done(out: Path, task: Task) -> Recorded | LeftOut | None:
    begin = time.perf_counter()
    try:
        band = task.make()
    except (ParameterError, BenchError) as error:
        return _left_out(task, str(error))
    if band is None:
        return _left_out(task, f"a step takes more than {losses.CHEAP_SECONDS:g} s")
    path = out / f"{task.name}.json"
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(to_json(band))
    unfinished.replace(path)
    recorded = _recorded(path, task, band, round(time.perf_counter() - begin, 1))
    allowed = "" if not recorded.allowed else f", {recorded.allowed[-1]:.2g} allowed at the end"
    _say(
        f"{path.name}: {recorded.num_curves} curves of {recorded.num_steps} steps in "
        f"{recorded.num_runs} runs{allowed}, {recorded.seconds:.0f} s"
    )
    return recorded


def _recorded(path: Path, task: Task, band: AnyBand, seconds: float) -> Recorded:
    if isinstance(band, bands.StepsBand):
        counts = (band.limit, 0, len(band.steps))
        allowed: tuple[float, ...] = ()
    else:
        counts = (band.num_steps, len(band.curves), sum(len(curve.runs) for curve in band.curves))
        ends = (
            [band.allowed]
            if isinstance(band, bands.LossBand)
            else [curve.allowed for curve in band.curves]
        )
        allowed = (max(values[0] for values in ends), max(values[-1] for values in ends))
    return Recorded(
        file=str(path),
        workload=task.workload,
        dtype=task.dtype,
        num_steps=counts[0],
        num_curves=counts[1],
        num_runs=counts[2],
        allowed=allowed,
        seconds=seconds,
        note=band.note if isinstance(band, bands.LossBand) else "",
    )


def _left_out(task: Task, reason: str) -> LeftOut:
    _say(f"{task.name} is left out: {reason}")
    return LeftOut(workload=task.workload, dtype=task.dtype, reason=reason)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - progress for a person


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
