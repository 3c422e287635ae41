"""Levels of runs: how far they vary, and how well a mean over few of them is known.

A device has a level of its own in every run, so launches of one run agree better than they should,
and no number of them shows it. A run is therefore one observation: the mean of its launches. From r
independent runs of a baseline, each of about n0 launches,

    S^2 = variance of the means of runs, with r - 1 degrees of freedom

holds the variance of levels and what n0 launches leave of theirs, however they resemble each other.
Means of sessions are observations of the same kind. A mean over J sessions, less a level that is
known to `error`, has the variance

    V = S^2 / J + max(0, w^2 sum(f(n_j)) / J^2 - w0^2 f(n0) / J) + error^2

where w is the spread of launches that the test assumes, w0 the baseline's, and f is `mean_factor`:
what sessions scatter more than the baseline's runs is added, and nothing is taken off for sessions
that are longer. Degrees of freedom are Satterthwaite's, of the parts that are estimated.

Cases share a run, so their estimates of S^2 do not add up to more degrees of freedom than its runs
have. They do make the estimate steadier: it is moderated over cases as Smyth does (Stat. Appl.
Genet. Mol. Biol. 3, 2004), towards what all have, by as much as they agree. A case that varies more
than the others by more than chance at 1 % keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, digamma, fdtrc, ndtr, polygamma, stdtrit

from appliance.statistics.launch_correlation import mean_factor

Values = npt.NDArray[np.float64]

LEAST_CASES = 3  # that may speak for one another
OWN_RISK = 0.01
LARGEST_PRIOR = 1e6  # degrees of freedom; more is all alike
_NEWTON_STEPS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpread:
    """What a baseline tells of how runs vary; variances of ln(seconds), of cases or of one.

    `run` is of the mean of `launches` launches of one run, `within` of launches of one run,
    `error` of the baseline's level. `freedom` are the independent runs less 1, `error_freedom`
    those of the error (a population's devices less 1).
    """

    run: Values
    within: Values
    error: Values
    launches: int
    correlation: float
    freedom: int
    error_freedom: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Sessions of a run: means of ln(seconds), shape (..., sessions), and launches of each.

    `within` is the variance of launches inside of sessions, NaN where none has two.
    """

    means: Values
    within: Values
    counts: tuple[int, ...]

    @property
    def mean(self) -> Values:
        """Of the sessions, whatever their length: each has one level."""
        return np.asarray(self.means.mean(axis=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Variance of a mean, and its degrees of freedom; none of them where it has no estimate."""

    variance: Values
    freedom: Values

    def critical(self, z: float | Values) -> Values:
        """Student's t with the tail probability of a normal bound; infinite without freedom."""
        freedom = np.where(self.freedom > 0.0, self.freedom, np.nan)
        t = -stdtrit(freedom, ndtr(np.negative(z)))
        return np.where(np.isnan(freedom), np.inf, t)


def sessions_of(values: Sequence[Values], correlation: float) -> Sessions:
    """Launches of each session, shape (..., launches), with the first autocorrelation known.

    Launches that resemble each other scatter less around their own mean than around the true one.
    """
    counts = tuple(one.shape[-1] for one in values)
    means = np.stack([one.mean(axis=-1) for one in values], axis=-1)
    squares = sum(np.square(one - one.mean(axis=-1, keepdims=True)).sum(axis=-1) for one in values)
    expected = sum(count * (1.0 - mean_factor(count, correlation)) for count in counts)
    within = np.asarray(squares) / expected if expected > 0.0 else np.full(means.shape[:-1], np.nan)
    return Sessions(means=means, within=within, counts=counts)


def uncertainty(spread: RunSpread, sessions: Sessions, floor: float | Values) -> Uncertainty:
    """Of the mean over sessions less the baseline's level; launches scatter by `floor` at least.

    The variance of levels is the baseline's and that of these sessions, weighted by their runs.
    """
    number, rho = len(sessions.counts), spread.correlation
    within = np.maximum(sessions.within, np.square(floor))
    factors = sum(mean_factor(count, rho) for count in sessions.counts)
    usual = spread.within * mean_factor(spread.launches, rho) / number
    excess = np.maximum(0.0, within * factors / number**2 - usual)
    own_freedom = number - 1
    shares = (spread.freedom, own_freedom)
    total = sum(shares)
    own = sessions.means.var(axis=-1, ddof=1) if own_freedom else np.zeros_like(sessions.within)
    run = spread.run * shares[0] / total / number if total else np.full_like(own, np.inf)
    parts = [
        # One part: the error of a device's own level comes from the same runs.
        (run + spread.error, min(spread.freedom, spread.error_freedom)),
        (own * shares[1] / total / number if total else own, own_freedom),
        (excess, sum(sessions.counts) - number),
    ]
    return _satterthwaite(parts, most=total)


def uncertainty_of_sessions(sessions: Sessions, floor: float | Values) -> Uncertainty:
    """Of the mean over two sessions or more by themselves, without a baseline."""
    number = len(sessions.counts)
    within = np.maximum(sessions.within, np.square(floor))
    least = within * sum(1.0 / count for count in sessions.counts) / number**2
    variance = np.maximum(sessions.means.var(axis=-1, ddof=1) / number, least)
    return Uncertainty(variance=variance, freedom=np.full(np.shape(variance), number - 1.0))


def _satterthwaite(parts: Sequence[tuple[Values, int]], *, most: int) -> Uncertainty:
    """Sum of independent variances, each with its freedom; a part without any has no freedom."""
    shape = np.broadcast_shapes(*(np.shape(variance) for variance, _ in parts))
    total, squares = np.zeros(shape), np.zeros(shape)
    for variance, freedom in parts:
        total = total + variance
        ratio = np.square(variance) / freedom if freedom > 0 else np.where(variance > 0, np.inf, 0)
        squares = squares + ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(np.isinf(squares), 0.0, np.square(total) / squares)
    return Uncertainty(variance=total, freedom=np.minimum(freedom, most))


# ------------------------------------------------------------------ of a baseline


def within_variance(runs: Sequence[Sequence[float]], correlation: float) -> float:
    """Variance of launches of a run, pooled over runs; 0 where none has two."""
    expected = sum(len(run) * (1.0 - mean_factor(len(run), correlation)) for run in runs)
    squares = sum(float(np.square(np.asarray(run) - np.mean(run)).sum()) for run in runs)
    return squares / expected if expected > 0.0 else 0.0


def moderated(variances: Values, freedom: int) -> Values:
    """Variances of cases, shape (..., cases), each with so much freedom, moderated over cases.

    Of fewer than three cases, and without freedom, they are returned as they are.
    """
    if variances.shape[-1] < LEAST_CASES or freedom < 1 or not (variances > 0.0).all():
        return variances
    prior_freedom, prior = _prior(variances, freedom)
    weight = freedom / (prior_freedom + freedom)
    moderate = (1.0 - weight) * prior + weight * variances
    ratio = variances / prior
    is_alike = prior_freedom >= LARGEST_PRIOR
    risk = np.where(
        is_alike, chdtrc(freedom, freedom * ratio), fdtrc(freedom, prior_freedom, ratio)
    )
    return np.where(risk < OWN_RISK, np.maximum(variances, moderate), moderate)


def _prior(variances: Values, freedom: int) -> tuple[Values, Values]:
    """Freedom and variance of what all cases have, shape (..., 1), by moments of the logarithm."""
    half = freedom / 2.0
    logs = np.log(variances) - digamma(half) + np.log(half)
    middle = logs.mean(axis=-1, keepdims=True)
    excess = logs.var(axis=-1, ddof=1, keepdims=True) - polygamma(1, half)
    prior_half = _inverse_trigamma(np.maximum(excess, polygamma(1, LARGEST_PRIOR / 2.0)))
    is_alike = excess <= polygamma(1, LARGEST_PRIOR / 2.0)
    prior = np.where(
        is_alike,
        variances.mean(axis=-1, keepdims=True),
        np.exp(middle + digamma(prior_half) - np.log(prior_half)),
    )
    return np.where(is_alike, LARGEST_PRIOR, 2.0 * prior_half), prior


def _inverse_trigamma(y: Values) -> Values:
    """Newton's method on 1 / trigamma, which is nearly straight (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / y
    for _ in range(_NEWTON_STEPS):
        trigamma = polygamma(1, x)
        x = x + trigamma * (1.0 - trigamma / y) / polygamma(2, x)
    return np.asarray(x)
