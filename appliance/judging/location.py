"""Location of a case's launch times against one limit: two one-sided tests and what forbids a pass.

A pass rejects "at or beyond the limit", a fail rejects "within the limit", each at its own stated
risk and at group-sequential bounds, by Student's t (decision_rule.py). Sessions are runs of the
node, and a limit around a baseline is as uncertain as the baseline (level_spread.py). A pass must
assume a spread of launches of at least a third of the margin: launch times of two modes look
steadier in five launches than they are. An unsteady launch, a clock that stands, or a case that is
faster than the devices of its baseline can be, leaves the ruling open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.judging.decision_rule import FLOOR, Decision, decide
from appliance.judging.functional import MORE_MINUTES, RulingDraft, inconclusive
from appliance.judging.level_spread import LEAST_FREEDOM, known_spread, sessions_in
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
from appliance.records.verdict import Clock, Statistic
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES
from appliance.statistics.guard_band import GuardBand
from appliance.statistics.run_levels import RunSpread, Sessions
from appliance.statistics.tolerance import tolerance_factor

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
    short = _shortness(limit, evidence)
    if short:
        action = "Make a baseline of more runs: `bench baseline plan` says of how many."
        return inconclusive("baseline_short", short, action)
    bounds = bounds_at(evidence, evidence.num_made, inputs)
    if bounds is None or not all(map(math.isfinite, _flat(values))):
        what = "has no test planned for it" if bounds is None else "has a time that is no number"
        return inconclusive("evidence_missing", f"{evidence.case.id} {what}", "Run it again.")
    spread = known_spread(limit, evidence, inputs)
    test = LocationTest(
        criterion=criterion,
        evidence=evidence,
        limit=limit,
        values=_flat(values),
        measured=_measured(limit, values, spread, bounds),
        inputs=inputs,
    )
    return replace(test.draft(), statistic=test.statistic())


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The sessions of one case with at least one launch, and what both tests say of them."""

    sessions: Sessions
    spread: RunSpread | None
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class LocationTest:
    """The times of one case, ln(seconds) of each launch, against one limit."""

    criterion: Criterion
    evidence: CaseEvidence
    limit: Limit
    values: Sequence[float]
    measured: Measured | None
    inputs: RulingInputs

    def draft(self) -> RulingDraft:
        """Precedence inside one case: a fail, then what forbids a pass, then the pass."""
        decision = None if self.measured is None else self.measured.decision
        if decision is not None and bool(decision.tested.is_fail):
            return self._failed()
        doubt = self._doubt()
        if doubt is not None:
            return doubt
        is_pass = decision is not None and bool(decision.tested.is_pass)
        return RulingDraft(ruling="pass") if is_pass else self._open()

    def _failed(self) -> RulingDraft:
        source = "" if self.limit.source == "absolute" else f" ({self.limit.source})"
        return RulingDraft(
            ruling="fail",
            reason="over_limit",
            explanation=f"{self.criterion.title}: slower than the limit{source}, "
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
        explanation = (
            f"{self.criterion.title}: {len(self.values)} launches cannot tell it from the limit"
        )
        if any(launch.had_no_time for launch in evidence.timed):
            explanation += ", and the minutes left no time for more"
            return inconclusive("budget", explanation, MORE_MINUTES)
        return inconclusive(
            "budget" if is_short else "noise",
            explanation + (", and no more are planned" if has_all else ""),
            "Plan more launches of this case." if is_short else STOP_OTHER_LOAD,
        )

    def statistic(self) -> Statistic | None:
        """The figures of the test; None without a launch."""
        measured, limit = self.measured, self.limit
        if measured is None:
            return None
        case, metric = self.evidence.case, self.criterion.metric
        decision, sessions = measured.decision, measured.sessions
        mean, band = float(sessions.mean), self._band(measured)
        error = 0.0 if measured.spread is None else math.sqrt(float(measured.spread.error))
        bounds = sorted(in_metric(metric, case, end) for end in self._ends(mean, band, error))
        has_ends = len(self.values) >= LEAST_LAUNCHES and all(map(math.isfinite, bounds))
        return Statistic(
            metric=metric,
            unit=unit_of(metric, case),
            value=in_metric(metric, case, mean),
            low=bounds[0] if has_ends else None,
            high=bounds[1] if has_ends else None,
            confidence=CONFIDENCE if has_ends else None,
            limit=limit.value,
            limit_source=limit.source,
            count=len(self.values),
            log_mean=mean,
            log_sd=math.sqrt(float(sessions.within)) if len(self.values) > 1 else None,
            log_sd_used=float(decision.tested.sd_used),
            log_limit=limit.log_seconds,
            t_pass=float(decision.tested.t_pass),
            critical_pass=float(decision.tested.critical_pass),
            t_fail=float(decision.tested.t_fail),
            critical_fail=float(decision.tested.critical_fail),
            num_sessions=len(sessions.counts),
            log_uncertainty=band.uncertainty,
            freedom=band.freedom,
            log_uncertainty_fail=band.rejection_uncertainty,
            freedom_fail=band.rejection_freedom,
            log_limit_uncertainty=error,
            acceptance_limit=in_metric(metric, case, band.acceptance_limit),
            rejection_limit=in_metric(metric, case, band.rejection_limit),
            consumer_risk=band.consumer_risk,
            producer_risk=band.producer_risk,
        )

    def _band(self, measured: Measured) -> GuardBand:
        decision = measured.decision
        return GuardBand(
            value=float(measured.sessions.mean),
            limit=self.limit.log_seconds,
            uncertainty=math.sqrt(float(decision.for_pass.variance)),
            freedom=float(decision.for_pass.freedom),
            factor=float(decision.tested.critical_pass),
            rejection_uncertainty=math.sqrt(float(decision.for_fail.variance)),
            rejection_freedom=float(decision.for_fail.freedom),
            rejection_factor=float(decision.tested.critical_fail),
        )

    def _ends(self, mean: float, band: GuardBand, error: float) -> tuple[float, float]:
        """Interval of the mean over sessions, without the error of what it is held to."""
        own = math.sqrt(max(0.0, band.rejection_uncertainty**2 - error**2))
        half = own * float(stdtrit(band.rejection_freedom, 0.5 + CONFIDENCE / 2))
        return mean - half, mean + half


def _measured(
    limit: Limit,
    values: Sequence[Sequence[float]],
    spread: RunSpread | None,
    bounds: tuple[float, float],
) -> Measured | None:
    """Both tests, at the planned normal bounds for pass and for fail; None without a launch."""
    if not any(values):
        return None
    sessions = sessions_in(values, spread)
    decision = decide(
        sessions,
        spread,
        log_limit=limit.log_seconds,
        floor=FLOOR * limit.margin,
        z_pass=bounds[0],
        z_fail=bounds[1],
    )
    return Measured(sessions=sessions, spread=spread, decision=decision)


def _shortness(limit: Limit, evidence: CaseEvidence) -> str:
    """Why nothing can be ruled around this baseline, or nothing."""
    baseline = limit.baseline
    if baseline is None or baseline.by(evidence.clock).freedom >= LEAST_FREEDOM:
        return ""
    return (
        f"the baseline of {baseline.key.case} is of one run of each device, which cannot show how "
        "far the level of a run varies"
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


def _values(criterion: Criterion, evidence: CaseEvidence) -> list[list[float]]:
    """By session, ln(seconds) of each launch that counts: of a step, of its first, to a target."""
    value = VALUES.get(criterion.metric, _step)
    return [
        [
            one
            for launch in evidence.counted
            if launch.session == session and (one := value(launch, evidence.clock)) is not None
        ]
        for session in range(1, evidence.sessions + 1)
    ]


def _flat(values: Sequence[Sequence[float]]) -> list[float]:
    return [value for session in values for value in session]


def _step(launch: LaunchEvidence, clock: Clock) -> float | None:
    return launch.location(clock)


def _to_target(launch: LaunchEvidence, clock: Clock) -> float | None:
    del clock
    return math.log(launch.seconds_to_target) if launch.seconds_to_target > 0 else math.nan


def _first_step(launch: LaunchEvidence, clock: Clock) -> float | None:
    del clock
    taken = launch.first_step_ns
    return math.log(taken * 1e-9) if taken is not None and taken > 0 else None


VALUES: Mapping[str, Callable[[LaunchEvidence, Clock], float | None]] = {
    "seconds_to_target": _to_target,
    "first_step_seconds": _first_step,
}
