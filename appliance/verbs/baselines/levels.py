"""Levels of baselines by one clock, with how far runs vary, over all cases and devices of a file.

A run is one observation, and a session is a run. Degrees of freedom are those of independent runs,
never of cases or of devices that share a run: what slows one of them may slow all. How far runs
vary is moderated over cases and devices (run_levels.py), how much launches resemble each other is
one figure of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from appliance.records.baseline import Level, Tolerance
from appliance.records.verdict import Clock
from appliance.statistics.launch_correlation import correlation_of
from appliance.statistics.run_levels import moderated, within_variance
from appliance.statistics.tolerance import tolerance_factor
from appliance.storage.device_file import LEAST_DEVICES, LEAST_LAUNCHES
from appliance.verbs.baselines.measurements import Measured

PART, CONFIDENCE = 0.95, 0.95  # of the devices, that the tolerance limit covers

Group = tuple[str, str]
"""A case of the suite, and a device by its name."""
Runs = Mapping[tuple[str, int], tuple[float, ...]]
"""ln(seconds) of launches, by run."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Variances of ln(step seconds): of launches within a run, and of the levels of runs."""

    within: float
    between: float

    @property
    def launch_sd(self) -> float:
        """The spread of a launch of any run around the device's mean."""
        return math.sqrt(self.within + self.between)


def same_device_levels(measured: Sequence[Measured], clock: Clock) -> Mapping[Group, Level | str]:
    """A level of each case on each device, or why there is none."""
    return levels_of(_groups(measured, clock))


def levels_of(groups: Mapping[Group, Runs]) -> Mapping[Group, Level | str]:
    """A level of each group of runs, or why there is none."""
    correlation = _correlation(groups)
    variances = _run_variances(groups)
    return {
        group: _fault(runs) or _level(list(runs.values()), variances[group], correlation)
        for group, runs in groups.items()
    }


def population_levels(measured: Sequence[Measured], clock: Clock) -> Mapping[Group, Level | str]:
    """A level of each case over its devices, or why there is none."""
    groups = _groups(measured, clock)
    correlation = _correlation(groups)
    variances = _run_variances(groups)
    levels: dict[Group, Level | str] = {}
    for case in dict.fromkeys(name for name, _ in groups):
        own = {device: runs for (name, device), runs in groups.items() if name == case}
        fault = next(filter(None, map(_fault, own.values())), "")
        levels[case, ""] = fault or _population(
            own, {device: variances[case, device] for device in own}, correlation
        )
    return levels


def spread_of(devices: Sequence[Sequence[Sequence[float]]]) -> Spread:
    """One-way random effects: devices, their runs, and in each run ln(step seconds) of launches.

    `within` is the pooled variance inside runs; `between` that of the runs' levels around their
    device, by the method of moments for runs of unequal length (Searle, Variance Components,
    1992), never below zero. A device with one run says nothing of `between`.
    """
    inside = levels = weight = 0.0
    free_inside = free_levels = 0
    for device in devices:
        runs = [np.asarray(run, dtype=np.float64) for run in device]
        counts = np.array([len(run) for run in runs], dtype=np.float64)
        means = np.array([run.mean() for run in runs])
        middle = float(counts @ means / counts.sum())
        inside += float(sum(((run - run.mean()) ** 2).sum() for run in runs))
        free_inside += int(counts.sum()) - len(runs)
        levels += float(counts @ (means - middle) ** 2)
        weight += float(counts.sum() - (counts**2).sum() / counts.sum())
        free_levels += len(runs) - 1
    within = inside / free_inside if free_inside else 0.0
    if not free_levels:
        return Spread(within=within, between=0.0)
    excess = (levels - free_levels * within) / weight
    return Spread(within=within, between=max(0.0, excess))


# ------------------------------------------------------------------ of runs


def _groups(measured: Sequence[Measured], clock: Clock) -> Mapping[Group, Runs]:
    groups: dict[Group, dict[tuple[str, int], tuple[float, ...]]] = {}
    for item in measured:
        values = item.values(clock)
        if values:
            groups.setdefault((item.key.case, item.device), {})[item.run_key] = values
    return groups


