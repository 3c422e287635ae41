"""Two one-sided tests at one limit, with a stated risk over several interim analyses.

Who looks at growing data several times finds by chance what he hopes for, so each interim analysis
may spend only a part of the risk. The part follows Lan and DeMets (1983) with their Pocock-type
function: most is spent early, because a healthy device should be done at its first interim
analysis; spending as O'Brien and Fleming do would need two to three times the launches there. The
bounds are those of a normal statistic at unequal interim analyses, found by the recursion of
Armitage, McPherson and Rowe (1969), and are turned into Student's t by equal tail probability,
because the spread is not known beforehand.

Of several sessions the mean over them is tested, and only the last grows: its interim analyses
share the earlier sessions. The fraction of information is then the variance of the last mean over
that of this one, with independent launches and nothing else. Levels of runs and the error of a
baseline are shared by all interim analyses too and only make them more alike, and what is more
alike crosses the same bounds no more often (Slepian 1962), so the risk holds whatever they are.
Bounds that fall as O'Brien and Fleming's (1979) lose little at the first of analyses that are so
alike, and the last lies just above the bound of a single one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtrit

from appliance.errors import UsageError
from appliance.statistics.estimates import LEAST_LAUNCHES

Values = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]

EQUAL = 1e-12  # a spread of ln(seconds) below this is the rounding of equal values
GUARD = 1e-9  # so near to its bound nothing is ruled: another machine may round to the other side

_FARTHEST = 8.0  # standard deviations below zero where the density is cut; 6e-16 lies beyond
_SECANTS = 30
_HIGHEST = 40.0  # no bound of a risk that a float can hold lies higher
_LEAST_GAP = (
    0.002  # of the last interim analysis; the grid, and seconds of work, grow as this shrinks
)
_PANEL = 2.0  # spreads of a step; ten points then leave errors near 1e-12
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Both tests of one limit; arrays of the shape of what was tested, of no dimension for scalars.

    `sd_used` is the spread that the test for a pass took. The t statistics are NaN where nothing
    may be ruled.
    """

    is_pass: Answers
    is_fail: Answers
    t_pass: Values
    t_fail: Values
    critical_pass: Values
    critical_fail: Values
    sd_used: Values


def spent(alpha: float, fraction: float) -> float:
    """Risk spent once this fraction of all planned launches is made: alpha ln(1 + (e-1) f)."""
    return alpha * math.log1p((math.e - 1.0) * fraction)


def group_bounds(
    alpha: float, launch_counts: Sequence[int], earlier: Sequence[int] = ()
) -> tuple[float, ...]:
    """Normal bound of a one-sided test at each interim analysis, of risk `alpha` over all.

    `launch_counts` are growing launch counts, with those of earlier sessions, whose launches are
    `earlier`. One interim analysis gives the plain normal quantile. Errors stay below 1e-9.

    Raises UsageError where the interim analyses do not grow from at least 1, where two of them are
    closer than a five-hundredth of the last, or where `alpha` is not between 0 and 1.
    """
    check_schedule(launch_counts)
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"a risk of {alpha} cannot be spent: it must lie between 0 and 1")
    times = information(tuple(launch_counts), tuple(earlier))
    if earlier:
        height = _one_height(float(alpha), times)
        return tuple(height / math.sqrt(time) for time in times)
    return _group_bounds(float(alpha), times)


@functools.cache
def information(launch_counts: tuple[int, ...], earlier: tuple[int, ...]) -> tuple[float, ...]:
    """Fraction of information at each interim analysis of a mean over sessions; 1 at the last.

    Many sessions leave little to the last. Interim analyses too close to tell apart are taken to be
    less alike than they are, which errs towards saying nothing.
    """
    if not earlier:
        times = [launches / launch_counts[-1] for launches in launch_counts]
        if min((late - soon for soon, late in pairwise(times)), default=1.0) < _LEAST_GAP - GUARD:
            raise UsageError(
                f"the interim analyses {launch_counts} are too close to each other: leave some out"
            )
        return tuple(times)
    variances = [
        sum(1.0 / count for count in earlier) + 1.0 / (launches - sum(earlier))
        for launches in launch_counts
    ]
    fractions = [variances[-1] / variance for variance in variances]
    for place in reversed(range(len(fractions) - 1)):
        fractions[place] = min(fractions[place], fractions[place + 1] - _LEAST_GAP)
    return tuple(fractions)


@functools.cache
def _group_bounds(alpha: float, times: tuple[float, ...]) -> tuple[float, ...]:
    """At these times of a Brownian motion that ends at 1."""
    spreads = _spreads(times)
    places, mass = np.zeros(1), np.ones(1)  # all of it is at zero before the first interim analysis
    bounds = []
    for number, spread in enumerate(spreads):
        before = spent(alpha, times[number - 1]) if number else 0.0
        bounds.append(_bound(places, mass, spread, spent(alpha, times[number]) - before))
        reached, weights = _grid(times[number], bounds[-1], min(spreads[number : number + 2]))
        mass = weights * (_normal(reached[:, None] - places, spread) @ mass)
        places = reached
    return tuple(bound / math.sqrt(time) for bound, time in zip(bounds, times, strict=True))


def _spreads(times: tuple[float, ...]) -> list[float]:
    """Of what a Brownian motion adds from each time to the next."""
    return [math.sqrt(gap) for gap in (times[0], *(b - a for a, b in pairwise(times)))]


