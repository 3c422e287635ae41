"""Rulings on times: two one-sided tests at one limit, exact tests of rates, drift over the run.

A pass rejects "at or beyond the limit", a fail rejects "within the limit", each at its own stated
risk; whatever can do neither is inconclusive, so noise earns nothing. Location is judged by
Student's t on launch statistics at group-sequential bounds, where a pass must assume a spread
of at least a third of the margin: launch times of two modes look steadier in five launches than
they are. What a median cannot see (stalls, slow launches, percentiles, drift) has tests of its
own. Times are judged only of outputs that were right, by clocks that agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from scipy.special import stdtrit

from appliance.evidence.baseline_key import find
from appliance.evidence.case_results import log_seconds, stall_shares
from appliance.evidence.determinism import run_to_run
from appliance.evidence.launches import CaseEvidence, clock_doubt, clock_fault
from appliance.judging.functional import TOLERATED_INTERRUPTIONS, RulingDraft, inconclusive, numeric
from appliance.judging.limits import (
    Limit,
    RulingInputs,
    Unlimited,
    in_metric,
    limit_of,
    scaled,
    unit_of,
)
from appliance.planning.criterion_scope import alphas
from appliance.records.criteria import Criterion
from appliance.records.verdict import Statistic
from appliance.statistics.drift import theil_sen
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES, interval
from appliance.statistics.group_sequential import Tested, test_limit
from appliance.statistics.tails import (
    analysis_risks,
    is_slow,
    percentile,
    rate_bounds,
    test_percentile,
    test_rate,
)
from appliance.statistics.tolerance import tolerance_factor

FLOOR = 1 / 3  # of the margin: the least spread that a pass assumes
UNSTABLE_PART = 1 / 3  # of the launches; more of them without a steady state, and nothing passes
LEAST_TOLERANCE = 0.005  # levels of a launch that differ by less are one
TOO_GOOD_PART, TOO_GOOD_CONFIDENCE = 0.999, 0.95
DRIFT_SECONDS = 1800.0
LEAST_DRIFT_SECONDS = 600.0
DISTURBED_SHARE = 0.1  # of the node's processors, used by others
DISTURBED_PART = 1 / 3  # of the readings


QUIETEN = "Quieten the node and run again, or agree on a wider limit."
CLOCK = "Find out what disturbs the clock of this node; run again."
SLOWED = "Find what slows this device (clocks, power, neighbours) or replace it."
ACTIONS: Mapping[str, str] = {
    "baseline_missing": "Make a baseline with `bench baseline create`, or judge by another limit.",
    "baseline_mismatch": "Make a baseline with this software and these settings.",
    "peak_missing": "Give an absolute limit, or a baseline.",
}


def judged(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The ruling of one criterion on the times of one case."""
    untold = unjudged(evidence)
    if untold is not None:
        return untold
    rule = RULES.get(criterion.metric) or RULES[criterion.kind]
    return rule(criterion, evidence, inputs)