def _correlation(groups: Mapping[Group, Runs]) -> float:
    return correlation_of([list(runs.values()) for runs in groups.values() if not _fault(runs)])


def _run_variances(groups: Mapping[Group, Runs]) -> Mapping[Group, float]:
    """Variance of the means of runs, moderated over groups with as many runs; NaN of one run."""
    raw: dict[int, dict[Group, float]] = {}
    for group, runs in groups.items():
        means = [float(np.mean(run)) for run in runs.values()]
        variance = float(np.var(means, ddof=1)) if len(means) > 1 else math.nan
        raw.setdefault(len(means) - 1, {})[group] = variance
    variances: dict[Group, float] = {}
    for freedom, own in raw.items():
        values = np.array(list(own.values()))
        variances |= zip(own, moderated(values, freedom).tolist(), strict=True)
    return variances


def _fault(runs: Runs) -> str:
    """Why launches give no level, or nothing."""
    values = [value for run in runs.values() for value in run]
    if len(values) < LEAST_LAUNCHES:
        return f"{len(values)} launches completed, and a spread needs {LEAST_LAUNCHES}"
    if not all(map(math.isfinite, values)):
        return "a launch has a time that is no number"
    if len(set(values)) == 1:
        return "all launches took the same time to the last digit, as no clock shows it"
    return ""


def _level(runs: Sequence[tuple[float, ...]], variance: float, correlation: float) -> Level:
    """Of one device; a single run says nothing of how far runs vary."""
    freedom = len(runs) - 1
    run_sd = math.sqrt(variance) if freedom else 0.0
    return Level(
        log_seconds=float(np.mean([np.mean(run) for run in runs])),
        launch_sd=spread_of([runs]).launch_sd,
        within_sd=math.sqrt(within_variance(runs, correlation)),
        within_freedom=sum(map(len, runs)) - len(runs),
        run_sd=run_sd,
        run_launches=max(map(len, runs)),
        freedom=freedom,
        correlation=correlation,
        error_sd=run_sd / math.sqrt(len(runs)),
        error_freedom=freedom,
        device_sd=None,
        tolerance=None,
    )


def _population(
    devices: Mapping[str, Runs], variances: Mapping[str, float], correlation: float
) -> Level | str:
    """Of devices; where each has one run, how far runs vary is in how far devices do.

    Devices in one node share its runs, so there are no more independent ones than runs.
    """
    if len(devices) < LEAST_DEVICES:
        return f"a population needs {LEAST_DEVICES} devices, and there is {len(devices)}"
    means = [float(np.mean([np.mean(run) for run in runs.values()])) for runs in devices.values()]
    mean, device_sd = float(np.mean(means)), float(np.std(means, ddof=1))
    if device_sd == 0.0:
        return "all devices took the same time to the last digit, as no clock shows it"
    every = [run for runs in devices.values() for run in runs.values()]
    num_runs = len({key for runs in devices.values() for key in runs})
    weights = {name: len(runs) - 1 for name, runs in devices.items()}
    total = sum(weights.values())
    variance = device_sd**2
    if total:
        variance = sum(variances[name] * one for name, one in weights.items() if one) / total
    independent = min(len(devices), num_runs)
    factor = tolerance_factor(len(devices), PART, CONFIDENCE)
    return Level(
        log_seconds=mean,
        launch_sd=spread_of([list(runs.values()) for runs in devices.values()]).launch_sd,
        within_sd=math.sqrt(within_variance(every, correlation)),
        within_freedom=sum(map(len, every)) - len(every),
        run_sd=math.sqrt(variance),
        run_launches=max(map(len, every)),
        freedom=(num_runs if total else independent) - 1,
        correlation=correlation,
        error_sd=max(device_sd, math.sqrt(variance)) / math.sqrt(independent),
        error_freedom=independent - 1,
        device_sd=device_sd,
        tolerance=Tolerance(
            p=PART, gamma=CONFIDENCE, k=factor, log_limit=mean + factor * device_sd
        ),
    )
