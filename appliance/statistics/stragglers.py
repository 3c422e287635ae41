"""Which device of a node is slower than its neighbours: each one against all others.

A job that spans devices runs at the pace of its slowest one, so a straggler matters even within
its limits. A device's mean over workloads is compared with the means of the others by Student's
t, with itself left out of their spread; the 1 % risk of naming anyone in a healthy node is
shared by all devices. That alone names nobody: the effect must be worth a service call, and the
launches before and after the middle of the run must both show it. One straggler hides another
from this test, since each widens the spread that the other is measured by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from appliance.records.verdict import Straggler

Values = NDArray[np.float64]
Launches = Sequence[tuple[int, float]]
"""Place in the order of the run, and ln(seconds), of each launch of a workload on a device."""

FEWEST_DEVICES = 3
FAMILY_RISK = 0.01  # that a healthy node has any device flagged
SMALLEST_EFFECT = 0.02
REPEATED_SHARE = 0.5  # of the effect, that each half of the run must show
ROUNDING = 1e-9  # a spread between devices below this is no measurement of one


def find(values: Mapping[str, Mapping[str, Launches]]) -> tuple[Straggler, ...]:
    """Every device of a node against the others, flagged or not; `values` by device and workload.

    Counted are the workloads that have launches on all devices, every time finite; each weighs
    the same. With fewer than three devices, or without such a workload, nothing can be said and
    the answer is empty. NaN, with which no device is flagged, are `t` where the others do not
    differ at all, and the effect of a half of the run in which no workload ran on all devices.
    """
    devices, workloads = tuple(values), _shared(values)
    if len(devices) < FEWEST_DEVICES or not workloads:
        return ()
    parts = np.array([[_means(values[device][name]) for name in workloads] for device in devices])
    whole, first, second = (_device_means(parts[:, :, part]) for part in range(3))
    effects, first_effects, second_effects = map(_effects, (whole, first, second))
    critical = float(stdtrit(len(devices) - 2, 1 - FAMILY_RISK / len(devices)))
    statistics = _statistics(whole)
    repeated = REPEATED_SHARE * effects
    is_flagged = (
        (statistics >= critical)
        & (effects >= SMALLEST_EFFECT)
        & (first_effects >= repeated)
        & (second_effects >= repeated)
    )
    return tuple(
        Straggler(
            device=device,
            effect=float(effects[place]),
            t=float(statistics[place]),
            critical=critical,
            first_half=float(first_effects[place]),
            second_half=float(second_effects[place]),
            num_workloads=len(workloads),
            is_flagged=bool(is_flagged[place]),
        )
        for place, device in enumerate(devices)
    )


def _shared(values: Mapping[str, Mapping[str, Launches]]) -> list[str]:
    """Workloads that can be counted, by name."""
    counted = [
        {
            name
            for name, launches in workloads.items()
            if launches and all(math.isfinite(log_seconds) for _, log_seconds in launches)
        }
        for workloads in values.values()
    ]
    return sorted(set.intersection(*counted)) if counted else []


def _means(launches: Launches) -> tuple[float, float, float]:
    """Mean over all launches, over the first half of them, and over the second; NaN if none."""
    logs = [log_seconds for _, log_seconds in sorted(launches)]
    middle = len(logs) // 2
    halves = (logs, logs[:middle], logs[middle:])
    whole, first, second = (math.fsum(part) / len(part) if part else math.nan for part in halves)
    return whole, first, second


def _device_means(table: Values) -> Values:
    """Means over workloads, shape (devices,), of a table (devices, workloads) without its NaN.

    A workload without a mean on some device is not counted; NaN if there is no other. How long a
    workload takes cancels in the differences, because all devices have the same ones.
    """
    counted = table[:, np.isfinite(table).all(axis=0)]
    if counted.shape[1] == 0:
        return np.full(len(table), math.nan)
    means: Values = counted.mean(axis=1)
    return means


def _others(means: Values) -> Values:
    """The means of the other devices for each device, shape (devices, devices - 1)."""
    count = len(means)
    return np.tile(means, (count, 1))[~np.eye(count, dtype=bool)].reshape(count, count - 1)


def _effects(means: Values) -> Values:
    """Relative step time of each device against the mean of the others, less 1."""
    with np.errstate(over="ignore"):  # infinitely slow is an answer
        effects: Values = np.expm1(means - _others(means).mean(axis=1))
    return effects


def _statistics(means: Values) -> Values:
    """Student's t of each device against the others, devices - 2 degrees of freedom."""
    others = _others(means)
    spread = others.std(axis=1, ddof=1)
    spread[spread < ROUNDING] = math.nan
    errors = spread * math.sqrt(1 + 1 / others.shape[1])
    statistics: Values = (means - others.mean(axis=1)) / errors
    return statistics
