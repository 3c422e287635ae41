"""Records workloads/bands/*.json: the reference trajectories that devices are held to.

    python scripts/record_bands.py              all of them: about five minutes of one core
    python scripts/record_bands.py --width 256  those of one width

The reference set of a trajectory is the same training by every engine below, from its own first
weights, from weights perturbed by one unit in the last place, and relabelled. What a processor's
library chooses when it starts can be changed only in a new process, so each engine has one.

"blocks of 16" adds products in groups of 16 to a float32 sum, as matrix units do; "truncated"
cuts that sum to float32 instead of rounding it, as some of them do with 16-bit inputs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - the script runs where nothing is installed
import torch  # noqa: E402 - the same

from appliance.records import to_json  # noqa: E402 - the same
from workloads.parts import bands, trajectories  # noqa: E402 - the same
from workloads.parts.training import Training  # noqa: E402 - the same
from workloads.parts.trajectories import Trajectory  # noqa: E402 - the same
from workloads.parts.variations import Sums, Variation, follow  # noqa: E402 - the same

MODEL = "digits_mlp"
WIDTHS = (256, 1024)
NUM_STEPS, FOLLOWED = 50, 120
NUM_TRAJECTORIES = 3
TARGET, LIMIT, NUM_SEEDS = 0.95, 100, 30


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One way to multiply, and what its process is started with."""

    name: str
    variations: tuple[Variation, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""  # without which the engine does not exist: a dtype


def some(**settings: Any) -> tuple[Variation, ...]:
    """The plain run, a perturbed one and a relabelled one."""
    return (
        Variation(**settings),
        Variation(perturbed=101, **settings),
        Variation(relabelled=103, **settings),
    )


CUT: Sums = "blocks of 16, truncated"
OLDER = {
    name: {
        "ATEN_CPU_CAPABILITY": torch_name,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
    }
    for name, torch_name, onednn, mkl in (
        ("AVX2", "avx2", "AVX2", "AVX2"),
        ("SSE", "default", "SSE41", "SSE4_2"),
    )
}
ENGINES = (
    Engine(
        name="library",
        variations=(
            Variation(),
            *(Variation(perturbed=seed) for seed in range(1, 6)),
            *(Variation(relabelled=seed) for seed in range(11, 13)),
        ),
    ),
    Engine(name="library, two threads", variations=(Variation(threads=2),)),
    Engine(name="without oneDNN", variations=some(has_onednn=False)),
    *(
        Engine(name=f"library held to {name}", variations=some(), environment=settings)
        for name, settings in OLDER.items()
    ),
    Engine(name="blocks of 16", variations=some(sums="blocks of 16")),
    Engine(name=CUT, variations=some(sums=CUT), needs="bfloat16"),
)


# ------------------------------------------------------------------ one engine, in a child


def run_engine(engine: Engine, width: int, dtype: str) -> list[list[list[float]]]:
    """Losses [trajectory, variation, step] of one engine, in this process."""
    return [
        [
            follow(Trajectory(width=width, number=number), num_steps, dtype, variation)[0].tolist()
            for variation in engine.variations
        ]
        for number in range(NUM_TRAJECTORIES)
        for num_steps in [FOLLOWED if engine is ENGINES[0] else NUM_STEPS]
    ]


def ask(engine: Engine, width: int, dtype: str) -> list[list[list[float]]]:
    """The same from a process of its own."""
    done = subprocess.run(  # noqa: S603 - this file
        [
            sys.executable,
            __file__,
            "--engine",
            engine.name,
            "--width",
            str(width),
            "--dtype",
            dtype,
        ],
        env={**os.environ, **engine.environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    answer: list[list[list[float]]] = json.loads(done.stdout)
    return answer


# ------------------------------------------------------------------ what is recorded


def record_curves(width: int, dtype: str) -> bands.Band:
    """The band of one width and dtype."""
    engines = [engine for engine in ENGINES if engine.needs in ("", dtype)]
    losses = {engine.name: ask(engine, width, dtype) for engine in engines}
    return bands.Band(
        model=MODEL,
        width=width,
        dtype=dtype,
        num_steps=NUM_STEPS,
        factor=bands.FACTOR,
        floor=bands.FLOORS[dtype],
        made=made(),
        curves=tuple(
            record_curve(
                Trajectory(width=width, number=number),
                dtype,
                [
                    (engine.name, variation, curve)
                    for engine in engines
                    for variation, curve in zip(
                        engine.variations, losses[engine.name][number], strict=True
                    )
                ],
            )
            for number in range(NUM_TRAJECTORIES)
        ),
    )


def record_curve(
    trajectory: Trajectory, dtype: str, runs: list[tuple[str, Variation, list[float]]]
) -> bands.RecordedCurve:
    """One trajectory from its reference set."""
    pool = bands.pooled(np.array([curve[:NUM_STEPS] for _, _, curve in runs]), bands.FLOORS[dtype])
    followed = np.array([curve for _, _, curve in runs if len(curve) == FOLLOWED])
    return bands.RecordedCurve(
        number=trajectory.number,
        inputs_sha256=trajectory.digest(NUM_STEPS),
        losses=rounded(np.exp(pool.centre), 12),
        spread=rounded(pool.spread, 3),
        allowed=rounded(pool.allowed, 3),
        horizon=bands.horizon(followed),
        runs=tuple(
            bands.ReferenceRun(
                engine=engine, perturbation=described(variation), largest=float(f"{largest:.2e}")
            )
            for (engine, variation, _), largest in zip(runs, pool.largest, strict=True)
        ),
    )


def rounded(values: bands.Curve, digits: int) -> tuple[float, ...]:
    """So many significant digits: no more than the figures have, and a file that can be read."""
    return tuple(float(f"{value:.{digits}g}") for value in values)


def described(variation: Variation) -> str:
    if variation.perturbed is not None:
        return f"first weights moved by 1 ulp, seed {variation.perturbed}"
    if variation.relabelled is not None:
        return f"relabelled, seed {variation.relabelled}"
    return "none"


def record_steps(width: int, dtype: str) -> bands.StepsBand:
    """Steps to the target of recorded trainings."""
    numbers = tuple(range(1000, 1000 + NUM_SEEDS))
    return bands.StepsBand(
        model=MODEL,
        width=width,
        dtype=dtype,
        target=TARGET,
        limit=LIMIT,
        made=made(),
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


def made() -> bands.Made:
    """Where and with what."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    return bands.Made(
        utc=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        processor=f"{names[0] if names else platform.machine()} ({capability}), {len(names)} cores",
        torch=torch.__version__,
        numpy=np.__version__,
        script=Path(__file__).relative_to(ROOT).as_posix(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, choices=WIDTHS, action="append")
    parser.add_argument("--dtype", choices=tuple(bands.FLOORS), action="append")
    parser.add_argument("--engine", help="one engine alone, its losses to stdout")
    options = parser.parse_args()
    widths, dtypes = options.width or WIDTHS, options.dtype or tuple(bands.FLOORS)
    if options.engine:
        engine = next(engine for engine in ENGINES if engine.name == options.engine)
        print(json.dumps(run_engine(engine, widths[0], dtypes[0])))
        return
    torch.set_num_threads(1)
    for width in widths:
        for dtype in dtypes:
            name = bands.band_name(MODEL, width, dtype)
            write(name, record_curves(width, dtype))
            write(f"{name}-steps", record_steps(width, dtype))


def write(name: str, band: bands.Band | bands.StepsBand) -> None:
    path = bands.FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(to_json(band))
    print(f"{path.relative_to(ROOT)} written", file=sys.stderr)


if __name__ == "__main__":
    main()
