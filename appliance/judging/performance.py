"""Rulings on times: location against a limit, and exact tests of rates.

Whatever can neither pass nor fail at its stated risk is inconclusive, so noise earns nothing.
Location is in location.py and drift in heating.py; what else a median cannot see (stalls, slow
launches, percentiles) has tests of its own here. Times are judged only of outputs that were right,
by clocks that agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from appliance.evidence.baseline_key import find
from appliance.evidence.case_results import log_seconds, stall_shares
from appliance.evidence.disturbance import disturbance
from appliance.evidence.launches import CaseEvidence, clock_doubt, clock_fault
from appliance.judging.functional import (
    ALONE,
    TOLERATED_INTERRUPTIONS,
    RulingDraft,
    disturbed_clock,
    inconclusive,
    numeric,
)
from appliance.judging.limits import RulingInputs, scaled
from appliance.judging.location import CLOCK, SLOWED, analysis_at, location
from appliance.judging.repeatability import contradiction
from appliance.records.criteria import Criterion
from appliance.records.verdict import Statistic
from appliance.statistics.estimates import LEAST_LAUNCHES
from appliance.statistics.tails import (
    analysis_risks,
    is_slow,
    percentile,
    rate_bounds,
    test_percentile,
    test_rate,
)

COUNTED = "steps_to_target"
LOOSER = "Plan more launches or longer blocks, or agree on a wider limit."


def judged(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The ruling of one criterion on the times of one case."""
    withheld = unjudged(evidence, inputs)
    if withheld is not None:
        return withheld
    rule = RULES.get(criterion.metric) or RULES[criterion.kind]
    draft = rule(criterion, evidence, inputs)
    # Steps are counted: whoever shares the device makes them slower, and no more of them.
    return draft if criterion.metric == COUNTED else undisturbed(draft, [evidence], inputs)


