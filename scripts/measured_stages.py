"""Stages of single launches on the recorded H100s of 0.12.0 and 0.13.0, by case and kind.

Of a launch a stage is what it took in all, ahead of its turn too (measured_budget.py has the runs).
Medians of a case's launches are taken: of the first host some waited for libraries to be hashed.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

from measured_budget import FOLDER, KEYS, LATER, SETUP

Host = Path
FIRST, SECOND = FOLDER, LATER
"""Of 0.12.0; and of nearly 0.13.0, on a slower host."""
USEFUL = ("warm_up", "timed", "evaluate", "other")
"""Stages of a timed launch between its clocks and its checks, which no launch before is beside."""


@dataclass
class Launch:
    """Seconds of its stages by name, and from the last of its records until its process ended.

    `spans` are those over which it compared its clocks, in seconds.
    """

    case: str
    kind: str
    stages: Mapping[str, float] = field(default_factory=dict)
    spans: Sequence[float] = ()
    reported: float = 0.0
    ending: float = 0.0

    def of(self, *names: str) -> float:
        """Seconds of these stages together."""
        return sum(self.stages.get(name, 0.0) for name in names)

    def clocks(self) -> float:
        """Seconds of comparing clocks, had nothing been loaded in the first span."""
        first, *others = self.spans
        return self.of("calibrate") - max(0.0, first - mean(others))


@dataclass(frozen=True)
class Run:
    """The launches that completed, what passed before each, and what the fork servers took.

    By case, seconds of the steps of its blocks, and the check of its repeated inputs.
    """

    launches: tuple[Launch, ...]
    blocks: Mapping[str, Sequence[Sequence[float]]]
    repeated: Mapping[str, Mapping[str, Any]]
    gaps: tuple[float, ...]
    servers: float
    calibration_seconds: float

    def cases(self) -> set[str]:
        """Cases of which timed launches completed."""
        return {one.case for one in self.launches if one.kind == "timed"}

    def each(self, case: str, kind: str, *names: str) -> list[float]:
        """These stages together, of each launch of a kind."""
        return [one.of(*names) for one in self.launches if (one.case, one.kind) == (case, kind)]

    def typical(self, case: str, kind: str, *names: str) -> float:
        """Their median."""
        return median(self.each(case, kind, *names))

    def clocks(self, case: str, kind: str) -> float:
        """The median of what comparing clocks takes today, whose work has its kernel loaded."""
        return median(
            one.clocks() for one in self.launches if (one.case, one.kind) == (case, kind)
        )

    def typical_of_all(self, case: str, name: str) -> float:
        """The median of a stage of all launches of a case."""
        return median(one.of(name) for one in self.launches if one.case == case)

    def setup(self) -> float:
        """Median seconds of beginning a process and setting its device up."""
        return median(one.of(*SETUP) for one in self.launches)

    def ending(self) -> float:
        """Median seconds from the last record of a launch to the end of its process."""
        return median(one.ending for one in self.launches)


@cache
def run(suite: str, host: Host = FIRST) -> Run:
    """A recorded run."""
    launches: dict[str, Launch] = {}
    gaps, servers, ended = [], 0.0, None
    blocks: dict[str, list[list[float]]] = defaultdict(list)
    repeated: dict[str, Mapping[str, Any]] = {}
    for event, now in _events(suite, host):
        kind, launch = event["kind"], event.get("launch", "")
        case = launch.partition("@")[0]
        if kind == "server_probed":
            servers += float(event["seconds"])
        elif kind == "launch_started":
            launches[launch] = Launch(case=case, kind=_kind(launch))
            if ended is not None:
                gaps.append(now - ended)
        elif kind == "calibrated":
            launches[launch].spans = [1e-9 * int(span) for span in event["wall_ns"]]
        elif kind == "block":
            blocks[case].append([1e-9 * int(step) for step in event["wall_ns"]])
        elif kind == "checked" and event["phase"] == "repeated":
            repeated[case] = event["check"]
        elif kind == "stage_times":
            launches[launch].stages, launches[launch].reported = _seconds(event), now
        elif kind == "launch_ended" and launch in launches:
            ended = now
            launches[launch].ending = now - launches[launch].reported
    plan = json.loads(lzma.decompress((host / f"{suite}.plan.json.xz").read_bytes()))
    return Run(
        launches=tuple(one for one in launches.values() if one.reported),
        blocks=blocks,
        repeated=repeated,
        gaps=tuple(gaps),
        servers=servers,
        calibration_seconds=plan["protocol"]["calibration_seconds"],
    )


def _events(suite: str, host: Host) -> Iterator[tuple[Mapping[str, Any], float]]:
    for line in lzma.decompress((host / f"{suite}.jsonl.xz").read_bytes()).splitlines():
        record = json.loads(line)
        yield record["event"], 1e-9 * int(record["monotonic_ns"])


def _seconds(event: Mapping[str, Any]) -> Mapping[str, float]:
    stages: dict[str, float] = defaultdict(float)
    for key in KEYS:
        for stage, nanoseconds in event.get(key, {}).items():
            stages[stage] += 1e-9 * int(nanoseconds)
    return stages


def _kind(launch: str) -> str:
    number = launch.rpartition("/")[2]
    return "repeat" if number.startswith("r") else "timed" if number != "0" else "untimed"
