"""Levels of runs: how far they vary, and how well a mean over few of them is known.

A device has a level of its own in every run, so launches of one run agree better than they should,
and no number of them shows it. A run is therefore one observation: the mean of its launches. From r
independent runs of a baseline, each of about n0 launches,

    S^2 = variance of the means of runs, with r - 1 degrees of freedom

holds the variance of levels and what n0 launches leave of theirs, however they resemble each other.
Means of sessions are observations of the same kind. A mean over J sessions, less a level that is
known to `error`, has the variance

    V = S^2 / J + max(0, w^2 sum(f(n_j)) / J^2 - w0^2 f(n0) / J) + error^2

where w is the spread of launches that the test assumes (of the baseline's and these launches
together, or theirs alone where they scatter more by more than chance), w0 the baseline's, and f is
`mean_factor`: what sessions scatter more than the baseline's runs is added, and nothing is taken
off for sessions that are longer.

Cases share a run, so their estimates of S^2 do not add up to more degrees of freedom than its runs
have. They do make the estimate steadier: it is moderated over cases as Smyth does (Stat. Appl.
Genet. Mol. Biol. 3, 2004), towards what all have, by as much as they agree. The less chance it is
that a case varies so much more than the others, the more it keeps of its own.
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
OWN_RISK = 0.001  # of launches that scatter as the baseline's do to be called noisier
USUAL_CHANCE = 0.1  # a variance that is exceeded less often is moved by less
LARGEST_PRIOR = 1e6  # degrees of freedom; more is all alike
_NEWTON_STEPS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpread:
    """What a baseline tells of how runs vary; variances of ln(seconds), of cases or of one.

    `run` is of the mean of `launches` launches of one run, `within` of launches of one run, with
    `within_freedom`, `error` of the baseline's level. `freedom` are the independent runs less 1,
    `error_freedom` those of the error (a population's devices less 1).
    """

    run: Values
    within: Values
    error: Values
    launches: int
    correlation: float | Values
    within_freedom: int
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
    """Variance of a mean in two parts, of levels of runs and of launches, each with its freedom.

    Levels without freedom leave everything open, whatever variance they seem to have. Of means
    that speak by themselves (`is_alone`), launches only say what the variance is at least: few
    means often agree by chance, and then the freedom of many launches would speak for them.
    """

    levels: Values
    level_freedom: Values
    launches: Values
    launch_freedom: int
    is_alone: bool = False

    @property
    def variance(self) -> Values:
        return np.asarray(self.levels + self.launches)

    @property
    def freedom(self) -> Values:
        """Degrees of freedom of the whole, by Satterthwaite; 0 where a part has none."""
        if self.is_alone:
            return self.level_freedom
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = [
                np.where(part > 0.0, np.square(part) / freedom, 0.0)
                for part, freedom in self._parts
            ]
            whole = np.square(self.variance) / np.sum(squares, axis=0)
        return np.where(np.isfinite(whole) & (self.level_freedom > 0.0), whole, 0.0)

    def critical(self, z: float | Values) -> Values:
        """Value of Student's t for the tail probability of a normal bound; infinite without any.

        Each part by its own freedom, weighted by its variance (Cochran and Cox 1950), which errs
        towards saying nothing. Of means alone, what both their own scatter and the least that
        launches leave demand, so the risk is never above that of Student's t of the means.
        """
        risk = ndtr(np.negative(z))
        if self.is_alone:
            return self._larger(risk)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                np.where(part > 0.0, part * _student(freedom, risk), 0.0)
                for part, freedom in self._parts
            ]
            value = np.sum(parts, axis=0) / self.variance
        return np.where(np.isfinite(value) & (self.level_freedom > 0.0), value, np.inf)

    def _larger(self, risk: Values) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            of_means = _student(self.level_freedom, risk) * np.sqrt(self.levels / self.variance)
        of_launches = _student(np.asarray(float(self.launch_freedom)), risk)
        return np.fmax(of_means, of_launches)

    @property
    def _parts(self) -> tuple[tuple[Values, Values], tuple[Values, Values]]:
        freedom = np.asarray(float(self.launch_freedom))
        return (self.levels, self.level_freedom), (self.launches, freedom)


def _student(freedom: Values, risk: Values) -> Values:
    with_any = np.where(freedom > 0.0, freedom, 1.0)
    return np.where(freedom > 0.0, -stdtrit(with_any, risk), np.inf)


def sessions_of(values: Sequence[Values], correlation: float | Values) -> Sessions:
    """Launches of each session, shape (..., launches), with the first autocorrelation known.

    Launches that resemble each other scatter less around their own mean than around the true one.
    """
    counts = tuple(one.shape[-1] for one in values)
    means = np.stack([one.mean(axis=-1) for one in values], axis=-1)
    rests = [one - one.mean(axis=-1, keepdims=True) for one in values]
    squares = np.sum([np.square(rest).sum(axis=-1) for rest in rests], axis=0)
    expected = np.sum([_expected_squares(count, correlation) for count in counts], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        within = np.where(expected > 0.0, squares / expected, np.nan)
    return Sessions(means=means, within=within, counts=counts)


def uncertainty(spread: RunSpread, sessions: Sessions, floor: float | Values) -> Uncertainty:
    """Of the mean over sessions less the baseline's level; launches scatter by `floor` at least.

    The variance of levels is the baseline's and that of these sessions, weighted by their runs.
    """
    number, rho = len(sessions.counts), spread.correlation
    within = np.maximum(_pooled_within(spread, sessions), np.square(floor))
    factors = np.sum([mean_factor(count, rho) for count in sessions.counts], axis=0)
    usual = spread.within * mean_factor(spread.launches, rho) / number
    own_freedom = number - 1
    total = spread.freedom + own_freedom
    own = sessions.means.var(axis=-1, ddof=1) if own_freedom else np.zeros_like(sessions.within)
    share = spread.freedom / total if total else 1.0
    # One part: the error of a device's own level comes from the same runs.
    known = share * spread.run / number + spread.error
    added = (1.0 - share) * own / number
    freedom = min(spread.freedom, spread.error_freedom)
    return Uncertainty(
        levels=known + added,
        level_freedom=_satterthwaite(known, freedom, added, own_freedom),
        launches=np.maximum(0.0, within * factors / number**2 - usual),
        launch_freedom=sum(sessions.counts) - number,
    )


def _pooled_within(spread: RunSpread, sessions: Sessions) -> Values:
    """Variance of launches, of the baseline's and the sessions' unless these scatter far more.

    A variance of launches that resemble each other has fewer degrees of freedom.
    """
    own_freedom = sum(sessions.counts) - len(sessions.counts)
    if own_freedom < 1 or spread.within_freedom < 1:
        return np.asarray(sessions.within)
    square = np.square(spread.correlation)
    own, known = (
        freedom * (1.0 - square) / (1.0 + square)
        for freedom in (own_freedom, spread.within_freedom)
    )
    pooled = (own * sessions.within + known * spread.within) / (own + known)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_noisier = fdtrc(own, known, sessions.within / spread.within) < OWN_RISK
    return np.where(is_noisier, sessions.within, pooled)


def uncertainty_of_sessions(sessions: Sessions, floor: float | Values) -> Uncertainty:
    """Of the mean over two sessions or more by themselves, without a baseline."""
    number = len(sessions.counts)
    within = np.maximum(sessions.within, np.square(floor))
    least = within * sum(1.0 / count for count in sessions.counts) / number**2
    levels = sessions.means.var(axis=-1, ddof=1) / number
    return Uncertainty(
        levels=levels,
        level_freedom=np.full(np.shape(levels), number - 1.0),
        launches=np.maximum(0.0, least - levels),
        launch_freedom=sum(sessions.counts) - number,
        is_alone=True,
    )


def uncertainty_of_launches(sessions: Sessions, floor: float | Values) -> Uncertainty:
    """Of the mean of one session by its launches alone, which says nothing of other runs."""
    (count,) = sessions.counts
    within = np.maximum(sessions.within, np.square(floor))
    return Uncertainty(
        levels=np.zeros_like(within),
        level_freedom=np.ones_like(within),
        launches=within / count,
        launch_freedom=count - 1,
    )


def _satterthwaite(known: Values, freedom: int, added: Values, own_freedom: int) -> Values:
    """Freedom of the sum of two variances; none where the first, a baseline's, has none."""
    if freedom < 1:
        return np.zeros(np.broadcast_shapes(np.shape(known), np.shape(added)))
    squares = np.square(known) / freedom
    if own_freedom:
        squares = squares + np.square(added) / own_freedom
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.square(known + added) / squares
    return np.where(np.isfinite(whole), np.minimum(whole, freedom + own_freedom), float(freedom))


# ------------------------------------------------------------------ of a baseline


def within_variance(runs: Sequence[Sequence[float]], correlation: float) -> float:
    """Variance of launches of a run, pooled over runs; 0 where none has two."""
    expected = sum(float(_expected_squares(len(run), correlation)) for run in runs)
    squares = sum(float(np.square(np.asarray(run) - np.mean(run)).sum()) for run in runs)
    return squares / expected if expected > 0.0 else 0.0


def _expected_squares(launches: int, correlation: float | Values) -> Values:
    """Sum of squares of launches around their mean, expected where each has the variance 1."""
    if launches < 2:  # noqa: PLR2004 - one launch is its own mean
        return np.zeros(np.shape(correlation))
    return launches * (1.0 - mean_factor(launches, correlation))


def moderated(variances: Values, freedom: int) -> Values:
    """Variances of cases, shape (..., cases), each with so much freedom, moderated over cases.

    Of fewer than three cases, and without freedom, they are returned as they are.
    """
    if variances.shape[-1] < LEAST_CASES or freedom < 1 or not (variances > 0.0).all():
        return variances
    prior_freedom, prior = _prior(variances, freedom)
    ratio = variances / prior
    chance = np.where(
        prior_freedom >= LARGEST_PRIOR,
        chdtrc(freedom, freedom * ratio),
        fdtrc(freedom, prior_freedom, ratio),
    )
    # A step at one chance would let pass what just misses it, and all of what just reaches it stay.
    weight = prior_freedom / (prior_freedom + freedom)
    weight = weight * np.sqrt(np.minimum(1.0, chance / USUAL_CHANCE))
    return np.asarray(weight * prior + (1.0 - weight) * variances)


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
