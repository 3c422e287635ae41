"""Which nodes are slower or faster than their fleet, apart from what their rack or driver explains.

Everything is of ln(seconds), where a slow node is a shift. The middle is the median and the spread
the median absolute deviation, which a half of strange nodes cannot move. First levels of covariates
(a rack, a driver, a firmware) are compared with all other nodes and, one after the other, the
clearest first, taken off: a hot rack is one finding, and its nodes are then judged within it. Then
every device is tested on what is left, by every metric, and the rate of false discoveries over all
of these tests together is held (Benjamini and Hochberg 1995). A device lies beyond the fences where
that is so and the difference is also large enough to matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NORMAL_MAD = 1.482602218505602
"""Standard deviation of a normal distribution over its median absolute deviation."""
MEDIAN_ERROR = 1.2533141373155001
"""Standard error of a normal sample's median over that of its mean: sqrt(pi/2)."""
MAD_EFFICIENCY = 0.3675
"""Of the MAD as an estimate of a normal spread (Rousseeuw and Croux 1993): what a unit is worth."""
FEWEST = 5
"""Units of a metric below which nothing is tested."""
WIDEST = 20.0
"""ln of the widest fence: few devices that differ much would have one that no number holds."""
FEWEST_OF_LEVEL = 3
MOST_LEVELS = 200
"""Findings after which no further level is taken off: more than these are no findings."""


@dataclass(frozen=True, kw_only=True)
class Fences:
    """What counts as beyond: the rate of false discoveries, and the least relative difference.

    `least` is of one device, `least_of_level` of a whole rack or driver, both as in 0.01 for 1 %.
    """

    false_discoveries: float = 0.005
    least: float = 0.01
    least_of_level: float = 0.005


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric over the fleet: `values` are ln(seconds), of the devices `units` in their order.

    `levels` has, of each covariate, the level that every unit has; empty where it is not known.
    """

    metric: str
    units: tuple[str, ...]
    values: Array
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LevelFinding:
    """A rack, driver or firmware whose devices differ as a group: `effect` 0.03 is 3 % slower.

    `same_units` names levels of other covariates that have the same devices, so that nothing here
    can tell which of them is the cause.
    """

    metric: str
    covariate: str
    level: str
    num_units: int
    effect: float
    adjusted_p: float
    same_units: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One metric after the findings of levels were taken off.

    `middle` and `spread` are of ln(seconds); `effects` relative differences of each unit from what
    its levels lead to expect, `p` and `adjusted_p` of the test that there is none, `is_beyond`
    whether the unit lies beyond the fences `low` and `high` (relative differences, as effects).
    None of them is given below `FEWEST` units: `adjusted_p` is 1 then, and nothing is beyond.
    """

    series: Series
    middle: float
    spread: float
    effects: Array
    p: Array
    adjusted_p: Array
    is_beyond: NDArray[np.bool_]
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """All metrics of a fleet, and which racks, drivers or firmwares differ as groups."""

    fences: Fences
    levels: tuple[LevelFinding, ...]
    distributions: tuple[Distribution, ...]


def analyse(series: Sequence[Series], fences: Fences | None = None) -> Analysis:
    """Findings of levels, then of devices, over all metrics together."""
    wanted = fences or Fences()
    residuals = [one.values - _median(one.values) for one in series]
    spreads = [_inner_spread(one) for one in series]
    levels = _take_off_levels(series, residuals, spreads, wanted)
    drafts = [_tested(one, residual) for one, residual in zip(series, residuals, strict=True)]
    adjusted = _adjusted([draft.p for draft in drafts])
    limit = _largest_accepted([draft.p for draft in drafts], adjusted, wanted.false_discoveries)
    return Analysis(
        fences=wanted,
        levels=tuple(levels),
        distributions=tuple(
            _fenced(draft, part, limit, wanted)
            for draft, part in zip(drafts, adjusted, strict=True)
        ),
    )


# ------------------------------------------------------------------ middle and spread


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else math.nan


