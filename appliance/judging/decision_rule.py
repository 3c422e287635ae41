"""Both tests of one limit, of sessions of launches and what a baseline tells of runs.

The judge asks it for one case; whoever simulates the judge asks it for many at once.

    t for a pass = (L - m) / u        rejects "at the limit or beyond"
    t for a fail = (m - L) / u        rejects "within the limit"

m is the mean over sessions, L the limit, u the standard uncertainty of their difference
(run_levels.py). One session at a limit that is stated, and not measured, is judged by its launches
alone: the promise is then of this run, whose level was not sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.statistics.estimates import LEAST_LAUNCHES
from appliance.statistics.group_sequential import EQUAL, Tested, tested
from appliance.statistics.run_levels import (
    RunSpread,
    Sessions,
    Uncertainty,
    uncertainty,
    uncertainty_of_launches,
    uncertainty_of_sessions,
)

FLOOR = 1 / 3  # of the margin: the least spread of launches that a pass assumes

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What both tests say, of the shape of the cases, and the uncertainty that each assumed."""

    tested: Tested
    for_pass: Uncertainty
    for_fail: Uncertainty


def decide(
    sessions: Sessions,
    spread: RunSpread | None,
    *,
    log_limit: float | Values,
    floor: float | Values,
    z_pass: float,
    z_fail: float,
) -> Decision:
    """Whether the mean over sessions lies under a limit, over it, or cannot be told from it.

    The test for a pass takes launches of a spread of at least `floor`: those of two modes look
    quiet as long as the rarer has not been drawn. Nothing is ruled with fewer than five launches,
    with anything that is no number, where launches are equal to rounding, or within 1e-9 of a
    bound.
    """
    for_pass = _uncertainty(sessions, spread, floor)
    for_fail = _uncertainty(sessions, spread, 0.0)
    mean = sessions.mean
    everything = mean + sessions.within + log_limit + for_pass.variance + for_fail.variance
    is_testable = (
        np.isfinite(everything)
        & (sessions.within > EQUAL**2)
        & (sum(sessions.counts) >= LEAST_LAUNCHES)
    )
    with np.errstate(invalid="ignore"):
        both = tested(
            np.where(is_testable, log_limit - mean, np.nan),
            spreads=(np.sqrt(for_pass.variance), np.sqrt(for_fail.variance)),
            criticals=(for_pass.critical(z_pass), for_fail.critical(z_fail)),
            sd_used=np.maximum(np.sqrt(sessions.within), floor),
        )
    return Decision(tested=both, for_pass=for_pass, for_fail=for_fail)


def _uncertainty(
    sessions: Sessions, spread: RunSpread | None, floor: float | Values
) -> Uncertainty:
    if spread is not None:
        return uncertainty(spread, sessions, floor)
    if len(sessions.counts) > 1:
        return uncertainty_of_sessions(sessions, floor)
    return uncertainty_of_launches(sessions, floor)
