"""The bands of `loss_curve`: the first losses of every training workload of the suite.

Each workload is followed from several starts, so that a run's seed has something to draw. How
many, and for how many steps, follows from the processor time of a step, so that a slow workload
takes no more than a few minutes. Every start is run as it is, from weights moved by one unit in the
last place, on two threads, without oneDNN and with the library held to AVX2; products in groups of
16 and the library held to SSE are slow, and where a step is, they are run from the first start
only.

Where a device may add in any order, there are runs in which it does; a program of JAX knows nothing
of torch's engines, and has those of its own compiler.

The centre is by start; the spread is the largest of all starts, because a start has eight or so
runs, too few for a spread of its own. The band ends before the horizon; two runs that part sooner
than planned say where about that is, and no other is followed further.

A band must be left by a training that goes wrong. Where the loss does not fall by more than right
runs differ (few steps, or a reward that is still to be found), the same training is followed with
its weights put back after every step, and must leave the band.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.parts.curves import bands, curves
from workloads.parts.curves.variations import Sums, Variation, engine, linear_layers
from workloads.recording.engines import (
    CUT,
    PLAIN,
    PROCESSES,
    Answer,
    OneRun,
    Order,
    Plan,
    ask,
    described,
)
from workloads.recording.provenance import provenance

PLANS = (
    (0.01, Plan(curves=3, steps=curves.NUM_STEPS, nudged=6, is_whole=True)),
    (0.05, Plan(curves=3, steps=curves.NUM_STEPS, nudged=3, is_whole=False)),
    (0.20, Plan(curves=2, steps=curves.NUM_STEPS, nudged=3, is_whole=False)),
    (0.50, Plan(curves=2, steps=30, nudged=2, is_whole=False)),
    (math.inf, Plan(curves=2, steps=20, nudged=2, is_whole=False)),
)
"""By the processor seconds of a step, up to which the plan holds; so what else runs on the machine
does not change what is recorded."""
WARM, TIMED = 1, 3  # steps before the plan is chosen
CHEAP_SECONDS = 0.2  # of a step, up to which bfloat16 is recorded too where nobody asked for it
SLOWEST = 12.0  # times as slow as the library, beyond which an engine is left out
SLOW_STEPS = 2  # one behind the other, as a single one may be the machine's
LEAST_STEPS = 3
FEW_STEPS = 10  # below which a fall of the loss says little
STILL = 3.0  # times its band that a training that stands still must leave, where no fall is asked
BEYOND = 2  # steps after two runs part
ORDERS = (31, 32, 33)  # seeds of the orders in which gathered terms are added
SSE = "library held to SSE"
BLOCKS: Sums = "blocks of 16"
FIRST_SEED = 1
NUDGES = 21  # first seed of a moved start, other than any that a test takes (from 1000)

# ------------------------------------------------------------------ in an engine's process


class _TooSlow(Exception):
    """An engine takes too long to be worth it."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where workloads are built: the host, with the data sets in `data`, files below `folder`."""

    data: str | None
    folder: Path

    def build(self, workload: curves.AnyWorkload, seed: int) -> Any:
        """A state with a folder of its own, as files made for one seed are not another's."""
        target = Target(
            device=torch.device("cpu"),
            artifacts=Artifacts(Path(tempfile.mkdtemp(dir=self.folder))),
            data=None if self.data is None else Path(self.data),
        )
        return workload.build(target, seed)


@dataclass(frozen=True, kw_only=True)
class _Run:
    number: int
    engine: str
    variation: Variation