def undisturbed(
    draft: RulingDraft, cases: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The same ruling, but a time that failed on a device that others used says nothing of it.

    A pass stays a pass: whoever was fast enough beside others is so alone.
    """
    if draft.ruling != "fail":
        return draft
    clauses = ((one.case.id, disturbance(one, inputs.system)) for one in cases)
    case, clause = next(((case, clause) for case, clause in clauses if clause), ("", ""))
    if not clause:
        return draft
    where = f" in {case}" if len(cases) > 1 else ""
    open_draft = inconclusive("environment", f"{draft.explanation}, but{where} {clause}", ALONE)
    return replace(open_draft, statistic=draft.statistic)


def pooled(
    criterion: Criterion, cases: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The ruling on how many launches of all these cases together were slow.

    A launch is slow when it took 3 % and three baseline spreads longer than the median of its
    case. Without a baseline the spread is the case's own, by its median absolute deviation.
    """
    for evidence in cases:
        withheld = unjudged(evidence, inputs)
        if withheld is not None:
            return withheld
    total = slow = 0
    for evidence in cases:
        values = np.array(log_seconds(evidence))
        total += len(values)
        if len(values):
            slow += int(np.count_nonzero(is_slow(values, _reference_spread(evidence, inputs))))
    draft = _rate(criterion, bad=slow, total=total, what="slow launches", risks=inputs.alphas)
    return undisturbed(draft, cases, inputs)


@dataclass(frozen=True, kw_only=True)
class LimitTest:
    """A test of one figure against an absolute limit, and what it shows in words.

    `finding` is the sentence on the figure; `open_clause` goes on where the test leaves it open.
    """

    criterion: Criterion
    word: Literal["pass", "fail", "open"]
    value: float
    low: float | None
    high: float | None
    limit: float
    count: int
    finding: str
    confidence: float | None = None
    unit: str = ""
    open_clause: str = "which the spread leaves open"
    action: str = SLOWED

    def draft(self) -> RulingDraft:
        """A pass without words; else the finding, with the criterion's title."""
        if self.word == "pass":
            return RulingDraft(ruling="pass", statistic=self.statistic())
        is_fail, sentence = self.word == "fail", f"{self.criterion.title}: {self.finding}"
        return RulingDraft(
            ruling="fail" if is_fail else "inconclusive",
            reason="over_limit" if is_fail else "noise",
            explanation=sentence if is_fail else f"{sentence}, {self.open_clause}",
            action=self.action if is_fail else LOOSER,
            statistic=self.statistic(),
        )

    def statistic(self) -> Statistic:
        return Statistic(
            metric=self.criterion.metric,
            unit=self.unit,
            value=self.value,
            low=self.low,
            high=self.high,
            confidence=self.confidence,
            limit=self.limit,
            limit_source="absolute",
            count=self.count,
        )


# ------------------------------------------------------------------ tails


def _stalls(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    blocks = [block for launch in evidence.counted for block in launch.figures]
    return _rate(
        criterion,
        bad=sum(block.stalls(evidence.clock) for block in blocks),
        total=sum(block.num_steps for block in blocks),
        what="stalled steps",
        risks=_risks(evidence, inputs),
    )


def _rate(
    criterion: Criterion, *, bad: int, total: int, what: str, risks: tuple[float, float]
) -> RulingDraft:
    """An exact binomial test of a rate, at the risks of a wrong pass and of a wrong fail."""
    limit = criterion.at_most
    if limit is None or not total:
        return inconclusive("coverage", f"{criterion.title}: nothing was timed", "Run it again.")
    passing, failing = risks
    low, high = rate_bounds(bad, total, passing)
    return LimitTest(
        criterion=criterion,
        word=test_rate(bad, total, limit=limit, risk_pass=passing, risk_fail=failing),
        value=bad / total,
        low=low,
        high=high,
        confidence=1 - 2 * passing,
        limit=limit,
        count=total,
        finding=f"{bad:,} {what} of {total:,}",
        open_clause=f"which shows a rate of at most {100 * high:.3g} %",
    ).draft()


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
    return LimitTest(
        criterion=criterion,
        word="pass" if high <= limit else "fail" if low > limit else "open",
        value=value,
        low=max(0.0, low),
        high=high,
        limit=limit,
        count=len(shares),
        finding=f"loading took {100 * value:.3g} % of the time of a step",
    ).draft()


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
    return LimitTest(
        criterion=criterion,
        word="pass" if max(steps) <= limit else "fail",
        unit="steps",
        value=statistics.median(steps),
        low=min(steps),
        high=max(steps),
        limit=limit,
        count=len(steps),
        finding=f"a launch needed {max(steps):g} steps, where {limit:g} are the limit",
        action="Compare the checks and the losses with those of another device of this model.",
    ).draft()


def _latency(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    limit, quantile = criterion.at_most, criterion.quantile
    launches = evidence.counted
    if limit is None or quantile is None or not launches:
        return inconclusive("coverage", f"{criterion.title}: nothing was timed", "Run it again.")
    bound = scaled(criterion, limit)
    times = np.concatenate([launch.step_seconds(evidence.clock) for launch in launches])
    passing, failing = _risks(evidence, inputs)
    word, num_over = test_percentile(
        times, quantile=quantile, limit=bound, risk_pass=passing, risk_fail=failing
    )
    high = percentile(times, quantile, passing)
    return LimitTest(
        criterion=criterion,
        word=word,
        unit="s",
        value=float(np.quantile(times, quantile)),
        low=None,
        high=high,
        confidence=None if high is None else 1 - passing,
        limit=bound,
        count=len(times),
        finding=f"{num_over} of {len(times)} queries took longer than the limit",
        open_clause="which leaves the percentile open",
    ).draft()


def _risks(evidence: CaseEvidence, inputs: RulingInputs) -> tuple[float, float]:
    """What the interim analysis of this case may spend on a pass and on a fail."""
    place = analysis_at(evidence, evidence.num_made)
    passing, failing = (
        analysis_risks(alpha, evidence.interim_analyses)[place] for alpha in inputs.alphas
    )
    return passing, failing


def _reference_spread(evidence: CaseEvidence, inputs: RulingInputs) -> float:
    baseline, _, _ = find(inputs.baselines, evidence.case, inputs.plan.protocol, inputs.system)
    if baseline is not None:
        return baseline.by(evidence.clock).launch_sd
    values = log_seconds(evidence)
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


# ------------------------------------------------------------------ what is not judged


def unjudged(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft | None:
    """Why the times of this case are not judged at all."""
    is_unlike = contradiction(evidence, inputs) is not None
    if numeric(evidence).ruling != "pass" or is_unlike:
        return inconclusive(
            "coverage",
            "no timing is judged while a check is missing or has failed, or repeats differ",
            "Run the case again; without a check nothing is accepted.",
        )
    doubt = clock_doubt(evidence)
    open_clock = disturbed_clock(evidence, inputs, doubt)
    if open_clock is not None:
        return open_clock
    fault = evidence.fault or clock_fault(evidence)
    if fault:
        return inconclusive(
            "evidence_missing", f"no timing is judged: {fault}", "Start a new run and let it end."
        )
    if doubt:
        return inconclusive("clock", doubt, CLOCK)
    if evidence.num_interruptions > TOLERATED_INTERRUPTIONS and evidence.was_touched:
        return inconclusive(
            "interrupted",
            "the run was interrupted more than once, and in a launch of this case",
            "Start a new run and let it finish.",
        )
    return None


Rule = Callable[[Criterion, CaseEvidence, RulingInputs], RulingDraft]
RULES: Mapping[str, Rule] = {
    "perf": location,
    "stall_rate": _stalls,
    "stall_share": _stall_shares,
    COUNTED: _steps_to_target,
    "latency_seconds": _latency,
}
