"""What is known of how far the level of a run varies, where one case is judged at one limit.

A limit around a baseline takes the baseline's runs, and the error of its level. A limit that is
stated is exact; with several sessions the level of a run is theirs, and the baseline's where there
is one for the case. With one session at a stated limit nothing is said of other runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from appliance.evidence.baseline_key import find
from appliance.evidence.launches import CaseEvidence
from appliance.judging.limits import Limit, RulingInputs
from appliance.records.baseline import Level
from appliance.statistics.run_levels import RunSpread, Sessions, sessions_of

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
