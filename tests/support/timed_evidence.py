"""Evidence of timed launches, and the criteria by which their speed is judged."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
from support.builders import (
    FUNCTIONAL,
    SYSTEM,
    bare_lines,
    healthy_events,
    with_bounds,
)

from appliance.judging.verdict import judge
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import (
    Block,
    Event,
    LaunchEnded,
    Line,
)
from appliance.records.plan import Launch, Plan
from appliance.records.system import System
from appliance.records.verdict import Ruling

SECONDS = 0.01

LAUNCH_SD = 0.004


def criteria(*items: Criterion, **fields: object) -> Criteria:
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, *items), **fields)  # type: ignore[arg-type]


def perf(**fields: object) -> Criterion:
    return replace(
        Criterion(id="speed", kind="perf", title="Step time", metric="step_seconds"),
        **fields,  # type: ignore[arg-type]
    )


def tail(metric: str, at_most: float, **fields: object) -> Criterion:
    return replace(
        Criterion(id="tail", kind="tail", title="Tail", metric=metric, at_most=at_most),
        **fields,  # type: ignore[arg-type]
    )


def ruling_on(verdict_rulings: Sequence[Ruling], criterion: str = "speed") -> Ruling:
    return next(item for item in verdict_rulings if item.criterion == criterion)


def timed(
    plan: Plan,
    draw: Callable[[Launch], Sequence[float]],
    *,
    every: timedelta = timedelta(seconds=30),
) -> list[Line]:
    """The lines of a healthy run whose step times (seconds) are drawn, one launch every 30 s."""
    launches = {launch.id: launch for launch in plan.launches}
    events = [_timed(event, launches, draw) for event in healthy_events(plan)]
    moment, lines = datetime(2026, 11, 21, 12, tzinfo=UTC), []
    for line in bare_lines(events):
        moment += every if isinstance(line.event, LaunchEnded) else timedelta()
        lines.append(replace(line, utc=f"{moment:%Y-%m-%dT%H:%M:%S.000Z}"))
    return lines


def _timed(
    event: Event, launches: dict[str, Launch], draw: Callable[[Launch], Sequence[float]]
) -> Event:
    if isinstance(event, LaunchEnded):
        return replace(event, wall_ns=10**13)
    if not isinstance(event, Block):
        return event
    times = tuple(round(1e9 * seconds) for seconds in draw(launches[event.launch]))
    whole = sum(times) + 1000
    return replace(event, wall_ns=times, block_wall_ns=whole, block_raw_ns=whole)


def steady(
    seconds: float = SECONDS, *, sd: float = LAUNCH_SD, steps: int = 40, seed: int = 1
) -> Callable[[Launch], Sequence[float]]:
    """Launches whose level varies by `sd`, their steps by half a percent."""

    def draw(launch: Launch) -> Sequence[float]:
        rng = np.random.default_rng([seed, launch.number, len(launch.case)])
        level = seconds * math.exp(sd * rng.standard_normal())
        return [float(each) for each in level * np.exp(0.005 * rng.standard_normal(steps))]

    return draw


def rulings(
    plan: Plan,
    lines: Sequence[Line],
    requested: Criteria,
    *,
    baselines: Baselines | None = None,
    peaks: Peaks | None = None,
    system: System = SYSTEM,
) -> tuple[Ruling, ...]:
    return judge(
        plan=with_bounds(plan, requested),
        criteria=requested,
        lines=lines,
        baselines=baselines or Baselines(baseline=()),
        peaks=peaks or Peaks(peak=()),
        system=system,
    ).rulings
