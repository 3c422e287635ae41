"""Two sets of launches against each other: difference, order, profile, and a model of many.

Pure functions of ln(seconds), one value for each launch. Nothing here assumes that both sides
spread alike (Welch), and where too few launches or a clock that stands give no spread there is
no test, never a certain one. statsmodels is imported where it is used: it costs half a second.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES

FLOOR = 1 / 3
"""Least spread, in margins, that likeness is granted for: a few launches may miss a slow mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Difference of two means of ln(seconds), positive where the second is slower.

    `error` is its standard error with Welch's `degrees` of freedom; the `floored_` ones are of
    the same launches with a spread of at least the floor.
    """

    difference: float
    error: float
    degrees: float
    floored_error: float
    floored_degrees: float

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Two-sided t interval of the difference."""
        half = self.error * float(stdtrit(self.degrees, 0.5 + confidence / 2))
        return self.difference - half, self.difference + half

    def risks(self, log_margin: float) -> tuple[float, float, float]:
        """One-sided p-values against a margin: of "within", of "slower" and of "faster".

        Small means shown. That of "within" is the larger of two one-sided tests (TOST) with the
        floored spread; the others are of differences beyond the margin.
        """
        distances = log_margin - abs(self.difference)
        within = float(stdtr(self.floored_degrees, -distances / self.floored_error))
        slower = float(stdtr(self.degrees, (log_margin - self.difference) / self.error))
        faster = float(stdtr(self.degrees, (log_margin + self.difference) / self.error))
        return within, slower, faster


def contrast(first: Sequence[float], second: Sequence[float], *, floor: float) -> Contrast | None:
    """`second` against `first`; `floor` is the least standard deviation of the floored figures.

    None with fewer than five launches on a side, a value that is not finite, or launches that
    all took the same time to the last digit.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (first, second)]
    if any(side.size < LEAST_LAUNCHES or not np.isfinite(side).all() for side in sides):
        return None
    if any(float(np.ptp(side)) == 0 for side in sides):
        return None
    counts = [side.size for side in sides]
    variances = [float(np.var(side, ddof=1)) for side in sides]
    error, degrees = _welch(variances, counts)
    floored_error, floored_degrees = _welch([max(one, floor**2) for one in variances], counts)
    return Contrast(
        difference=float(np.mean(sides[1]) - np.mean(sides[0])),
        error=error,
        degrees=degrees,
        floored_error=floored_error,
        floored_degrees=floored_degrees,
    )


def _welch(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Standard error of a difference of means, and its degrees of freedom."""
    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    return _satterthwaite(parts, [count - 1 for count in counts])


def _satterthwaite(parts: Sequence[float], degrees: Sequence[float]) -> tuple[float, float]:
    """Standard error of a sum of independent parts with these variances, and its degrees."""
    shares = [part / max(parts) for part in parts]  # squares of small variances vanish
    below = sum(share**2 / degree for share, degree in zip(shares, degrees, strict=True))
    return math.sqrt(sum(parts)), sum(shares) ** 2 / below


def pooled(contrasts: Sequence[Contrast], weights: Sequence[float]) -> Contrast:
    """Weighted mean of independent differences; weights need not sum to one, but to more than 0."""
    total = sum(weights)
    shares = [weight / total for weight in weights]
    items = [(share, one) for share, one in zip(shares, contrasts, strict=True) if share > 0]
    error, degrees = _satterthwaite(
        [(share * one.error) ** 2 for share, one in items], [one.degrees for _, one in items]
    )
    floored_error, floored_degrees = _satterthwaite(
        [(share * one.floored_error) ** 2 for share, one in items],
        [one.floored_degrees for _, one in items],
    )
    return Contrast(
        difference=sum(share * one.difference for share, one in items),
        error=error,
        degrees=degrees,
        floored_error=floored_error,
        floored_degrees=floored_degrees,
    )


# ------------------------------------------------------------------ order


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Probability that a launch of the first side is the faster one, ties halved."""

    probability: float
    low: float | None
    high: float | None
    method: str


def order(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Order:
    """How often `first` is faster than `second`, with an interval for five launches or more.

    Brunner and Munzel's interval, cut to what a probability may be. Where all launches of one
    side are faster than all of the other its variance is none, and the interval is the exact
    one of as many pairs as the smaller side has launches; where all are equal there is none.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    probability = _probability(ours, theirs)
    count = min(ours.size, theirs.size)
    if count < LEAST_LAUNCHES:
        return Order(probability=probability, low=None, high=None, method="too few launches")
    if float(np.ptp(np.concatenate([ours, theirs]))) == 0:
        return Order(probability=probability, low=None, high=None, method="all launches are equal")
    if probability in (0.0, 1.0):
        least = (0.5 - confidence / 2) ** (1 / count)
        low, high = (least, 1.0) if probability == 1.0 else (0.0, 1 - least)
        method = f"all are on one side: exact binomial interval of {count} pairs"
        return Order(probability=probability, low=low, high=high, method=method)
    from statsmodels.stats.nonparametric import (  # noqa: PLC0415 - half a second, where wanted
        rank_compare_2indep,
    )

    compared = rank_compare_2indep(theirs, ours)
    low, high = (float(end) for end in compared.conf_int(alpha=1 - confidence))
    return Order(
        probability=probability,
        low=max(0.0, low),
        high=min(1.0, high),
        method="Brunner-Munzel, Student's t",
    )