def pooled(
    criterion: Criterion, cases: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The ruling on how many launches of all these cases together were slow.

    A launch is slow when it took 3 % and three baseline spreads longer than the median of its
    case. Without a baseline the spread is the case's own, as its median deviation tells it.
    """
    for evidence in cases:
        untold = unjudged(evidence)
        if untold is not None:
            return untold
    total = slow = 0
    for evidence in cases:
        values = np.array(log_seconds(evidence))
        total += len(values)
        if len(values):
            slow += int(np.count_nonzero(is_slow(values, _reference_spread(evidence, inputs))))
    return _rate(criterion, inputs, bad=slow, total=total, what="slow launches", step=None)


# ------------------------------------------------------------------ location


def _location(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    limit = limit_of(criterion, evidence.case, inputs)
    if isinstance(limit, Unlimited):
        action = ACTIONS.get(limit.reason, "Correct the criterion, or leave this case out of it.")
        return inconclusive(limit.reason, limit.explanation, action)
    values = _values(criterion, evidence)
    bounds = bounds_at(evidence, evidence.num_made, inputs)
    if bounds is None or not all(map(math.isfinite, values)):
        what = "has no test planned for it" if bounds is None else "has a time that is no number"
        return inconclusive("evidence_missing", f"{evidence.case.id} {what}", "Run it again.")
    tested = test_limit(
        float(np.mean(values)) if values else math.nan,
        float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        len(values),
        log_limit=limit.log_seconds,
        floor=FLOOR * limit.margin,
        z_pass=bounds[0],
        z_fail=bounds[1],
    )
    found = _ruled(criterion, evidence, limit, tested, inputs=inputs)
    return replace(found, statistic=_statistic(criterion, evidence, values, limit, tested))


def _ruled(
    criterion: Criterion,
    evidence: CaseEvidence,
    limit: Limit,
    tested: Tested,
    *,
    inputs: RulingInputs,
) -> RulingDraft:
    """Precedence inside one case: a fail, then what forbids a pass, then the pass."""
    if bool(tested.is_fail):
        return _failed(criterion, evidence, limit, inputs)
    values = _values(criterion, evidence)
    doubt = _doubt(criterion, evidence, limit, values)
    if doubt is not None:
        return doubt
    if bool(tested.is_pass):
        return RulingDraft(ruling="pass")
    has_all = evidence.num_made >= evidence.case.launches
    is_short = has_all and evidence.case.launches < evidence.protocol.interim_analyses[-1]
    return inconclusive(
        "budget" if is_short else "noise",
        f"{criterion.title}: {len(values)} launches cannot tell it from the limit"
        + (", and no more are planned" if has_all else ""),
        "Plan more launches of this case." if is_short else QUIETEN,
    )


def _failed(
    criterion: Criterion, evidence: CaseEvidence, limit: Limit, inputs: RulingInputs
) -> RulingDraft:
    """Beyond the limit; of a node that others used meanwhile that says nothing of its devices."""
    disturbed = disturbance(evidence, inputs)
    if disturbed:
        return inconclusive(
            "environment",
            f"{criterion.title}: beyond the limit, but {disturbed}",
            "Keep everything else off this node and run again.",
        )
    return RulingDraft(
        ruling="fail",
        reason="over_limit",
        explanation=f"{criterion.title}: slower than the limit ({limit.source}), "
        f"after {len(_values(criterion, evidence))} launches",
        action=SLOWED,
    )


def _doubt(
    criterion: Criterion, evidence: CaseEvidence, limit: Limit, values: Sequence[float]
) -> RulingDraft | None:
    """What forbids a pass, however fast the launches were."""
    if len(values) > 1 and len(set(values)) == 1:
        return inconclusive(
            "clock",
            f"all {len(values)} launches took the same time to the last digit",
            CLOCK,
        )
    unstable = instability(evidence, limit.margin)
    if unstable:
        return inconclusive(
            "unstable", unstable, "Let the node settle (clocks, heat) and run again."
        )
    if _is_too_good(values, limit):
        return inconclusive(
            "too_good",
            f"{criterion.title}: faster than the baseline's devices can be",
            "Find out what differs from the baseline, or make the baseline again.",
        )
    return None


def bounds_at(
    evidence: CaseEvidence, made: int, inputs: RulingInputs
) -> tuple[float, float] | None:
    """The planned bounds of an interim analysis for pass and fail; between two the next one's."""
    interim_analyses = evidence.interim_analyses
    place = next(
        (i for i, interim_analysis in enumerate(interim_analyses) if made <= interim_analysis),
        len(interim_analyses) - 1,
    )
    found = {
        bounds.alpha: bounds.z[place]
        for bounds in inputs.plan.bounds
        if bounds.interim_analyses == interim_analyses and len(bounds.z) == len(interim_analyses)
    }
    passing, failing = alphas(inputs.criteria, inputs.plan.num_limits)
    if passing not in found or failing not in found:
        return None
    return found[passing], found[failing]


def _statistic(
    criterion: Criterion,
    evidence: CaseEvidence,
    values: Sequence[float],
    limit: Limit,
    tested: Tested,
) -> Statistic | None:
    if not values:
        return None
    case, metric = evidence.case, criterion.metric
    mean = float(np.mean(values))
    ends = interval(values)
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


def instability(evidence: CaseEvidence, margin: float) -> str:
    """Too many launches that did not come to a steady state, or nothing; `margin` is ln(1 + it)."""
    tolerance = max(LEAST_TOLERANCE, math.expm1(margin) / 3)
    launches = evidence.counted
    unsteady = [
        launch.id
        for launch in launches
        if launch.series.word in ("slowdown", "no_steady_state")
        and not launch.series.spread <= tolerance
    ]
    if len(unsteady) < max(1.0, UNSTABLE_PART * len(launches)):
        return ""
    return (
        f"{len(unsteady)} of {len(launches)} launches changed their level by more than "
        f"{100 * tolerance:.2g} % while they were timed, {unsteady[0]} the first"
    )


def _is_too_good(values: Sequence[float], limit: Limit) -> bool:
    """Faster than the baseline by more than its spread and the margin allow."""
    baseline = limit.baseline
    if baseline is None or not values:
        return False
    spread = math.hypot(baseline.launch_sd, baseline.device_sd or 0.0)
    count = len(baseline.devices) if baseline.kind == "population" else baseline.num_launches
    factor = tolerance_factor(max(2, count), TOO_GOOD_PART, TOO_GOOD_CONFIDENCE)
    return float(np.mean(values)) < baseline.log_seconds - max(limit.margin, factor * spread)


def disturbance(evidence: CaseEvidence, inputs: RulingInputs) -> str:
    """Others' use of the processors while this case ran on them, or nothing."""
    devices = {device.id: device for device in inputs.system.identity.devices}
    device = devices.get(evidence.case.device)
    if device is None or device.vendor != "cpu" or "usable_processors" not in device.facts:
        return ""
    usable = device.facts["usable_processors"].value
    if not isinstance(usable, int | float) or usable <= 0:
        return ""
    shares = [
        (foreign + (reading.values.get("stolen_processors") or 0.0)) / usable
        for launch in evidence.timed
        for reading in launch.readings
        if (foreign := reading.values.get("foreign_processors")) is not None
    ]
    high = [share for share in shares if share >= DISTURBED_SHARE]
    if not high or len(high) < DISTURBED_PART * len(shares):
        return ""
    return (
        f"others used {100 * statistics.median(high):.0f} % of the processors "
        f"in {len(high)} of {len(shares)} readings"
    )


# ------------------------------------------------------------------ tails


def _stalls(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    figures = [figures for launch in evidence.counted for figures in launch.figures]
    return _rate(
        criterion,
        inputs,
        bad=sum(block.num_stalls for block in figures),
        total=sum(block.num_steps for block in figures),
        what="stalled steps",
        step=evidence,
    )


def _rate(
    criterion: Criterion,
    inputs: RulingInputs,
    *,
    bad: int,
    total: int,
    what: str,
    step: CaseEvidence | None,
) -> RulingDraft:
    """An exact binomial test of a rate; `step` is the case that is analysed, None at the end."""
    limit = criterion.at_most
    if limit is None or not total:
        return inconclusive("coverage", f"{criterion.title}: nothing was timed", "Run it again.")
    passing, failing = _risks(step, inputs)
    low, high = rate_bounds(bad, total, passing)
    statistic = Statistic(
        metric=criterion.metric,
        unit="",
        value=bad / total,
        low=low,
        high=high,
        confidence=1 - 2 * passing,
        limit=limit,
        limit_source="absolute",
        count=total,
    )
    word = test_rate(bad, total, limit=limit, risk_pass=passing, risk_fail=failing)
    said = f"{criterion.title}: {bad} {what} of {total}"
    return _tested(word, said, f"which shows a rate of at most {high:.3g}", statistic)


def _stall_shares(
    criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs
) -> RulingDraft:
    """The part of a step's time that loading takes, by Student's t over launches."""
    shares, limit = stall_shares(evidence), criterion.at_most
    is_whole = len(shares) == len(evidence.counted) and all(map(math.isfinite, shares))
    if limit is None or not is_whole or len(shares) < LEAST_LAUNCHES:
        return inconclusive(
            "coverage",
            f"{criterion.title}: {len(shares)} launches tell what loading took, "
            f"and {LEAST_LAUNCHES} are wanted",
            "Judge a case that loads its inputs, with more launches.",
        )
    passing, failing = _risks(evidence, inputs)
    value, error = float(np.mean(shares)), float(np.std(shares, ddof=1)) / len(shares) ** 0.5
    low, high = (
        value + sign * error * float(stdtrit(len(shares) - 1, 1 - risk))
        for sign, risk in ((-1, failing), (1, passing))
    )
    statistic = Statistic(
        metric=criterion.metric,
        unit="",
        value=value,
        low=max(0.0, low),
        high=high,
        confidence=None,
        limit=limit,
        limit_source="absolute",
        count=len(shares),
    )
    word = "pass" if high <= limit else "fail" if low > limit else "open"
    said = f"{criterion.title}: loading took {100 * value:.3g} % of the time of a step"
    return _tested(word, said, "which the spread leaves open", statistic)


def _steps_to_target(
    criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs
) -> RulingDraft:
    """Steps are counted, not measured: each launch must keep the limit, and a miss is infinite."""
    del inputs
    limit = criterion.at_most
    steps = [launch.steps_to_target for launch in evidence.counted]
    if limit is None or not steps or not evidence.case.evaluate_every:
        return inconclusive(
            "coverage", f"{criterion.title}: no launch has a target", "Leave this case out of it."
        )
    statistic = Statistic(
        metric=criterion.metric,
        unit="steps",
        value=statistics.median(steps),
        low=min(steps),
        high=max(steps),
        confidence=None,
        limit=limit,
        limit_source="absolute",
        count=len(steps),
    )
    if max(steps) <= limit:
        return RulingDraft(ruling="pass", statistic=statistic)
    return RulingDraft(
        ruling="fail",
        reason="over_limit",
        explanation=f"{criterion.title}: a launch needed {max(steps):g} steps, "
        f"where {limit:g} are the limit",
        action="Compare the checks and the losses with those of another device of this model.",
        statistic=statistic,
    )


def _latency(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    limit, quantile = criterion.at_most, criterion.quantile
    launches = evidence.counted
    if limit is None or quantile is None or not launches:
        return inconclusive("coverage", f"{criterion.title}: nothing was timed", "Run it again.")
    bound = scaled(criterion, limit)
    times = np.concatenate([launch.step_seconds for launch in launches])
    passing, failing = _risks(evidence, inputs)
    word, num_over = test_percentile(
        times, quantile=quantile, limit=bound, risk_pass=passing, risk_fail=failing
    )
    shown = percentile(times, quantile, passing)
    statistic = Statistic(
        metric=criterion.metric,
        unit="s",
        value=float(np.quantile(times, quantile)),
        low=None,
        high=shown,
        confidence=None if shown is None else 1 - passing,
        limit=bound,
        limit_source="absolute",
        count=len(times),
    )
    said = f"{criterion.title}: {num_over} of {len(times)} queries took longer than the limit"
    return _tested(word, said, "which leaves the percentile open", statistic)


def _tested(word: str, said: str, shows: str, statistic: Statistic) -> RulingDraft:
    if word == "pass":
        return RulingDraft(ruling="pass", statistic=statistic)
    if word == "fail":
        return RulingDraft(
            ruling="fail",
            reason="over_limit",
            explanation=said,
            action=SLOWED,
            statistic=statistic,
        )
    return RulingDraft(
        ruling="inconclusive",
        reason="noise",
        explanation=f"{said}, {shows}",
        action="Plan more launches or longer blocks, or agree on a wider limit.",
        statistic=statistic,
    )


def _risks(evidence: CaseEvidence | None, inputs: RulingInputs) -> tuple[float, float]:
    """What this interim analysis may spend on a pass and a fail; all where there is one."""
    risks = alphas(inputs.criteria, inputs.plan.num_limits)
    if evidence is None:
        return risks
    interim_analyses = evidence.interim_analyses
    place = next(
        (
            i
            for i, interim_analysis in enumerate(interim_analyses)
            if evidence.num_made <= interim_analysis
        ),
        len(interim_analyses) - 1,
    )
    passing, failing = (analysis_risks(alpha, interim_analyses)[place] for alpha in risks)
    return passing, failing


def _reference_spread(evidence: CaseEvidence, inputs: RulingInputs) -> float:
    baseline, _, _ = find(inputs.baselines, evidence.case, inputs.plan.protocol, inputs.system)
    if baseline is not None:
        return baseline.launch_sd
    values = log_seconds(evidence)
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


# ------------------------------------------------------------------ drift


def _drift(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """Slope of the blocks' medians over the run, over half an hour."""
    launches = evidence.counted
    if criterion.at_most is None or len(launches) < LEAST_LAUNCHES:
        return inconclusive("coverage", f"{criterion.title}: too few launches", "Run it again.")
    times = np.array([_seconds(launch.moments[-1]) for launch in launches])
    span = float(times.max() - times.min())
    if span < LEAST_DRIFT_SECONDS:
        return inconclusive(
            "coverage",
            f"{criterion.title}: the launches span {span:.0f} s, "
            f"which is less than {LEAST_DRIFT_SECONDS:.0f} s",
            "Plan a longer suite, or leave this criterion out.",
        )
    passing, failing = _risks(evidence, inputs)
    values = np.array(log_seconds(evidence))
    limit = criterion.at_most / DRIFT_SECONDS
    slope, _, high = theil_sen(times, values, 1 - 2 * passing)
    _, low, _ = theil_sen(times, values, 1 - 2 * failing)
    if slope is None or low is None or high is None:
        return inconclusive("evidence_missing", f"{criterion.title}: no slope can be told", QUIETEN)
    statistic = Statistic(
        metric=criterion.metric,
        unit="",
        value=slope * DRIFT_SECONDS,
        low=low * DRIFT_SECONDS,
        high=high * DRIFT_SECONDS,
        confidence=None,
        limit=criterion.at_most,
        limit_source="absolute",
        count=len(launches),
    )
    word = "pass" if high <= limit else "fail" if low > limit else "open"
    said = f"{criterion.title}: {100 * slope * DRIFT_SECONDS:.2g} % slower in half an hour"
    return _tested(word, said, "which the spread leaves open", statistic)


def _seconds(utc: str) -> float:
    return datetime.fromisoformat(utc).timestamp()


# ------------------------------------------------------------------ what is not judged


def unjudged(evidence: CaseEvidence) -> RulingDraft | None:
    """Why the times of this case are not judged at all."""
    if numeric(evidence).ruling != "pass" or run_to_run(evidence) is not None:
        return inconclusive(
            "coverage",
            "no timing is judged while a check is missing or has failed, or launches differ",
            "Run the case again; without a check nothing is accepted.",
        )
    fault = evidence.fault or clock_fault(evidence)
    if fault:
        return inconclusive(
            "evidence_missing", f"no timing is judged: {fault}", "Start a new run and let it end."
        )
    doubt = clock_doubt(evidence)
    if doubt:
        return inconclusive("clock", doubt, CLOCK)
    if evidence.num_interruptions > TOLERATED_INTERRUPTIONS and evidence.was_touched:
        return inconclusive(
            "interrupted",
            "the run was interrupted more than once, and in a launch of this case",
            "Start a new run and let it finish.",
        )
    return None


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


Rule = Callable[[Criterion, CaseEvidence, RulingInputs], RulingDraft]
RULES: Mapping[str, Rule] = {
    "perf": _location,
    "drift": _drift,
    "stall_rate": _stalls,
    "stall_share": _stall_shares,
    "steps_to_target": _steps_to_target,
    "latency_seconds": _latency,
}