@functools.cache
def _one_height(alpha: float, times: tuple[float, ...]) -> float:
    """Of a Brownian motion, reached with risk `alpha` at any of these times; by secants."""
    low, high = (-float(ndtri(risk)) for risk in (alpha, alpha / len(times)))
    excess = math.log(_reached(low, times) / alpha)
    for _ in range(_SECANTS):
        if abs(excess) < GUARD * 1e-3 or high == low:
            return low
        above = math.log(_reached(high, times) / alpha)
        if above == excess:
            return high
        low, high = high, high - above * (high - low) / (above - excess)
        excess = above
    return low


def _reached(height: float, times: tuple[float, ...]) -> float:
    """Probability that a Brownian motion reaches a height at any of these times."""
    spreads = _spreads(times)
    places, mass, crossed = np.zeros(1), np.ones(1), 0.0
    for number, (time, spread) in enumerate(zip(times, spreads, strict=True)):
        crossed += float(mass @ ndtr((places - height) / spread))
        reached, weights = _grid(time, height, min(spreads[number : number + 2]))
        mass = weights * (_normal(reached[:, None] - places, spread) @ mass)
        places = reached
    return crossed


def check_schedule(launch_counts: Sequence[int]) -> None:
    """UsageError unless there is an interim analysis and they grow from at least 1."""
    if (
        not launch_counts
        or launch_counts[0] < 1
        or any(later <= sooner for sooner, later in pairwise(launch_counts))
    ):
        raise UsageError(
            f"the interim analyses {tuple(launch_counts)} must be launch counts that grow "
            "from 1 or more"
        )


def critical(
    z: float | npt.NDArray[np.float64], count: int | npt.NDArray[np.int_]
) -> npt.NDArray[np.float64]:
    """Student's t of `count` launches with the tail probability of the normal bound `z`.

    NaN for fewer than two launches.
    """
    freedom = np.subtract(count, 1.0)
    return np.where(freedom > 0, -stdtrit(freedom, ndtr(np.negative(z))), np.nan)


def test_limit(
    mean: float | Values,
    sd: float | Values,
    count: int | npt.NDArray[np.int_],
    *,
    log_limit: float | Values,
    floor: float | Values,
    z_pass: float | Values,
    z_fail: float | Values,
) -> Tested:
    """Whether launch times lie under a limit, over it, or cannot be told from it.

    `mean` and `sd` (ddof 1) are of ln(seconds) over `count` launches, and `log_limit` in the same
    unit. The test for a pass takes a spread of at least `floor`: launch times of two modes look
    quiet as long as the rarer has not been drawn. The test for a fail takes the spread as it is.
    All arguments may be arrays that broadcast.

    Neither is ruled with fewer than five launches, with anything that is not finite, where the
    launches are equal to rounding (a clock that stands, or copied samples), or within 1e-9 of a
    bound.
    """
    mean, sd, floor = np.asarray(mean), np.asarray(sd), np.asarray(floor)
    sd_used = np.maximum(sd, floor)
    with np.errstate(invalid="ignore"):
        everything = mean + sd + count + log_limit + floor + z_pass + z_fail  # finite if all are
        is_testable = (
            np.isfinite(everything) & (sd > EQUAL) & np.greater_equal(count, LEAST_LAUNCHES)
        )
        distance = np.where(is_testable, (log_limit - mean) * np.sqrt(count), np.nan)
    return tested(
        distance,
        spreads=(sd_used, sd),
        criticals=(critical(z_pass, count), critical(z_fail, count)),
        sd_used=sd_used,
    )


def tested(
    distance: Values,
    *,
    spreads: tuple[Values, Values],
    criticals: tuple[Values, Values],
    sd_used: Values,
) -> Tested:
    """Both tests of what lies so far below its limit, NaN where nothing may be ruled.

    `spreads` are those of the distance, `criticals` the bounds of t, for a pass and for a fail.
    """
    critical_pass, critical_fail = criticals
    with np.errstate(divide="ignore", invalid="ignore"):
        t_pass, t_fail = distance / spreads[0], -distance / spreads[1]
    return Tested(
        is_pass=reaches(t_pass, critical_pass),
        is_fail=reaches(t_fail, critical_fail),
        t_pass=t_pass,
        t_fail=t_fail,
        critical_pass=critical_pass,
        critical_fail=critical_fail,
        sd_used=sd_used,
    )


def reaches(t: Values, bound: Values) -> Answers:
    """Whether a statistic lies beyond its bound by more than rounding may."""
    return np.asarray(t - bound > GUARD * np.maximum(1.0, np.abs(bound)))


# ------------------------------------------------------------------ the recursion


def _grid(time: float, bound: float, width: float) -> tuple[Values, Values]:
    """Places and weights of Gauss-Legendre panels up to a bound.

    `width` is the smaller spread of the steps into and out of this interim analysis, over which the
    density and what it is multiplied with are smooth.
    """
    low = min(-_FARTHEST * math.sqrt(time), bound - _FARTHEST * math.sqrt(time))
    edges = np.linspace(low, bound, 1 + math.ceil((bound - low) / (_PANEL * width)))
    half = (edges[1] - edges[0]) / 2.0
    places = (edges[:-1, None] + half + half * _POINTS).ravel()
    return places, np.tile(half * _WEIGHTS, len(edges) - 1)


def _normal(x: Values, spread: float) -> Values:
    density: Values = np.exp(-0.5 * np.square(x / spread)) / (spread * math.sqrt(2.0 * math.pi))
    return density


def _bound(places: Values, mass: Values, spread: float, risk: float) -> float:
    """Where so much of the mass, spread by one step, lies beyond; by bisection."""
    low, high = -_HIGHEST, _HIGHEST
    while high - low > GUARD * 1e-3:
        middle = (low + high) / 2.0
        if float(mass @ ndtr((places - middle) / spread)) > risk:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
