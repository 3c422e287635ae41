"""Location of a case's launch times against one limit: two one-sided tests and what forbids a pass.

A pass rejects "at or beyond the limit", a fail rejects "within the limit", each at its own stated
risk and at group-sequential bounds, by Student's t on launch statistics. A pass must assume a
spread of at least a third of the margin: launch times of two modes look steadier in five launches
than they are. An unsteady launch, a clock that stands, or a case that is faster than the devices
of its baseline can be, leaves the ruling open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from appliance.evidence.case_results import log_seconds
from appliance.evidence.launches import CaseEvidence
from appliance.judging.functional import RulingDraft, inconclusive
from appliance.judging.limits import (
    Limit,
    RulingInputs,
    Unlimited,
    in_metric,
    limit_of,
    unit_of,
)
from appliance.planning.sessions import num_in_all
from appliance.records.criteria import Criterion
from appliance.records.verdict import Statistic
from appliance.statistics.estimates import CONFIDENCE, interval
from appliance.statistics.group_sequential import Tested, test_limit
from appliance.statistics.tolerance import tolerance_factor

FLOOR = 1 / 3  # of the margin: the least spread that a pass assumes
UNSTABLE_PART = 1 / 3  # of the launches; more of them without a steady state, and nothing passes
LEAST_TOLERANCE = 0.005  # levels of a launch that differ by less are one
TOO_GOOD_PART, TOO_GOOD_CONFIDENCE = 0.999, 0.95

STOP_OTHER_LOAD = "Stop other load on the node and run again, or agree on a wider limit."
CLOCK = "Find out what disturbs the clock of this node; run again."
SLOWED = "Find what slows this device (clocks, power, neighbours) or replace it."
ACTIONS: Mapping[str, str] = {
    "baseline_missing": "Make a baseline with `bench baseline create`, or judge by another limit.",
    "baseline_mismatch": "Make a baseline with this software and these settings.",
    "peak_missing": "Give an absolute limit, or a baseline.",
}


def location(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The ruling of a criterion on the location of one case's times, with its statistic."""
    limit = limit_of(criterion, evidence, inputs)
    if isinstance(limit, Unlimited):
        action = ACTIONS.get(limit.reason, "Correct the criterion, or leave this case out of it.")
        return inconclusive(limit.reason, limit.explanation, action)
    values = _values(criterion, evidence)
    bounds = bounds_at(evidence, evidence.num_made, inputs)
    if bounds is None or not all(map(math.isfinite, values)):
        what = "has no test planned for it" if bounds is None else "has a time that is no number"
        return inconclusive("evidence_missing", f"{evidence.case.id} {what}", "Run it again.")
    test = LocationTest(
        criterion=criterion,
        evidence=evidence,
        limit=limit,
        values=values,
        tested=_tested(limit, values, bounds),
        inputs=inputs,
    )
    return replace(test.draft(), statistic=test.statistic())