def run(order: Order) -> Answer:
    """Every run of this process, or why there is none."""
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _run(order, Path(folder))
    except ParameterError as error:
        return Answer(refused=str(error))
    except Exception as error:  # noqa: BLE001 - the process boundary records whatever is raised
        return Answer(refused=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _run(order: Order, folder: Path) -> Answer:
    workload = curves.training_workload(order.workload, order.dtype, is_small=order.is_small)
    ground = Ground(data=order.data, folder=folder)
    seconds = _step_seconds(workload, ground)
    if order.only_cheap and seconds > CHEAP_SECONDS:
        return Answer(step_seconds=seconds)
    plan = order.plan or _until_they_part(
        workload, ground, plan_for(seconds, workload.steps), order.dtype
    )
    seeds = range(FIRST_SEED, FIRST_SEED + plan.curves)
    states = [ground.build(workload, seed) for seed in seeds]
    has_layers = bool(linear_layers(curves.models(states[0])))
    if not curves.can_be_moved(states[0]):
        raise ParameterError("it has no float32 weights that could be moved by an ulp")
    digests = tuple(curves.start_digest(state) for state in states)
    is_of_torch = curves.learner(states[0]) is None
    del states
    runs = [one for one in _runs(order.process, plan, order.dtype) if has_layers or _is_plain(one)]
    if order.process == PLAIN and not workload.is_repeatable:
        runs += list(_in_any_order(plan))
    if not is_of_torch:
        runs = [one for one in runs if one.engine == order.process]
    still: list[tuple[float, ...]] = []
    if order.process == PLAIN:
        still = [_still(workload, ground, seed, plan.steps) for seed in seeds]
    return Answer(
        still=tuple(still),
        plan=plan,
        step_seconds=seconds,
        version=workload.version,
        parameters=curves.parameters_of(workload),
        digests=digests,
        runs=tuple(_made(workload, ground, one, plan.steps, seconds) for one in runs),
    )


def _is_plain(one: _Run) -> bool:
    return one.variation.sums == "library"


def _step_seconds(workload: curves.AnyWorkload, ground: Ground) -> float:
    """The shortest of a few steps, after one that is not counted."""
    state = ground.build(workload, FIRST_SEED)
    times = []
    for _ in range(WARM + TIMED):
        begin = time.process_time()
        workload.load(state)
        curves.loss_of(workload.step(state)).item()
        times.append(time.process_time() - begin)
    return min(times[WARM:])


def plan_for(seconds: float, steps: int | None) -> Plan:
    """How much is recorded of a workload whose step takes so long, and that makes so many."""
    plan = next(plan for limit, plan in PLANS if seconds <= limit)
    if steps is None or steps >= plan.steps:
        return plan
    return Plan(curves=plan.curves, steps=steps, nudged=plan.nudged, is_whole=plan.is_whole)


def _until_they_part(workload: curves.AnyWorkload, ground: Ground, plan: Plan, dtype: str) -> Plan:
    """The plan, or fewer steps where two right runs part: the horizon of more is no later."""
    pair = [
        follow(workload, ground, FIRST_SEED, variation=Variation(perturbed=nudge), steps=plan.steps)
        for nudge in (None, NUDGES)
    ]
    pool = bands.pooled(np.array(pair), bands.FLOORS[dtype])
    return replace(plan, steps=min(plan.steps, bands.first_beyond(pool.allowed) + BEYOND))


def _still(
    workload: curves.AnyWorkload, ground: Ground, seed: int, steps: int
) -> tuple[float, ...]:
    """Losses of a training that learns nothing: its weights are put back after every step."""
    state = ground.build(workload, seed)
    start = curves.kept_weights(state)
    losses = []
    for _ in range(steps):
        workload.load(state)
        losses.append(curves.loss_of(workload.step(state)).item())
        curves.put_weights(state, start)
    return tuple(losses)


def _in_any_order(plan: Plan) -> Iterator[_Run]:
    for number in range(plan.curves):
        for seed in ORDERS:
            yield _Run(number=number, engine="sums in any order", variation=Variation(order=seed))


def _runs(process: str, plan: Plan, dtype: str) -> Iterator[_Run]:
    for number in range(plan.curves):
        is_slow_too = plan.is_whole or number == 0
        if process == PLAIN:
            yield from _plain_runs(number, plan, dtype, is_slow_too=is_slow_too)
        elif process != SSE or is_slow_too:
            yield _Run(number=number, engine=process, variation=Variation(perturbed=NUDGES + 20))


def _plain_runs(number: int, plan: Plan, dtype: str, *, is_slow_too: bool) -> Iterator[_Run]:
    yield _Run(number=number, engine=PLAIN, variation=Variation())
    for nudge in range(NUDGES, NUDGES + plan.nudged):
        yield _Run(number=number, engine=PLAIN, variation=Variation(perturbed=nudge))
    moved = NUDGES + 19
    yield _Run(
        number=number,
        engine="library, two threads",
        variation=Variation(threads=2, perturbed=moved),
    )
    yield _Run(
        number=number,
        engine="without oneDNN",
        variation=Variation(has_onednn=False, perturbed=moved),
    )
    if is_slow_too:
        yield _Run(number=number, engine=BLOCKS, variation=Variation(sums=BLOCKS, perturbed=moved))
    if is_slow_too and dtype == "bfloat16":
        yield _Run(number=number, engine=CUT, variation=Variation(sums=CUT, perturbed=moved))


def _made(
    workload: curves.AnyWorkload, ground: Ground, one: _Run, steps: int, seconds: float
) -> OneRun:
    losses: tuple[float, ...] = ()
    left_out = ""
    try:
        losses = tuple(
            follow(
                workload,
                ground,
                FIRST_SEED + one.number,
                variation=one.variation,
                steps=steps,
                seconds=seconds,
            )
        )
    except _TooSlow as slow:
        left_out = str(slow)
    except (RuntimeError, NotImplementedError) as error:
        if one.variation.sums == "library":
            raise
        left_out = " ".join(str(error).split())[:200]
    if not all(map(math.isfinite, losses)):
        raise ParameterError("a reference run diverged: its loss is no finite number")
    return OneRun(
        number=one.number,
        engine=one.engine,
        perturbation=described(one.variation),
        losses=losses,
        left_out=left_out,
    )


def follow(
    workload: curves.AnyWorkload,
    ground: Ground,
    seed: int,
    *,
    variation: Variation,
    steps: int,
    seconds: float = math.inf,
) -> list[float]:
    """Losses of the first steps of a workload; `seconds`: of a step by the library."""
    state = ground.build(workload, seed)
    if variation.perturbed is not None:
        curves.perturb(state, variation.perturbed)
    losses, num_slow = [], 0
    with engine(curves.models(state), variation):
        for number in range(steps):
            begin = time.process_time()
            workload.load(state)
            losses.append(curves.loss_of(workload.step(state)).item())
            took = time.process_time() - begin
            is_slow = number > 0 and took > max(0.1, SLOWEST * seconds)
            num_slow = num_slow + 1 if is_slow else 0
            if num_slow == SLOW_STEPS:
                raise _TooSlow(f"a step took {took:.2g} s, the library's {seconds:.2g} s")
    return losses


# ------------------------------------------------------------------ what is recorded


def record(
    workload: str, dtype: str, *, data: str | None, only_cheap: bool
) -> bands.LossBand | None:
    """The band of one workload at its small parameters, in one dtype.

    `only_cheap`: None if a step is not cheap. Raises ParameterError for a workload that cannot be
    followed, ApplianceError if a process ends without an answer.
    """
    answers = [_asked(PLAIN, workload, dtype, data, None, only_cheap=only_cheap)]
    if answers[0].plan is None:
        return None
    answers += [
        _asked(process, workload, dtype, data, answers[0].plan)
        for process in PROCESSES
        if process != PLAIN
    ]
    return pooled(workload, dtype, answers)


def _asked(
    process: str,
    workload: str,
    dtype: str,
    data: str | None,
    plan: Plan | None,
    *,
    only_cheap: bool = False,
) -> Answer:
    answer = ask(
        Order(
            task="loss",
            process=process,
            workload=workload,
            is_small=True,
            dtype=dtype,
            only_cheap=only_cheap,
            data=data,
            plan=plan,
        )
    )
    if answer.refused:
        raise ParameterError(answer.refused)
    return answer


def pooled(workload: str, dtype: str, answers: Sequence[Answer]) -> bands.LossBand:
    """One band of what the processes did."""
    first = answers[0]
    assert first.plan is not None  # noqa: S101 - what the first process chose
    starts = range(first.plan.curves)
    runs = [[r for a in answers for r in a.runs if r.number == n and r.losses] for n in starts]
    floor = bands.FLOORS[dtype]
    losses = [np.array([run.losses for run in some]) for some in runs]
    pools = [bands.pooled(some, floor) for some in losses]
    spread = np.max([pool.spread for pool in pools], axis=0)
    allowed = np.maximum(bands.FACTOR * spread, floor)
    horizon = bands.first_beyond(allowed)
    num_steps = min(first.plan.steps, horizon)
    band = bands.LossBand(
        workload=workload,
        version=first.version,
        parameters=first.parameters,
        dtype=dtype,
        num_steps=num_steps,
        factor=bands.FACTOR,
        floor=floor,
        horizon=horizon,
        note=_note(first, num_steps, answers),
        provenance=provenance(),
        spread=bands.rounded(spread[:num_steps], 3),
        allowed=bands.rounded(allowed[:num_steps], 3),
        curves=tuple(
            bands.LossCurve(
                seed=FIRST_SEED + number,
                inputs_sha256=tuple(dict.fromkeys(answer.digests[number] for answer in answers)),
                losses=bands.rounded(pools[number].losses[:num_steps], 12),
                runs=tuple(
                    bands.ReferenceRun(
                        engine=run.engine,
                        perturbation=run.perturbation,
                        largest=_largest(run, pools[number], num_steps),
                    )
                    for run in runs[number]
                ),
            )
            for number in starts
        ),
    )
    if band.num_steps < LEAST_STEPS:
        raise ParameterError(
            f"its right runs part by a tenth of the loss after {band.num_steps} steps: too few"
        )
    return _left_by_idleness(band, first.still)


def _largest(run: OneRun, pool: bands.Pool, num_steps: int) -> float:
    ratios = np.array(run.losses[:num_steps]) / pool.losses[:num_steps]
    return float(f"{np.abs(np.log(ratios)).max():.2e}")


def _note(first: Answer, num_steps: int, answers: Sequence[Answer]) -> str:
    plan = first.plan
    assert plan is not None  # noqa: S101 - what the first process chose
    clauses = []
    if num_steps < plan.steps:
        clauses.append(f"{num_steps} steps, as a tenth of the loss would be allowed after them")
    elif plan.steps < curves.NUM_STEPS:
        clauses.append(f"{plan.steps} steps, as one took {first.step_seconds:.2g} s of one core")
    missing = {run.engine: run.left_out for answer in answers for run in answer.runs}
    clauses += [f"without {name}: {reason}" for name, reason in missing.items() if reason]
    return "; ".join(clauses)


def _left_by_idleness(band: bands.LossBand, still: Sequence[Sequence[float]]) -> bands.LossBand:
    """The band, which a training that does not learn must leave: by its fall, or at some step."""
    idle = _idle(band)
    if not idle and band.num_steps >= FEW_STEPS:
        return band
    left = min((_leaves(band, number, run) for number, run in enumerate(still)), default=0.0)
    if left < STILL:
        why = idle or f"it has {band.num_steps} steps"
        raise ParameterError(f"{why}, and one that stands still leaves the band by {left:.2g}")
    clause = f"one that stands still leaves it by {left:.2g} times, and no fall is asked"
    note = "; ".join(filter(None, (band.note, clause)))
    return replace(band, still=float(f"{left:.3g}"), note=note)


def _idle(band: bands.LossBand) -> str:
    """Why the loss need not fall; empty if it must."""
    for curve in band.curves:
        fell = bands.fall(np.array(curve.losses), curves.TAIL)
        if fell <= 2 * band.allowed[-1] * abs(curve.losses[0]):
            return (
                f"its loss fell by {fell:.2g} from {curve.losses[0]:.3g} in {band.num_steps} "
                "steps, no more than right runs differ by"
            )
    return ""


def _leaves(band: bands.LossBand, number: int, still: Sequence[float]) -> float:
    """How many times its band a training leaves that stands still."""
    compared = bands.beside(
        np.array(still[: band.num_steps]), band.curves[number].losses, band.allowed
    )
    return compared.worst
