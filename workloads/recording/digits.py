"""The bands of `trajectory` and `steps_to_target`: recorded trainings on scanned digits.

The reference set of a trajectory is the same training by every engine, from its own first
weights, from weights moved by one unit in the last place, and relabelled. Of all bands, about five
minutes of one core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workloads.parts.curves import bands, trajectories
from workloads.parts.curves.trajectories import Trajectory, follow
from workloads.parts.curves.variations import Variation
from workloads.parts.training.state import Training
from workloads.recording.engines import (
    CUT,
    PLAIN,
    PROCESSES,
    Answer,
    Engine,
    OneRun,
    Order,
    ask,
    described,
)
from workloads.recording.provenance import provenance

MODEL = "digits_mlp"
WIDTHS = (256, 1024)
NUM_STEPS, FOLLOWED = 50, 120
NUM_TRAJECTORIES = 3
TARGET, LIMIT, NUM_SEEDS = 0.95, 100, 300
FIRST_SEED = 1000


def some(**settings: Any) -> tuple[Variation, ...]:
    """The plain run, a perturbed one and a relabelled one."""
    return (
        Variation(**settings),
        Variation(perturbed=101, **settings),
        Variation(relabelled=103, **settings),
    )


ENGINES = (
    Engine(
        name=PLAIN,
        variations=(
            Variation(),
            *(Variation(perturbed=seed) for seed in range(1, 6)),
            *(Variation(relabelled=seed) for seed in range(11, 13)),
        ),
    ),
    Engine(name="library, two threads", variations=(Variation(threads=2),)),
    Engine(name="without oneDNN", variations=some(has_onednn=False)),
    *(Engine(name=name, variations=some(), process=name) for name in PROCESSES if name != PLAIN),
    Engine(name="blocks of 16", variations=some(sums="blocks of 16")),
    Engine(name=CUT, variations=some(sums=CUT), needs="bfloat16"),
)


def engines_of(process: str, dtype: str) -> list[Engine]:
    """Engines that the process has in the dtype."""
    return [one for one in ENGINES if one.process == process and one.needs in ("", dtype)]


# ------------------------------------------------------------------ in an engine's process


def run(order: Order) -> Answer:
    """Every run of this process."""
    return Answer(
        runs=tuple(
            one
            for engine in engines_of(order.process, order.dtype)
            for one in _runs_of(engine, order.width, order.dtype)
        )
    )


def _runs_of(engine: Engine, width: int, dtype: str) -> Iterator[OneRun]:
    num_steps = FOLLOWED if engine is ENGINES[0] else NUM_STEPS
    for number, variation in itertools.product(range(NUM_TRAJECTORIES), engine.variations):
        trajectory = Trajectory(width=width, number=number)
        losses, _ = follow(trajectory, num_steps, dtype, variation)
        yield OneRun(
            number=number,
            engine=engine.name,
            perturbation=described(variation),
            losses=tuple(losses.tolist()),
        )


# ------------------------------------------------------------------ what is recorded


def record_curves(width: int, dtype: str) -> bands.Band:
    """The band of one width and dtype."""
    runs = [run for process in PROCESSES for run in ask(_order(process, width, dtype)).runs]
    places = {engine.name: place for place, engine in enumerate(ENGINES)}
    runs.sort(key=lambda run: places[run.engine])  # a stable sort: variations keep their order
    return bands.Band(
        model=MODEL,
        width=width,
        dtype=dtype,
        num_steps=NUM_STEPS,
        factor=bands.FACTOR,
        floor=bands.FLOORS[dtype],
        provenance=provenance(),
        curves=tuple(
            record_curve(
                Trajectory(width=width, number=number),
                dtype,
                [run for run in runs if run.number == number],
            )
            for number in range(NUM_TRAJECTORIES)
        ),
    )


def _order(process: str, width: int, dtype: str) -> Order:
    return Order(task="trajectory", process=process, workload=MODEL, dtype=dtype, width=width)


def record_curve(trajectory: Trajectory, dtype: str, runs: Sequence[OneRun]) -> bands.RecordedCurve:
    """One trajectory from its reference set."""
    pool = bands.pooled(np.array([run.losses[:NUM_STEPS] for run in runs]), bands.FLOORS[dtype])
    followed = np.array([run.losses for run in runs if len(run.losses) == FOLLOWED])
    return bands.RecordedCurve(
        number=trajectory.number,
        inputs_sha256=trajectory.digest(NUM_STEPS),
        losses=bands.rounded(np.exp(pool.centre), 12),
        spread=bands.rounded(pool.spread, 3),
        allowed=bands.rounded(pool.allowed, 3),
        horizon=bands.horizon(followed),
        runs=tuple(
            bands.ReferenceRun(
                engine=run.engine, perturbation=run.perturbation, largest=float(f"{largest:.2e}")
            )
            for run, largest in zip(runs, pool.largest, strict=True)
        ),
    )


def record_steps(width: int, dtype: str) -> bands.StepsBand:
    """Steps to the target of recorded trainings."""
    numbers = tuple(range(FIRST_SEED, FIRST_SEED + NUM_SEEDS))
    return bands.StepsBand(
        model=MODEL,
        width=width,
        dtype=dtype,
        target=TARGET,
        limit=LIMIT,
        provenance=provenance(),
        numbers=numbers,
        steps=tuple(steps_of(Trajectory(width=width, number=number), dtype) for number in numbers),
    )


def steps_of(trajectory: Trajectory, dtype: str) -> int:
    """Steps of one training to the target."""
    images, labels = trajectories.held_out_images()
    right: list[int] = []

    def count(number: int, state: Training) -> None:
        if number:
            right.append(int(trajectories.num_right(state.model, images, labels)))

    follow(trajectory, LIMIT, dtype, Variation(), before_step=count)
    wanted = trajectories.num_wanted(TARGET, len(labels))
    return int(trajectories.steps_to(right, wanted))
