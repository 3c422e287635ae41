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

from appliance.planning.launch_constants import NUM_CLOCK_SPANS, WIDEST_BRACKET
from appliance.worker.timing import LONGER

Host = Path
FIRST, SECOND = FOLDER, LATER
"""Of 0.12.0; and of nearly 0.13.0, on a slower host."""
USEFUL = ("warm_up", "timed", "evaluate", "other")
"""Stages of a timed launch between its clocks and its checks, which no launch before is beside."""


@dataclass
class Launch:
    """Seconds of its stages by name, and from the last of its records until its process ended.

    `spans` are those over which it compared its clocks, in seconds, and `opens` what the host left
    open of each.
    """

    case: str
    kind: str
    stages: Mapping[str, float] = field(default_factory=dict)
    spans: Sequence[float] = ()
    opens: Sequence[float] = ()
    reported: float = 0.0
    ending: float = 0.0

    def of(self, *names: str) -> float:
        """Seconds of these stages together."""
        return sum(self.stages.get(name, 0.0) for name in names)

    def clocks(self, least: float) -> float:
        """Seconds of comparing clocks today, over `least` seconds of work.

        Nothing is loaded in the first span any more, so it is taken to be like the others, and each
        is as long as what the host left open of it asks for.
        """
        return self.of("calibrate") - sum(self.spans) + self.span_seconds(least)

    def span_seconds(self, least: float) -> float:
        """Those of the spans among them."""
        shortest = least / NUM_CLOCK_SPANS
        return NUM_CLOCK_SPANS * mean(span(shortest, one) for one in self.opens[1:])


def span(shortest: float, open_seconds: float) -> float:
    """Seconds of a span of which the host left so many open (`timing._clock_span`)."""
    if open_seconds <= WIDEST_BRACKET * (shortest + open_seconds):
        return shortest
    return LONGER * max(shortest, open_seconds / WIDEST_BRACKET)


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

    def cases(self) -> set[str]:
        """Cases of which timed launches completed."""
        return {one.case for one in self.launches if one.kind == "timed"}

    def each(self, case: str, kind: str, *names: str) -> list[float]:
        """These stages together, of each launch of a kind."""
        return [one.of(*names) for one in self.launches if (one.case, one.kind) == (case, kind)]

    def typical(self, case: str, kind: str, *names: str) -> float:
        """Their median."""
        return median(self.each(case, kind, *names))

    def clocks(self, case: str, kind: str, least: float) -> float:
        """The median of what comparing clocks over so many seconds takes today."""
        return median(
            one.clocks(least) for one in self.launches if (one.case, one.kind) == (case, kind)
        )

    def span_seconds(self, least: float) -> float:
        """The median of the spans of all launches that compared their clocks."""
        return median(one.span_seconds(least) for one in self.launches if one.opens)

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
            spans, inner = (
                [1e-9 * int(one) for one in event[by]] for by in ("wall_ns", "inner_ns")
            )
            launches[launch].spans = spans
            launches[launch].opens = [one - less for one, less in zip(spans, inner, strict=True)]
        elif kind == "block":
            blocks[case].append([1e-9 * int(step) for step in event["wall_ns"]])
        elif kind == "checked" and event["phase"] == "repeated":
            repeated[case] = event["check"]
        elif kind == "stage_times":
            launches[launch].stages, launches[launch].reported = _seconds(event), now
        elif kind == "launch_ended" and launch in launches:
            ended = now
            launches[launch].ending = now - launches[launch].reported
    return Run(
        launches=tuple(one for one in launches.values() if one.reported),
        blocks=blocks,
        repeated=repeated,
        gaps=tuple(gaps),
        servers=servers,
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
