"""Speed of the appliance itself, as ratios and figures of this machine; `make bench` runs it.

These numbers are for people. No test depends on them, because machines are shared and noisy;
read the ratios, which are made within one run.

    help        wall time of `bench --help`
    overhead    a step timed by the worker's own loop over the same step in a bare loop
    launches    wall time of a fresh launch over a forked one, for each smoke workload, and the time
                from the order to its first device work
    smoke       wall time of the smoke suite and what it went to, of the report, its verification
    series      time of the changepoint search beside ruptures, and of classifying a launch
    digests     time of the burn-in's digests and checks over that of its products
    burn_in     how busy a burn-in keeps the processors in hot phases, and what its digests cost
    long_journal  processor time and memory of verifying a burn-in of 168 h on 8 devices
    judge       processor time of judging 40 criteria with 40 launches each
    inputs      time of drawing operands on this host: as 0.4.0 did over ours
    pages       processor time and memory of signing a run with its pages: smoke, and 64 devices
    imports     processor time of importing a workload over that of importing torch
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from burn_in import measure_burn_in
from changepoints import measure_series
from digests import measure_digests
from imports import measure_imports
from inputs import measure_inputs
from judge import measure_judge
from long_journal import measure_long_journal
from pages import measure_pages

ROOT = Path(__file__).parents[1]
SMOKE = ROOT / "workloads" / "suites" / "smoke.toml"


def bench(*words: str) -> float:
    """Seconds of wall time of one command; any verdict is fine, a fault is not."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1, 3}:
        raise SystemExit(f"bench {' '.join(words)} failed: {done.stderr}")
    return time.perf_counter() - begin


def measure_help() -> None:
    times = [bench("--help") for _ in range(11)]
    print(f"help: median {statistics.median(times):.3f} s of 11 (aim: under 0.3 s)")


class HostClock:
    """What the worker's loop takes its times from, on the host."""

    def now(self) -> int:
        return time.perf_counter_ns()

    def raw(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def synchronise(self) -> None: ...

    def mark(self) -> None: ...

    def between(self, begin: object, end: object) -> int:
        raise NotImplementedError


def measure_overhead() -> None:
    """Blocks of the worker's loop and of a bare loop in turn; ratio of their medians per step."""
    from appliance.worker import timing  # noqa: PLC0415

    left = np.random.default_rng(1).standard_normal((900, 900))

    def step() -> object:
        return left @ left

    def bare(count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            step()
        return (time.perf_counter_ns() - begin) / count

    def harnessed(count: int) -> float:
        samples = timing.block(timing.Step(make=step), HostClock(), timing.Length(steps=count))
        return sum(samples.wall_ns) / count

    bare(10)
    pairs = [(harnessed(30), bare(30)) for _ in range(15)]
    ratio = statistics.median(worker / loop for worker, loop in pairs)
    milliseconds = statistics.median(loop for _, loop in pairs) * 1e-6
    print(f"overhead: ratio {ratio:.4f} at steps of {milliseconds:.1f} ms (aim: at most 1.005)")


def measure_launches(folder: Path) -> None:
    """The smoke suite with one timed launch, forked and fresh; wall time of the launches."""
    walls: dict[str, dict[str, list[float]]] = {}
    begun: dict[str, dict[str, list[float]]] = {}
    for mode in ("forked", "fresh"):
        text = SMOKE.read_text().replace('mode = "forked"', f'mode = "{mode}"')
        suite = folder / f"{mode}.toml"
        suite.write_text(
            text.replace("interim_analyses = [5, 10, 20, 40]", "interim_analyses = [3]").replace(
                "= 300", "= 3000", 1
            )
        )
        bench("run", "--suite", str(suite), "--out", str(folder / mode), "--quiet")
        (run,) = (folder / mode).glob("2*")
        for event in ended(run):
            case, _, number = event["launch"].partition("@cpu:0/")
            if number.isdigit() and number != "0":
                walls.setdefault(case, {}).setdefault(mode, []).append(event["wall_ns"])
                begun.setdefault(case, {}).setdefault(mode, []).append(event["begun_ns"])
    print("launches: wall time, median of 3 (the saving is what a fork need not import)")
    print("launches: and until the first device work (aim: a fork's under 1 s, of gemm 0.3 s)")
    for case, modes in walls.items():
        forked, fresh = (statistics.median(modes[mode]) * 1e-9 for mode in ("forked", "fresh"))
        first = [statistics.median(begun[case][mode]) * 1e-9 for mode in ("forked", "fresh")]
        print(
            f"  {case:20} forked {forked:6.2f} s   fresh {fresh:6.2f} s   "
            f"fresh/forked {fresh / forked:.2f}   until the first work {first[0]:.3f} s, "
            f"{first[1]:.3f} s"
        )


BEFORE_WORK = ("start", "import", "device", "build")
"""Stages from the order to the first step. What builds inputs on a device works on it before."""


def ended(run: Path) -> list[dict[str, Any]]:
    """The ends of all launches, each with nanoseconds until its first step."""
    lines = [json.loads(line)["event"] for line in (run / "journal.jsonl").open()]
    stages = {one["launch"]: one["wall_ns"] for one in lines if one["kind"] == "stage_times"}
    return [
        {
            **event,
            "wall_ns": int(event["wall_ns"]),
            "begun_ns": sum(int(stages[event["launch"]].get(name, 0)) for name in BEFORE_WORK),
        }
        for event in lines
        if event["kind"] == "launch_ended"
    ]


def budget_of(run: Path) -> str:
    """What the time of a run went to, by its journal."""
    from appliance.evidence.budget import sentence  # noqa: PLC0415
    from appliance.evidence.journal_index import budget_of as budget_of_files  # noqa: PLC0415

    files = [(run / name).read_bytes() for name in ("plan.json", "journal.jsonl")]
    return sentence(budget_of_files(*files))


def measure_smoke(folder: Path) -> None:
    out = folder / "smoke"
    suite = bench("run", "--suite", "smoke", "--out", str(out), "--quiet")
    (run,) = out.glob("2*")
    report = bench("sign", str(run))
    verify = bench("verify", str(run), "--allow-dev")
    print(f"smoke: suite {suite:.0f} s (aim: under 300 s)")
    print(f"smoke: {budget_of(run)}")
    print(f"smoke: report, HTML and PDF, signed {report:.2f} s (aim: under 5 s)")
    print(f"smoke: verify {verify:.2f} s (aim: under 2 s)")


def main() -> None:
    parts: dict[str, Callable[[], None]]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        parts = {
            "help": measure_help,
            "overhead": measure_overhead,
            "series": measure_series,
            "digests": measure_digests,
            "burn_in": measure_burn_in,
            "long_journal": measure_long_journal,
            "judge": measure_judge,
            "imports": measure_imports,
            "inputs": measure_inputs,
            "pages": measure_pages,
            "smoke": lambda: measure_smoke(folder),
            "launches": lambda: measure_launches(folder),
        }
        for part in sys.argv[1:] or list(parts):
            if part not in parts:
                raise SystemExit(f'there is no part "{part}": use {", ".join(parts)}')
            parts[part]()


if __name__ == "__main__":
    main()
