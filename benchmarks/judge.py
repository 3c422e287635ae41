"""How long the judge takes for a large run: 40 criteria, 40 launches each, with and without series.

The journal is made in memory of healthy launches. "taking" is sorting its lines into evidence,
"samples" the medians, stalls and clocks of all blocks, "series" the classes of all launches'
steps, "judging" every ruling and estimate that follows from them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    bare_lines,
    healthy_events,
    with_bounds,
)

from appliance.evidence import journal_index, launches
from appliance.judging.verdict import Judge
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criterion
from appliance.records.journal import Block, Event, LaunchEnded, Line
from appliance.records.plan import Plan

CASES, LAUNCHES, BLOCKS, STEPS = 40, 40, 4, 30
REPEATS = 3


def main() -> dict[str, float]:
    """Milliseconds of processor time of each part; the smallest of three."""
    criteria = replace(
        FUNCTIONAL,
        criterion=(
            *FUNCTIONAL.criterion,
            *(
                Criterion(
                    id=f"speed-{number}",
                    kind="perf",
                    title="Step time",
                    cases=f"case{number:02}",
                    metric="step_seconds",
                    at_most=0.0103,
                )
                for number in range(CASES)
            ),
        ),
    )
    protocol = replace(PROTOCOL, interim_analyses=(5, 10, 20, 40), blocks=BLOCKS)
    cases = (a_case(f"case{number:02}", launches=LAUNCHES) for number in range(CASES))
    plan = with_bounds(a_plan(*cases, protocol=protocol), criteria)
    lines = drawn(plan)
    parts: dict[str, list[float]] = {"taking": [], "samples": [], "series": [], "judging": []}
    spent = {"samples": 0.0, "series": 0.0}

    def timed(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(values: Any) -> Any:
            begin = time.process_time()
            found = inner(values)
            spent[name] += time.process_time() - begin
            return found

        return outer

    launch = launches.LaunchEvidence
    launch.series = property(timed("series", launch.series.fget))
    journal_index.block_figures = timed("samples", journal_index.block_figures)
    for _ in range(REPEATS):
        judge = Judge(
            plan=plan,
            criteria=criteria,
            baselines=Baselines(baseline=()),
            peaks=Peaks(peak=()),
            system=SYSTEM,
        )
        spent.update(samples=0.0, series=0.0)
        begin = time.process_time()
        for line in lines:
            judge.take(line)
        taken = time.process_time()
        verdict = judge.verdict()
        judged = time.process_time()
        parts["taking"].append(taken - begin)
        parts["judging"].append(judged - taken - sum(spent.values()))
        for name, seconds in spent.items():
            parts[name].append(seconds)
    print(f"{len(lines)} lines, {len(verdict.rulings)} rulings, {verdict.verdict}")
    return {name: 1000 * min(times) for name, times in parts.items()}


def drawn(plan: Plan) -> list[Line]:
    """A healthy run with random step times."""
    rng = np.random.default_rng(1)

    def redrawn(event: Event) -> Event:
        if isinstance(event, LaunchEnded):
            return replace(event, wall_ns=10**13)
        if not isinstance(event, Block):
            return event
        level = 0.01 * np.exp(0.005 * rng.standard_normal())
        times = tuple(
            int(each) for each in 1e9 * level * np.exp(0.005 * rng.standard_normal(STEPS))
        )
        return replace(
            event, wall_ns=times, block_wall_ns=sum(times) + 1000, block_raw_ns=sum(times) + 1000
        )

    return bare_lines([redrawn(event) for event in healthy_events(plan)])


def measure_judge() -> None:
    for name, milliseconds in main().items():
        aim = " (aim: under 50 ms)" if name == "judging" else ""
        print(f"judge: {name} {milliseconds:.1f} ms{aim}")


if __name__ == "__main__":
    measure_judge()
