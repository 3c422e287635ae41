"""What two runs on one H100 really took, by the stages that their launches recorded.

The journals lie in tests/recorded/h100_0_12: `bench run --suite smoke` and `--suite node
--minutes 3` of bench 0.12.0, without the digests of libraries and the kernel's log, so that their
chains do not close. The stack was torch 2.11.0 with CUDA 13, outside the ranges that bench allows:
its requirements were taken off for these runs. ONNX Runtime had no CUDA provider there, so the two
ONNX cases of `smoke` were not run.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).parents[1] / "tests" / "recorded" / "h100_0_12"
USEFUL = ("warm_up", "timed")
LEAST_SECONDS = 0.02
"""A stage that took less of a launch, in the mean, is not named."""


@dataclass
class Made:
    """The launches of one kind that completed: seconds of each, and of their stages."""

    seconds: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ahead: float = 0.0
    num_ahead: int = 0


@dataclass
class Measured:
    """A run by kinds of launch ("untimed", "timed", "repeat"), timed ones also by case."""

    kinds: dict[str, Made] = field(default_factory=lambda: defaultdict(Made))
    cases: dict[str, Made] = field(default_factory=lambda: defaultdict(Made))
    steps: dict[str, dict[bool, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: {True: [], False: []})
    )
    """Median steps in ms of timed launches, by whether they began ahead."""


def measured(name: str) -> Measured:
    """A recorded run, `smoke` or `node`."""
    read = Measured()
    begun: dict[str, tuple[float, bool]] = {}
    stages: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for line in lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).splitlines():
        record = json.loads(line)
        event, now = record["event"], 1e-9 * int(record["monotonic_ns"])
        if event["kind"] == "launch_started":
            begun[event["launch"]] = now, bool(event.get("is_ahead"))
        elif event["kind"] == "block":
            step = 1e-6 * median(map(int, event["wall_ns"]))
            read.steps[event["launch"].partition("@")[0]][begun[event["launch"]][1]].append(step)
        elif event["kind"] == "stage_times":
            stages[event["launch"]] = now, event
        elif event["kind"] == "launch_ended" and event["launch"] in stages:
            launch = event["launch"]
            begin, is_ahead = begun[launch]
            told, times = stages[launch]
            kinds = [read.kinds[_kind(launch)]]
            if _kind(launch) == "timed":
                kinds.append(read.cases[launch.partition("@")[0]])
            for made in kinds:
                _add(made, now - begin, times, now - told, is_ahead=is_ahead)
    return read


def _kind(launch: str) -> str:
    number = launch.rpartition("/")[2]
    if number.startswith("r"):
        return "repeat"
    return "untimed" if number == "0" else "timed"


def _add(
    made: Made, seconds: float, times: Mapping[str, Any], end: float, *, is_ahead: bool
) -> None:
    made.seconds.append(seconds)
    made.num_ahead += is_ahead
    for stage, nanoseconds in times["wall_ns"].items():
        made.stages[stage] += 1e-9 * int(nanoseconds)
    made.stages["process end"] += end
    made.ahead += 1e-9 * sum(map(int, times.get("ahead_ns", {}).values()))


def steps(name: str) -> Iterator[str]:
    """A table of the cases of which some launches began ahead and others alone."""
    yield f"| median steps of `{name}`, ms | begun ahead of their turn | begun alone |"
    yield "|---|---|---|"
    for case, by_begin in sorted(measured(name).steps.items()):
        if all(by_begin.values()):
            ahead, alone = (
                ", ".join(f"{one:.4g}" for one in by_begin[way]) for way in (True, False)
            )
            yield f"| `{case}` | {ahead} | {alone} |"


def section() -> Iterator[str]:
    """The part of the page on what was measured."""
    for name, words in (("smoke", "`smoke`"), ("node", "`node --minutes 3`")):
        run = measured(name)
        yield f"| launches of {words} | made | s in all | s each | of it useful | begun ahead |"
        yield "|---|---:|---:|---:|---:|---:|"
        for kind, made in run.kinds.items():
            whole, count = sum(made.seconds), len(made.seconds)
            useful = sum(made.stages[stage] for stage in USEFUL)
            yield (
                f"| {kind} | {count} | {whole:.1f} | {whole / count:.2f} | {useful:.1f} s | "
                f"{made.num_ahead}, {made.ahead:.1f} s |"
            )
        yield ""
        yield f"| a timed launch of {words}, mean | s | its stages, s |"
        yield "|---|---:|---|"
        for case, made in sorted(run.cases.items()):
            count = len(made.seconds)
            parts = sorted(made.stages.items(), key=lambda one: -one[1])
            named = ", ".join(
                f"{stage.replace('_', ' ')} {seconds / count:.2f}"
                for stage, seconds in parts
                if seconds / count >= LEAST_SECONDS
            )
            yield f"| `{case}` | {sum(made.seconds) / count:.2f} | {named} |"
        yield ""