def _spread(residuals: Array, lost: int = 0) -> float:
    """Robust standard deviation, of which `lost` middles were estimated from the same values."""
    if len(residuals) <= lost:
        return math.nan
    mad = NORMAL_MAD * _median(np.abs(residuals - _median(residuals)))
    return mad * math.sqrt(len(residuals) / (len(residuals) - lost))


def _inner_spread(series: Series) -> float:
    """The least spread inside the levels of any covariate, or of all: groups apart do not widen it.

    Half of a fleet with another driver makes two heaps, of which the spread over all is the
    distance of the heaps.
    """
    spreads = [_spread(series.values, 1)]
    for levels in series.levels.values():
        inner = np.array(series.values)
        codes, num_levels = _codes(levels)
        members = _members(codes, num_levels)
        if 2 * num_levels > len(inner):  # the middles would eat the spread
            continue
        for rows in members:
            inner[rows] -= _median(inner[rows])
        spreads.append(_spread(inner, num_levels))
    known = [spread for spread in spreads if math.isfinite(spread) and spread > 0]
    return min(known, default=math.nan)


def _codes(levels: Sequence[str]) -> tuple[NDArray[np.intp], int]:
    names, codes = np.unique(np.array(levels, dtype=object).astype(str), return_inverse=True)
    return codes, len(names)


def _members(codes: NDArray[np.intp], num_levels: int) -> list[NDArray[np.intp]]:
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=num_levels))
    return np.split(order, ends[:-1])


# ------------------------------------------------------------------ levels


@dataclass(frozen=True, kw_only=True)
class _Level:
    """A level that can be tested: its rows in a series, and those of all others."""

    series: int
    covariate: str
    name: str
    rows: NDArray[np.intp]
    others: NDArray[np.intp]


def _take_off_levels(
    series: Sequence[Series], residuals: list[Array], spreads: Sequence[float], fences: Fences
) -> list[LevelFinding]:
    """Find levels, the clearest of each metric first, and take them off the residuals in place."""
    levels = [level for number, one in enumerate(series) for level in _levels(number, one)]
    findings: list[LevelFinding] = []
    while levels and len(findings) < MOST_LEVELS:
        tested = [_level_test(level, residuals, spreads) for level in levels]
        (adjusted,) = _adjusted([np.array([p for _, p in tested])])
        clearest: dict[int, tuple[float, int, str, str, int, float]] = {}
        for index, (level, (shift, p)) in enumerate(zip(levels, tested, strict=True)):
            is_found = adjusted[index] <= fences.false_discoveries
            if is_found and abs(math.expm1(shift)) >= fences.least_of_level:
                key = (p, len(level.rows), level.covariate, level.name, index, shift)
                clearest[level.series] = min(clearest.get(level.series, key), key)
        if not clearest:
            break
        for p_value, _, _, _, index, shift in clearest.values():
            level = levels[index]
            residuals[level.series][level.rows] -= shift
            findings.append(
                _finding(series, levels, level, shift, max(p_value, float(adjusted[index])))
            )
        taken = {entry[4] for entry in clearest.values()}
        levels = [level for index, level in enumerate(levels) if index not in taken]
    return findings


def _levels(number: int, series: Series) -> list[_Level]:
    """Levels that some, but not all, of enough units have; an empty name is no level."""
    found = []
    for covariate, names in series.levels.items():
        words = np.array(names, dtype=object).astype(str)
        codes, num_levels = _codes(names)
        for rows in _members(codes, num_levels):
            name = str(words[rows[0]])
            if name and FEWEST_OF_LEVEL <= len(rows) <= len(words) - FEWEST_OF_LEVEL:
                others = np.flatnonzero(codes != codes[rows[0]])
                found.append(
                    _Level(series=number, covariate=covariate, name=name, rows=rows, others=others)
                )
    return found


