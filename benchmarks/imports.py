"""Processor time of importing each workload in a fresh process, over that of importing torch.

The promise is 3 s for any workload on two quiet cores, where torch alone takes 0.75 s: a ratio
of 4. Times are of the user's side, as shared machines change those the least. Every workload is
imported once, and those that took longest again, in turn with torch.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUM_SLOWEST, NUM_ROUNDS = 5, 5
AIM = 4.0


def seconds(imports: str) -> float:
    """Processor time of a new interpreter that imports these."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(
        [sys.executable, "-c", f"import {imports}"],
        cwd=ROOT,
        check=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def ratio(name: str, rounds: int) -> float:
    """Median over rounds, in each of which torch is imported next to the workload."""
    return statistics.median(
        seconds(f"torch, workloads.{name}") / seconds("torch") for _ in range(rounds)
    )


def measure_imports() -> None:
    names = [
        path.stem
        for path in sorted((ROOT / "workloads").glob("*.py"))
        if path.stem not in {"__init__", "contract"}
    ]
    once = {name: seconds(f"torch, workloads.{name}") for name in names}
    slowest = sorted(names, key=lambda name: -once[name])[:NUM_SLOWEST]
    print(f"imports: over torch alone, median of {NUM_ROUNDS} for the slowest of {len(names)}")
    for name in slowest:
        print(f"  {name:22} ratio {ratio(name, NUM_ROUNDS):.2f} (aim: at most {AIM:g})")
