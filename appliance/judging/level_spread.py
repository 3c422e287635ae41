"""What is known of how far the level of a run varies, where one case is judged at one limit.

A limit around a baseline takes the baseline's runs, and the error of its level. A limit that is
stated is exact; with several sessions the level of a run is theirs, and the baseline's where there
is one for the case. With one session at a stated limit nothing is said of other runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from appliance.evidence.baseline_key import find
from appliance.evidence.launches import CaseEvidence, values_by_session
from appliance.judging.limits import Limit, RulingInputs
from appliance.records.baseline import Level
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES
from appliance.statistics.group_sequential import EQUAL
from appliance.statistics.run_levels import RunSpread, Sessions, sessions_of, uncertainty
from appliance.statistics.score import Row

LEAST_FREEDOM = 1


def spread_of(level: Level, *, has_error: bool = True) -> RunSpread:
    """What a baseline tells by one clock; without its own error where the limit is another's."""
    error = level.error_sd if has_error else 0.0
    return RunSpread(
        run=np.asarray(level.run_sd**2),
        within=np.asarray(level.within_sd**2),
        error=np.asarray(error**2),
        launches=level.run_launches,
        correlation=level.correlation,
        within_freedom=level.within_freedom,
        freedom=level.freedom,
        error_freedom=level.error_freedom if has_error else level.freedom,
    )


def known_spread(limit: Limit, evidence: CaseEvidence, inputs: RulingInputs) -> RunSpread | None:
    """What baselines tell of runs at this limit; None where its launches or sessions must do."""
    if limit.baseline is not None:
        return spread_of(limit.baseline.by(evidence.clock))
    if evidence.sessions < 2:  # noqa: PLR2004 - one session is judged by its launches
        return None
    baseline, _, _ = find(inputs.baselines, evidence.case, inputs.plan.protocol, inputs.system)
    if baseline is None or baseline.by(evidence.clock).freedom < LEAST_FREEDOM:
        return None
    return spread_of(baseline.by(evidence.clock), has_error=False)


def sessions_in(values: Sequence[Sequence[float]], spread: RunSpread | None) -> Sessions:
    """The sessions that have a launch, whose ln(seconds) these are; at least one has."""
    made = [np.asarray(one) for one in values if one]
    return sessions_of(made, 0.0 if spread is None else spread.correlation)


# ------------------------------------------------------------------ beside the baseline


def score_row(evidence: CaseEvidence, inputs: RulingInputs) -> Row | None:
    """What the score takes of a case; None without a baseline, or without times."""
    case, values = evidence.case, values_by_session(evidence)
    baseline, _, _ = find(inputs.baselines, case, inputs.plan.protocol, inputs.system)
    flat = [value for session in values for value in session]
    if baseline is None or not flat or not all(map(math.isfinite, flat)):
        return None
    level = baseline.by(evidence.clock)
    mean, half = beside(level, values)
    return Row(
        case=case.id,
        weight=case.weight,
        log_baseline=level.log_seconds,
        log_mean=mean,
        half=half,
        count=len(flat),
    )


def beside(level: Level, values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean over sessions of ln(seconds), and half its interval of 95 % around a baseline's level.

    No finite width of fewer than five launches, of launches that all took the same time, or where
    the baseline is of one run, which cannot show how far runs vary.
    """
    spread = spread_of(level)
    sessions = sessions_in(values, spread)
    if sum(sessions.counts) < LEAST_LAUNCHES or not float(sessions.within) > EQUAL**2:
        return float(sessions.mean), math.nan
    whole = uncertainty(spread, sessions, 0.0)
    factor = float(whole.critical(float(ndtri(0.5 + CONFIDENCE / 2))))
    return float(sessions.mean), factor * math.sqrt(float(whole.variance))