def _level_test(
    level: _Level, residuals: Sequence[Array], spreads: Sequence[float]
) -> tuple[float, float]:
    """How far the level's middle is from that of all others, and the p of no difference."""
    values, spread = residuals[level.series], spreads[level.series]
    shift = _median(values[level.rows]) - _median(values[level.others])
    if not math.isfinite(spread):
        return shift, 1.0
    error = MEDIAN_ERROR * spread * math.sqrt(1 / len(level.rows) + 1 / len(level.others))
    return shift, float(_two_sided(np.array([shift / error]), len(values))[0])


def _finding(
    series: Sequence[Series],
    levels: Sequence[_Level],
    level: _Level,
    shift: float,
    adjusted_p: float,
) -> LevelFinding:
    own = set(level.rows.tolist())
    same = [
        f"{other.covariate} {other.name}"
        for other in levels
        if other.series == level.series
        and other.covariate != level.covariate
        and len(other.rows) == len(own)
        and set(other.rows.tolist()) == own
    ]
    return LevelFinding(
        metric=series[level.series].metric,
        covariate=level.covariate,
        level=level.name,
        num_units=len(level.rows),
        effect=math.expm1(shift),
        adjusted_p=adjusted_p,
        same_units=tuple(same),
    )


# ------------------------------------------------------------------ devices


@dataclass(frozen=True, kw_only=True)
class _Tested:
    series: Series
    middle: float
    spread: float
    residuals: Array
    p: Array


def _tested(series: Series, residuals: Array) -> _Tested:
    middle = _median(residuals)
    spread = _spread(residuals, 1)
    centred = residuals - middle
    if len(residuals) < FEWEST or not spread > 0:
        p = np.ones(len(residuals))
    else:
        p = _two_sided(centred / spread, len(residuals))
    typical = _median(series.values - centred) if len(residuals) else math.nan
    return _Tested(series=series, middle=typical, spread=spread, residuals=centred, p=p)


def _two_sided(t: Array, count: int) -> Array:
    """P of deviations over a spread that so many units gave, by Student's t."""
    from scipy.special import stdtr  # noqa: PLC0415 - a tenth of a second, which few verbs need

    freedom = max(1.0, MAD_EFFICIENCY * (count - 1))
    return np.asarray(2 * stdtr(freedom, -np.abs(t)), dtype=np.float64)


def _adjusted(parts: Sequence[Array]) -> list[Array]:
    """P values of all parts together, adjusted by Benjamini and Hochberg, in the same parts."""
    from scipy.stats import false_discovery_control  # noqa: PLC0415 - a second to import

    if not parts:
        return []
    whole = np.concatenate(parts)
    made = false_discovery_control(np.clip(whole, 0, 1)) if len(whole) else whole
    return list(np.split(made, np.cumsum([len(part) for part in parts])[:-1]))


def _largest_accepted(parts: Sequence[Array], adjusted: Sequence[Array], rate: float) -> float:
    """The largest p that is a discovery; where there is none, the first that would be one."""
    p, q = np.concatenate([*parts, np.empty(0)]), np.concatenate([*adjusted, np.empty(0)])
    least = rate / max(1, len(p))
    return float(max(p[q <= rate], default=least))


def _fenced(tested: _Tested, adjusted: Array, limit: float, fences: Fences) -> Distribution:
    from scipy.special import stdtrit  # noqa: PLC0415 - as above

    freedom = max(1.0, MAD_EFFICIENCY * (len(tested.residuals) - 1))
    critical = -float(stdtrit(freedom, limit / 2))
    effects = np.expm1(tested.residuals)
    low = high = None
    if len(effects) >= FEWEST and tested.spread > 0:
        reach = min(critical * tested.spread, WIDEST)
        low, high = min(math.expm1(-reach), -fences.least), max(math.expm1(reach), fences.least)
    is_beyond = (adjusted <= fences.false_discoveries) & (np.abs(effects) >= fences.least)
    return Distribution(
        series=tested.series,
        middle=tested.middle,
        spread=tested.spread,
        effects=effects,
        p=tested.p,
        adjusted_p=adjusted,
        is_beyond=is_beyond,
        low=low,
        high=high,
    )
