"""How much more a slope over a device's launches varies than independent ones would let it.

Launches of a device share its temperature and its neighbours. What they share is taken for a
first-order autoregression beside noise of their own, and both are unknown: its correlation from one
launch to the next, and its share of the variance. An estimate of them is too small just where it
matters, as a slow process looks like the slope that is taken out, and then a slope is believed that
chance made. So all candidates of a grid stay, each with its probability by the restricted
likelihood (Patterson and Thompson 1971), which accounts for the levels of cases, the slope and its
bend, and a bound is the quantile of the mixture. Without the bend, a device that heats fast at
first would be excused by its own curve.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

Values = npt.NDArray[np.float64]

CORRELATIONS = (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99)
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
INDEPENDENT = 0.5
"""Probability beforehand that launches share nothing; the rest is spread over the grid evenly."""
MOST_ROWS = 400  # more launches are averaged in groups: what is slow shows in these as well
CLIPPED = 3.0  # spreads; one slow launch must not hide what the others share
POOLED_FREEDOM = 20.0  # with which the spread of all cases speaks for one
LEAST_POWER = 1e-6  # of a launch, in spreads squared; less is rounding
LEAST_PART = 1e-5
_LARGEST, _HALVINGS = 1e4, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """By candidate, variance of a slope over that of independent launches, and its probability."""

    factors: Values
    chances: Values
    freedom: float

    @property
    def mean_factor(self) -> float:
        return float(self.factors @ self.chances)

    def quantile(self, risk: float) -> float:
        """What a standardised slope of independent launches exceeds with this risk, at least 0."""
        low, high = 0.0, _LARGEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            tails = stdtr(self.freedom, -middle / np.sqrt(self.factors))
            low, high = (middle, high) if float(tails @ self.chances) > risk else (low, middle)
        return high


def dependence(times: Sequence[Values], rests: Sequence[Values]) -> Dependence:
    """Of launches of each case: their times, and ln(seconds) less the slope."""
    order = np.argsort(np.concatenate(times), kind="stable")
    values = _scaled(rests)[order]
    moments = np.concatenate(times)[order]
    of_case = np.repeat(np.arange(len(times)), [len(one) for one in times])[order]
    groups = math.ceil(len(values) / MOST_ROWS)
    if groups > 1:
        before = float(np.var(values))
        values, moments = _averaged(values, groups), _averaged(moments, groups)
        of_case = np.zeros(len(values), dtype=np.int_)
        # Of independent launches the means would vary by one part in `groups`.
        usual = before / groups
        return _mixture(values, moments, of_case, usual)
    return _mixture(values, moments, of_case, None)


def _scaled(rests: Sequence[Values]) -> Values:
    """Distances from each case's median in its spread, which is moderated by that of all."""
    distances = [rest - np.median(rest) for rest in rests]
    squares = np.array([(1.4826 * np.median(np.abs(one))) ** 2 for one in distances])
    freedom = np.array([len(one) - 1.0 for one in rests])
    spreads = np.sqrt(
        (freedom * squares + POOLED_FREEDOM * np.median(squares)) / (freedom + POOLED_FREEDOM)
    )
    return np.concatenate(
        [
            np.clip(one / spread, -CLIPPED, CLIPPED) if spread > 0.0 else np.sign(one)
            for one, spread in zip(distances, spreads, strict=True)
        ]
    )


def _averaged(values: Values, size: int) -> Values:
    """Means of so many consecutive ones; what is left at the end makes no group."""
    whole = len(values) // size * size
    return np.asarray(values[:whole].reshape(-1, size).mean(axis=1))


def _mixture(
    values: Values, moments: Values, of_case: npt.NDArray[np.int_], usual: float | None
) -> Dependence:
    """The candidates' factors and probabilities; `usual` is the variance without dependence."""
    count, cases = len(values), int(of_case.max()) + 1
    time = (moments - moments.mean()) / moments.std()
    levels = (of_case[:, None] == np.arange(cases)).astype(np.float64)
    weights = time - levels @ (levels.T @ time / levels.sum(axis=0))
    weights /= math.sqrt(float(weights @ weights))
    known = np.column_stack([levels, time, np.square(time)])
    if not _is_well_posed(known):
        known = known[:, :-1]  # two moments show no bend
        if not _is_well_posed(known):
            return Dependence(factors=np.full(1, np.inf), chances=np.ones(1), freedom=1.0)
    freedom = count - known.shape[1]
    rest = values - known @ np.linalg.lstsq(known, values, rcond=None)[0]
    power = float(rest @ rest)
    if not power > LEAST_POWER * count:
        return Dependence(factors=np.ones(1), chances=np.ones(1), freedom=freedom)
    candidates = [_candidates(known, values, weights, rho) for rho in CORRELATIONS]
    likelihoods = np.concatenate(
        [_independent(known, values, freedom), *(one[0] for one in candidates)]
    )
    factors = np.concatenate([np.ones(1), *(one[1] for one in candidates)])
    if usual is not None:
        factors = np.maximum(1.0, factors * power / freedom / usual)
    number = len(factors) - 1
    prior = np.concatenate([[INDEPENDENT], np.full(number, (1.0 - INDEPENDENT) / number)])
    chances = prior * np.exp(likelihoods - likelihoods.max())
    return Dependence(factors=factors, chances=chances / chances.sum(), freedom=freedom)


def _is_well_posed(known: Values) -> bool:
    """Whether levels, slope and bend are so different that the products below keep their digits."""
    rows, columns = known.shape
    if columns >= rows:
        return False
    rank = int(np.linalg.matrix_rank(known, tol=LEAST_PART * math.sqrt(rows)))
    return bool(rank == columns)


def _independent(known: Values, values: Values, freedom: int) -> Values:
    return np.array([_likelihood(known, values, np.ones(len(values)), freedom)])


def _candidates(
    known: Values, values: Values, weights: Values, rho: float
) -> tuple[Values, Values]:
    """Restricted log likelihood, and factor, of each share of a process of this correlation."""
    roots, vectors = _process(len(values), rho)
    turned, seen, direction = vectors.T @ known, vectors.T @ values, vectors.T @ weights
    freedom = len(values) - known.shape[1]
    likelihoods, factors = [], []
    for share in SHARES:
        variances = share * roots + 1.0 - share
        likelihoods.append(_likelihood(turned, seen, variances, freedom))
        factors.append(float(np.square(direction) @ variances))
    return np.array(likelihoods), np.array(factors)


@functools.lru_cache(maxsize=len(CORRELATIONS))
def _process(count: int, rho: float) -> tuple[Values, Values]:
    """Variances and directions of independent parts of an autoregression over so many launches."""
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    roots, vectors = np.linalg.eigh(rho**lags)
    return np.maximum(roots, 1e-9), vectors


def _likelihood(known: Values, values: Values, variances: Values, freedom: int) -> float:
    """Restricted log likelihood of independent values of these variances, but for a constant."""
    scaled = np.column_stack([known, values]) / np.sqrt(variances)[:, None]
    triangle = np.diag(np.linalg.cholesky(scaled.T @ scaled))
    determinants = 0.5 * float(np.log(variances).sum()) + float(np.log(triangle[:-1]).sum())
    return -determinants - freedom * math.log(float(triangle[-1]))