@dataclass(frozen=True, kw_only=True)
class LocationTest:
    """The times of one case, ln(seconds) of each launch, against one limit."""

    criterion: Criterion
    evidence: CaseEvidence
    limit: Limit
    values: Sequence[float]
    tested: Tested
    inputs: RulingInputs

    def draft(self) -> RulingDraft:
        """Precedence inside one case: a fail, then what forbids a pass, then the pass."""
        if bool(self.tested.is_fail):
            return self._failed()
        doubt = self._doubt()
        if doubt is not None:
            return doubt
        return RulingDraft(ruling="pass") if bool(self.tested.is_pass) else self._open()

    def _failed(self) -> RulingDraft:
        return RulingDraft(
            ruling="fail",
            reason="over_limit",
            explanation=f"{self.criterion.title}: slower than the limit ({self.limit.source}), "
            f"after {len(self.values)} launches",
            action=SLOWED,
        )

    def _doubt(self) -> RulingDraft | None:
        """What forbids a pass, however fast the launches were."""
        if len(self.values) > 1 and len(set(self.values)) == 1:
            what = f"all {len(self.values)} launches took the same time to the last digit"
            return inconclusive("clock", what, CLOCK)
        unstable = instability(self.evidence, self.limit.margin)
        if unstable:
            action = "Let the node settle (clocks, heat) and run again."
            return inconclusive("unstable", unstable, action)
        if self._is_too_good():
            return inconclusive(
                "too_good",
                f"{self.criterion.title}: faster than the baseline's devices can be",
                "Find out what differs from the baseline, or make the baseline again.",
            )
        return None

    def _is_too_good(self) -> bool:
        """Faster than the baseline by more than its spread and the margin allow."""
        baseline = self.limit.baseline
        if baseline is None or not self.values:
            return False
        level = baseline.by(self.evidence.clock)
        spread = math.hypot(level.launch_sd, level.device_sd or 0.0)
        count = len(baseline.devices) if baseline.kind == "population" else baseline.num_launches
        factor = tolerance_factor(max(2, count), TOO_GOOD_PART, TOO_GOOD_CONFIDENCE)
        least = level.log_seconds - max(self.limit.margin, factor * spread)
        return float(np.mean(self.values)) < least

    def _open(self) -> RulingDraft:
        evidence = self.evidence
        has_all = evidence.num_made >= evidence.case.launches
        analyses = evidence.protocol.interim_analyses
        most = num_in_all(analyses, analyses[-1], evidence.sessions)
        is_short = has_all and evidence.case.launches < most
        return inconclusive(
            "budget" if is_short else "noise",
            f"{self.criterion.title}: {len(self.values)} launches cannot tell it from the limit"
            + (", and no more are planned" if has_all else ""),
            "Plan more launches of this case." if is_short else STOP_OTHER_LOAD,
        )

    def statistic(self) -> Statistic | None:
        """The figures of the test; None without a launch."""
        values, limit, tested = self.values, self.limit, self.tested
        case, metric = self.evidence.case, self.criterion.metric
        if not values:
            return None
        mean, ends = float(np.mean(values)), interval(values)
        bounds = None if ends is None else sorted(in_metric(metric, case, end) for end in ends)
        return Statistic(
            metric=metric,
            unit=unit_of(metric, case),
            value=in_metric(metric, case, mean),
            low=None if bounds is None else bounds[0],
            high=None if bounds is None else bounds[1],
            confidence=None if bounds is None else CONFIDENCE,
            limit=limit.value,
            limit_source=limit.source,
            count=len(values),
            log_mean=mean,
            log_sd=float(np.std(values, ddof=1)) if len(values) > 1 else None,
            log_sd_used=float(tested.sd_used),
            log_limit=limit.log_seconds,
            t_pass=float(tested.t_pass),
            critical_pass=float(tested.critical_pass),
            t_fail=float(tested.t_fail),
            critical_fail=float(tested.critical_fail),
        )


def _tested(limit: Limit, values: Sequence[float], bounds: tuple[float, float]) -> Tested:
    """Both tests, at the planned normal bounds for pass and for fail."""
    return test_limit(
        float(np.mean(values)) if values else math.nan,
        float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        len(values),
        log_limit=limit.log_seconds,
        floor=FLOOR * limit.margin,
        z_pass=bounds[0],
        z_fail=bounds[1],
    )


def analysis_at(evidence: CaseEvidence, made: int) -> int:
    """Index of the interim analysis after so many launches; between two, of the next one."""
    counts = evidence.interim_analyses
    return next((i for i, count in enumerate(counts) if made <= count), len(counts) - 1)


def bounds_at(
    evidence: CaseEvidence, made: int, inputs: RulingInputs
) -> tuple[float, float] | None:
    """The planned bounds of an interim analysis for pass and fail; None where none are planned."""
    counts, place = evidence.interim_analyses, analysis_at(evidence, made)
    by_risk = {
        bounds.alpha: bounds.z[place]
        for bounds in inputs.plan.bounds
        if bounds.interim_analyses == counts and len(bounds.z) == len(counts)
    }
    passing, failing = inputs.alphas
    if passing not in by_risk or failing not in by_risk:
        return None
    return by_risk[passing], by_risk[failing]


def instability(evidence: CaseEvidence, margin: float) -> str:
    """Too many launches that did not come to a steady state, or nothing; `margin` is ln(1 + it)."""
    tolerance = max(LEAST_TOLERANCE, math.expm1(margin) / 3)
    launches = evidence.counted
    unsteady = [
        launch.id
        for launch in launches
        if (series := launch.series(evidence.clock)).word in ("slowdown", "no_steady_state")
        and not series.spread <= tolerance
    ]
    if len(unsteady) < max(1.0, UNSTABLE_PART * len(launches)):
        return ""
    return (
        f"{len(unsteady)} of {len(launches)} launches changed their level by more than "
        f"{100 * tolerance:.2g} % while they were timed, {unsteady[0]} the first"
    )


def _values(criterion: Criterion, evidence: CaseEvidence) -> list[float]:
    """ln(seconds) of each launch that counts: of a step, of its first one, or to its target."""
    if criterion.metric == "seconds_to_target":
        return [_log(launch.seconds_to_target) for launch in evidence.counted]
    is_first = criterion.metric == "first_step_seconds"
    return _first_steps(evidence) if is_first else log_seconds(evidence)


def _log(seconds: float) -> float:
    return math.log(seconds) if seconds > 0 else math.nan


def _first_steps(evidence: CaseEvidence) -> list[float]:
    return [
        math.log(launch.started.first_step_ns * 1e-9)
        for launch in evidence.counted
        if launch.started is not None and launch.started.first_step_ns > 0
    ]
