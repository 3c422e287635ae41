"""How often a healthy device passes a limit around a baseline, before anything runs.

Healthy is as fast as the baseline (of a population: as its devices are), with launches and levels
of runs that vary as the baseline's do. The probability is that of the best interim analysis alone,
so it is a lower bound of that of all of them; by Student's t, because the spreads are estimates.
The uncertainty is what the judge's own rule takes (run_levels.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from appliance.judging.decision_rule import FLOOR
from appliance.judging.level_spread import spread_of
from appliance.planning.sessions import earlier_launches, judged_analyses
from appliance.records.baseline import Baseline, Level
from appliance.statistics.group_sequential import group_bounds
from appliance.statistics.run_levels import RunSpread, Sessions, uncertainty

CHANCE = 0.99
"""At which a margin is carried: a healthy device passes the limit with it."""
LARGEST_MARGIN = math.log(2.0)  # what is twice as slow is no matter of margins
MOST_RUNS = 200  # of a baseline; whoever needs more should not measure at all
_HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Launches of each session at each interim analysis, and the normal bounds for a pass."""

    counts: tuple[tuple[int, ...], ...]
    z: tuple[float, ...]


def schedule_of(
    interim_analyses: Sequence[int], launches: int, sessions: int, alpha: float
) -> Schedule:
    """When a case of so many launches in all sessions is judged, at this risk of a wrong pass."""
    analyses = judged_analyses(interim_analyses, launches, sessions)
    before = earlier_launches(interim_analyses, launches, sessions)
    return Schedule(
        counts=tuple((*before, count - sum(before)) for count in analyses),
        z=group_bounds(alpha, analyses, before),
    )


def chance(level: Level, margin: float, schedule: Schedule) -> float:
    """Least probability that a healthy device passes at this margin, in ln."""
    distance = margin
    if level.tolerance is not None:
        distance = max(margin, level.tolerance.log_limit - level.log_seconds)
    spread = spread_of(level)
    chances = [
        _chance_at(
            spread,
            distance=distance,
            floor=FLOOR * margin,
            device_sd=level.device_sd or 0.0,
            counts=counts,
            z=z,
        )
        for counts, z in zip(schedule.counts, schedule.z, strict=True)
    ]
    return max(chances)


def least_chance(baseline: Baseline, margin: float, schedule: Schedule) -> float:
    """The same of a baseline, by whichever clock it is less."""
    return min(chance(level, margin, schedule) for level in baseline.levels)


def carried_margin(level: Level, schedule: Schedule) -> float:
    """The smallest margin (like 0.03) at which a healthy device passes with 99 %.

    Infinite where even twice the time would not do. It is never below a population's tolerance
    limit, which stands in place of any smaller margin.
    """
    low, high = 0.0, LARGEST_MARGIN
    if chance(level, high, schedule) < CHANCE:
        return math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(level, middle, schedule) >= CHANCE else (middle, high)
    least = 0.0 if level.tolerance is None else level.tolerance.log_limit - level.log_seconds
    return math.expm1(max(high, least))


def runs_needed(level: Level, num_runs: int, margin: float, schedule: Schedule) -> int | None:
    """Runs in all, of as many launches, with which a baseline would carry this margin, in ln.

    As far as its spreads are what they seem; None where no number of runs does.
    """
    low, high = num_runs, MOST_RUNS
    if level.freedom < 1 or chance(_with_runs(level, num_runs, high), margin, schedule) < CHANCE:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = chance(_with_runs(level, num_runs, middle), margin, schedule) >= CHANCE
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def more_runs(baseline: Baseline, margin: float, schedule: Schedule) -> int | None:
    """Runs that a baseline lacks to carry this margin, in ln, by both clocks; None as above."""
    needed = [runs_needed(level, baseline.num_runs, margin, schedule) for level in baseline.levels]
    known = [runs for runs in needed if runs is not None]
    return max(known) - baseline.num_runs if len(known) == len(needed) else None


def _with_runs(level: Level, num_runs: int, runs: int) -> Level:
    """The same level by more runs, and of a population by as many more devices."""
    ratio = runs / num_runs
    return replace(
        level,
        freedom=max(level.freedom, round((level.freedom + 1) * ratio) - 1),
        error_sd=level.error_sd / math.sqrt(ratio),
        error_freedom=max(level.error_freedom, round((level.error_freedom + 1) * ratio) - 1),
    )


def _chance_at(
    spread: RunSpread,
    *,
    distance: float,
    floor: float,
    device_sd: float,
    counts: tuple[int, ...],
    z: float,
) -> float:
    """Of one interim analysis by itself."""
    sessions = _typical(spread, counts)
    assumed, actual = uncertainty(spread, sessions, floor), uncertainty(spread, sessions, 0.0)
    freedom, critical = float(actual.freedom), float(assumed.critical(z))
    if freedom < 1.0 or not math.isfinite(critical):
        return 0.0
    accepted = distance - critical * math.sqrt(float(assumed.variance))
    sd = math.sqrt(float(actual.variance) + device_sd**2)
    return float(stdtr(freedom, accepted / sd)) if sd > 0.0 else float(accepted > 0.0)


def _typical(spread: RunSpread, counts: tuple[int, ...]) -> Sessions:
    """Sessions that vary just as the baseline's runs and launches do."""
    scores = np.linspace(-1.0, 1.0, len(counts)) if len(counts) > 1 else np.zeros(1)
    scale = scores.std(ddof=1) if len(counts) > 1 else 1.0
    means = np.sqrt(spread.run) * scores / scale
    return Sessions(means=means, within=spread.within, counts=counts)