def _probability(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    later = theirs[:, None] - ours[None, :]
    return float((np.sum(later > 0) + np.sum(later == 0) / 2) / later.size)


# ------------------------------------------------------------------ profile


def profile(
    ratios: Sequence[float], longest: float
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Performance profile (Dolan and More) of ratios to the reference, and its score.

    The share of cases at or below each ratio, for the ratios in 1 to `longest` at which it
    changes, 1 itself first; and the area below divided by its width, as AlgoPerf scores. A
    ratio of infinity is a case that was never reached. One that is below 1 counts as 1.
    """
    held = np.maximum(np.asarray(ratios, dtype=np.float64), 1.0)
    steps = np.unique(np.concatenate([[1.0], held[held <= longest]]))
    shares = np.mean(held[None, :] <= steps[:, None], axis=1)
    score = np.mean(np.clip(longest - held, 0.0, None)) / (longest - 1.0)
    return tuple(map(float, steps)), tuple(map(float, shares)), float(score)


# ------------------------------------------------------------------ many devices


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLaunch:
    """One launch: its device, its workload and ln(seconds)."""

    device: str
    workload: str
    log_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Spreads in ln(seconds), the effect of each device, and what is to be said of the fit."""

    device_sd: float
    interaction_sd: float
    launch_sd: float
    effects: tuple[tuple[str, float], ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class _Scaled:
    """Launches for the fit: numbers of device and workload (n, 2), and outcomes of spread 1.

    `outcomes` times `scale` are ln(seconds); `devices` are the names by their number.
    """

    cells: NDArray[np.int64]
    outcomes: NDArray[np.float64]
    scale: float
    devices: Sequence[str]


def mixed_model(launches: Sequence[TimedLaunch]) -> Fit | str:
    """Fixed workloads, random devices and device x workload, by restricted likelihood.

    Effects are best linear unbiased predictions: shrunk towards the others, the more so the less
    is known. A sentence in place of a fit says why there is none.
    """
    data = _scaled(launches)
    if data is None:
        return "no workload has two launches on one device that differ"
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            fitted = _fitted(data)
            effects = fitted.random_effects[1]
        except (ValueError, np.linalg.LinAlgError) as error:
            return f"its fit failed ({str(error).strip().rstrip('.')[:120]})"
    by_device = _device_effects(effects, data)
    spreads = dict(zip(fitted.model.exog_vc.names, fitted.vcomp, strict=True))
    if not all(map(math.isfinite, (*spreads.values(), fitted.scale, *by_device.values()))):
        return "its fit gave no finite figures"
    return Fit(
        device_sd=math.sqrt(max(0.0, spreads["device"])) * data.scale,
        interaction_sd=math.sqrt(max(0.0, spreads["interaction"])) * data.scale,
        launch_sd=math.sqrt(fitted.scale) * data.scale,
        effects=tuple((device, by_device[device]) for device in data.devices),
        note=_note([str(item.message) for item in caught], has_converged=bool(fitted.converged)),
    )


def _scaled(launches: Sequence[TimedLaunch]) -> _Scaled | None:
    """None where launches of one device and workload have no spread, or there are no two."""
    devices = list(dict.fromkeys(one.device for one in launches))
    workloads = list(dict.fromkeys(one.workload for one in launches))
    values = np.asarray([one.log_seconds for one in launches], dtype=np.float64)
    cells = np.asarray(
        [(devices.index(one.device), workloads.index(one.workload)) for one in launches]
    )
    scale = _within_cells(cells, values)
    if not math.isfinite(scale) or scale == 0:
        return None
    # The fit's own limits are absolute and expect a spread of one.
    return _Scaled(cells=cells, outcomes=values / scale, scale=scale, devices=devices)


def _fitted(data: _Scaled) -> Any:
    """The fit of statsmodels; raises ValueError or LinAlgError where it fails."""
    import pandas as pd  # noqa: PLC0415 - with the next, half a second, where wanted
    from statsmodels.regression.mixed_linear_model import MixedLM  # noqa: PLC0415

    frame = pd.DataFrame(
        {
            # names of our own: those of devices may hold whatever a formula would read
            "device": [f"d{device}" for device, _ in data.cells],
            "workload": [f"w{workload}" for _, workload in data.cells],
            "y": data.outcomes,
            "one": 1,
        }
    )
    return MixedLM.from_formula(
        "y ~ 0 + C(workload)",
        groups="one",
        re_formula="0",
        vc_formula={"device": "0 + C(device)", "interaction": "0 + C(device):C(workload)"},
        data=frame,
    ).fit(reml=True)


def _device_effects(effects: Mapping[str, float], data: _Scaled) -> dict[str, float]:
    """Effects in ln(seconds) by device; statsmodels names them "device[C(device)[d0]]"."""
    return {
        data.devices[int(match[1])]: float(effect) * data.scale
        for name, effect in effects.items()
        if (match := re.fullmatch(r"device\[C\(device\)\[d(\d+)\]\]", str(name)))
    }


def _within_cells(cells: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """Standard deviation of launches of one device and workload, pooled; NaN if all are single."""
    _, place, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    place = place.ravel()
    means = np.bincount(place, weights=values) / counts
    degrees = values.size - counts.size
    if degrees == 0:
        return math.nan
    return math.sqrt(float(np.sum((values - means[place]) ** 2)) / degrees)


def _note(messages: Sequence[str], *, has_converged: bool) -> str:
    """What a reader should know of the fit, in our words; nothing where all is well."""
    if not has_converged:
        return "The fit did not converge: read its figures as rough."
    if any("boundary" in text or "singular" in text for text in messages):
        return "A spread is next to none beside that of the launches, which the fit cannot refine."
    if messages:
        return "The fit was not smooth: read its figures as rough."
    return ""
