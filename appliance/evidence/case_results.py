"""What one case has shown, apart from any limit: launches, checks, and estimates with intervals.

No number is given for a case whose check failed or was never made, or whose clock cannot be
right: correct first, then fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from appliance.evidence.determinism import Disagreement
from appliance.evidence.launches import CaseEvidence, LaunchEvidence, clock_fault
from appliance.records.journal import NOT_JUDGED, UNJUDGED_FOR_MEMORY, Check, Checked
from appliance.records.verdict import (
    CaseClocks,
    CaseResult,
    CheckResult,
    Clock,
    Estimate,
    LaunchResult,
)
from appliance.statistics.estimates import CONFIDENCE, interval, timing_estimates
from appliance.statistics.tails import percentile, rate_bounds

PERCENTILES = (0.5, 0.9, 0.99)


def log_seconds(evidence: CaseEvidence, clock: Clock | None = None) -> list[float]:
    """Launch statistics, ln(seconds of a step), of all launches that count.

    By the clock that the case is judged by, unless another one is asked for.
    """
    by = clock or evidence.clock
    return [value for launch in evidence.counted if (value := launch.location(by)) is not None]


def common_clock(cases: Iterable[CaseEvidence]) -> Clock:
    """The wall where one of the cases is judged by it: like is compared with like."""
    return "wall" if any(one.clock == "wall" for one in cases) else "steps"


def case_clocks(evidence: CaseEvidence) -> CaseClocks | None:
    """What both clocks say, and which is judged; None where nothing was timed."""
    steps, wall = log_seconds(evidence, "steps"), log_seconds(evidence, "wall")
    if not steps or not wall:
        return None
    choice = evidence.clock_choice
    return CaseClocks(
        judged=choice.clock,
        has_events=any(
            block.event_ns is not None for launch in evidence.counted for block in launch.blocks
        ),
        step_seconds=math.exp(float(np.mean(steps))),
        wall_seconds=math.exp(float(np.mean(wall))),
        overhead_seconds=choice.overhead,
        subtracted_seconds=choice.subtracted,
        ratio=choice.ratio,
        least_ratio=choice.least_ratio,
        missing=choice.missing,
        allowed=choice.allowed,
    )


def case_result(evidence: CaseEvidence, apart: Disagreement | None = None) -> CaseResult:
    """`apart` is where its device contradicts itself, or others of its model."""
    reason = withheld(evidence, apart)
    shown = [] if reason else evidence.timed
    first_steps = [1e-9 * taken for launch in shown if (taken := launch.first_step_ns) is not None]
    return CaseResult(
        case=evidence.case.id,
        num_planned=len(evidence.all_launches),
        num_completed=sum(launch.is_completed for launch in evidence.all_launches),
        num_decided=sum(launch.is_decided for launch in evidence.launches),
        launches=tuple(
            _launch_result(launch, evidence.clock, is_shown=not reason)
            for launch in evidence.all_launches
        ),
        checks=_check_results(evidence.checks),
        estimates=() if reason else _estimates(evidence, first_steps),
        clocks=None if reason else case_clocks(evidence),
        withheld=reason,
    )


def withheld(evidence: CaseEvidence, apart: Disagreement | None = None) -> str:
    """Why no timing of this case may be shown, or nothing."""
    ruled = evidence.ruled_checks
    outside = [checked.check.name for checked in ruled if not checked.check.is_within]
    failed = [name for name in outside if name != UNJUDGED_FOR_MEMORY]
    if failed:
        return f'no timing is shown: the check "{failed[0]}" is not within its bound'
    if outside:
        return f"no timing is shown: {NOT_JUDGED}"
    if not evidence.checks:
        return "no timing is shown: nothing was checked"
    if apart is not None and apart.is_certain:
        return f"no timing is shown: {apart.explanation}"
    fault = clock_fault(evidence)
    return f"no timing is shown: {fault}" if fault else ""


def _estimates(evidence: CaseEvidence, first_steps: Sequence[float]) -> tuple[Estimate, ...]:
    """Step time and rates; then what a median cannot see: stalls, the whole window, percentiles."""
    work = evidence.case.work
    estimates = [*timing_estimates(log_seconds(evidence), first_steps, work)]
    figures = [figures for launch in evidence.counted for figures in launch.figures]
    steps = sum(block.num_steps for block in figures)
    held = sum(block.held for block in figures)
    if steps and held > 0:
        bad = sum(block.stalls(evidence.clock) for block in figures)
        estimates.append(_stalls(bad, steps))
    if steps and held > 0 and 0.0 < work.units < math.inf:
        estimates.append(
            Estimate(
                name="window_throughput",
                value=work.units * steps / held,
                unit=f"{work.unit}/s",
                low=None,
                high=None,
                confidence=None,
                method="work over wall time of all blocks, with stalls and pauses",
                count=steps,
            )
        )
    if steps and evidence.case.scenario == "single_stream":
        estimates += _latencies(evidence)
    shares = stall_shares(evidence)
    if shares:
        estimates.append(_stall_share(shares))
    if evidence.case.evaluate_every and evidence.counted:
        estimates += _to_target(evidence)
    return tuple(estimates)


def stall_shares(evidence: CaseEvidence) -> list[float]:
    """Of each launch that counts and loads its inputs, the part of its time that this took."""
    shares = [launch.stall_share for launch in evidence.counted]
    return [share for share in shares if share is not None]


def _stall_share(shares: Sequence[float]) -> Estimate:
    ends = interval(shares)
    return Estimate(
        name="stall_share",
        value=float(np.mean(shares)),
        unit="",
        low=None if ends is None else max(0.0, ends[0]),
        high=None if ends is None else ends[1],
        confidence=None if ends is None else CONFIDENCE,
        method="loading over step time, mean over launches, Student's t",
        count=len(shares),
    )


def _to_target(evidence: CaseEvidence) -> list[Estimate]:
    """Steps and seconds until training came to its target, of which a miss is infinite."""
    launches = evidence.counted
    steps = [launch.steps_to_target for launch in launches]
    seconds = [launch.seconds_to_target for launch in launches]
    logs = [math.log(value) if value > 0 else math.nan for value in seconds]
    ends = interval(logs)
    low, high = (None, None) if ends is None else (math.exp(ends[0]), math.exp(ends[1]))
    return [
        Estimate(
            name="steps_to_target",
            value=float(np.median(steps)),
            unit="steps",
            low=min(steps),
            high=max(steps),
            confidence=None,
            method="median, smallest and largest over launches; a miss is infinite",
            count=len(steps),
        ),
        Estimate(
            name="seconds_to_target",
            value=math.exp(float(np.mean(logs))),
            unit="s",
            low=low,
            high=high,
            confidence=None if ends is None else CONFIDENCE,
            method="geometric mean over launches, from the first step on, evaluation left out",
            count=len(seconds),
        ),
    ]


def _stalls(bad: int, total: int) -> Estimate:
    low, high = rate_bounds(bad, total, (1 - CONFIDENCE) / 2)
    return Estimate(
        name="stall_rate",
        value=bad / total,
        unit="",
        low=low,
        high=high,
        confidence=CONFIDENCE,
        method="steps above 1.25 times their block's median, exact binomial",
        count=total,
    )


def _latencies(evidence: CaseEvidence) -> list[Estimate]:
    times = np.concatenate([launch.step_seconds(evidence.clock) for launch in evidence.counted])
    return [
        Estimate(
            name=f"latency_p{100 * quantile:g}_seconds",
            value=float(np.quantile(times, quantile)),
            unit="s",
            low=None,
            high=percentile(times, quantile, 1 - CONFIDENCE),
            confidence=CONFIDENCE,
            method="sample quantile of single queries; upper end by the rule of early stopping",
            count=len(times),
        )
        for quantile in PERCENTILES
    ]


def _launch_result(launch: LaunchEvidence, clock: Clock, *, is_shown: bool) -> LaunchResult:
    first_step_ns = launch.first_step_ns if is_shown else None
    series = launch.series(clock) if is_shown and launch.is_counted else None
    return LaunchResult(
        launch=launch.id,
        outcome=launch.ended.outcome if launch.ended else "not_run",
        reason=launch.ended.reason if launch.ended else "no end is recorded",
        mode=launch.mode,
        num_steps=launch.num_steps,
        log_seconds=launch.location("steps") if is_shown else None,
        wall_log_seconds=launch.location("wall") if is_shown else None,
        first_step_seconds=None if first_step_ns is None else first_step_ns * 1e-9,
        series="" if series is None else series.word,
        cut=0 if series is None else series.cut,
        num_changes=0 if series is None else series.num_changes,
        lag1=None if series is None else series.lag1,
        effective_samples=None if series is None else series.effective_samples,
    )


def _check_results(checks: Sequence[Checked]) -> tuple[CheckResult, ...]:
    groups: dict[tuple[str, str], list[Checked]] = {}
    for checked in checks:
        groups.setdefault((checked.phase, checked.check.name), []).append(checked)
    return tuple(
        CheckResult(
            name=group[0].check.name,
            phase=group[0].phase,
            count=len(group),
            num_outside=sum(not checked.check.is_within for checked in group),
            worst=max((checked.check for checked in group), key=_badness),
        )
        for group in groups.values()
    )


def _badness(check: Check) -> float:
    """Error over bound; anything that is not a finite comparison is the worst of all."""
    if not (math.isfinite(check.error) and math.isfinite(check.bound)) or check.error < 0:
        return math.inf
    return check.error / check.bound if check.bound > 0 else (math.inf if check.error else 0.0)
