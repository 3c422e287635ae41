"""What a criterion compares times with: its limit in ln(seconds), where it comes from, its margin.

A limit is absolute, a part of the vendor's peak, or a margin around a baseline. All of them were
fixed before the run and lie in the bundle; what is missing or does not fit this node gives the
reason of an inconclusive ruling instead, never a default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.errors import EvidenceError
from appliance.evidence.baseline_key import find, peak_for
from appliance.evidence.launches import CaseEvidence
from appliance.planning.criterion_scope import alphas, is_compared, matches
from appliance.records.baseline import Baseline, Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.order import Order
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.verdict import Reason
from appliance.records.vocabulary import metric_words
from appliance.statistics.two_clocks import USUAL_MARGIN
from appliance.storage.units import METRIC_UNITS, UNITS

NO_RECORDS = Qualified(record=())
COUNTED = ("steps_to_target",)
"""Metrics of a case's course that no clock measures."""
TIMES = ("step_seconds", "first_step_seconds", "seconds_to_target")


@dataclass(frozen=True, kw_only=True)
class RulingInputs:
    """All that a ruling stands on beside the journal.

    `attempt` is the number that the receipt of the run gives, 0 where attempts are not counted.
    """

    plan: Plan
    criteria: Criteria
    baselines: Baselines
    peaks: Peaks
    system: System
    qualified: Qualified = NO_RECORDS
    order: Order | None = None
    attempt: int = 0

    @property
    def alphas(self) -> tuple[float, float]:
        """Risk of a wrong pass and of a wrong fail of one limit, in this attempt.

        EvidenceError where attempts are counted and the journal names none that the plan allows.
        """
        if bool(self.attempt) != bool(self.plan.num_attempts):
            raise EvidenceError(
                "the journal names no attempt of the challenge that the plan is for"
            )
        if not 0 <= self.attempt <= self.plan.num_attempts:
            raise EvidenceError(f"the plan has no bounds for attempt {self.attempt}")
        return alphas(self.criteria, self.plan.num_limits, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit in ln(seconds of a step), and as it is written: `value` in the metric's SI unit.

    `margin` is ln(1 + practical margin); `baseline` is the one that it came from.
    """

    log_seconds: float
    value: float
    unit: str
    margin: float
    source: str
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlimited:
    """Why there is no limit to compare with."""

    reason: Reason
    explanation: str


def scaled(criterion: Criterion, limit: float) -> float:
    """A limit as its criterion writes it, in the metric's SI unit."""
    return limit * UNITS[criterion.unit][1] if criterion.unit in UNITS else limit


def limit_of(
    criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs
) -> Limit | Unlimited:
    """What this criterion demands of the speed of this case, by the clock that is judged."""
    case = evidence.case
    if criterion.within_of_baseline is not None:
        return _of_baseline(criterion, evidence, inputs)
    amount = amount_of(case, criterion.metric)
    if amount is None or not (0.0 < amount < math.inf):
        return Unlimited(
            reason="coverage",
            explanation=f"the {metric_words(criterion.metric)} is not counted for this workload",
        )
    value, source = _absolute(criterion), "absolute"
    if criterion.fraction_of_peak is not None:
        peak = peak_for(inputs.peaks, inputs.system, case, criterion.metric)
        if peak is None:
            return Unlimited(
                reason="peak_missing",
                explanation="no vendor's figure is known for the "
                f"{metric_words(criterion.metric)} of this device in "
                f"{case.work.precision or 'this mix of formats'}",
            )
        value = criterion.fraction_of_peak * peak
        source = f"{100 * criterion.fraction_of_peak:.3g} % of the peak"
    if value is None or not (0.0 < value < math.inf):
        return Unlimited(reason="coverage", explanation="the criterion has no limit")
    is_time = criterion.metric in TIMES
    return Limit(
        log_seconds=math.log(value) if is_time else math.log(amount) - math.log(value),
        value=value,
        unit=unit_of(criterion.metric, case),
        margin=math.log1p(margin_of(criterion, case, inputs.criteria)),
        source=source,
    )


def amount_of(case: Case, metric: str) -> float | None:
    """What a step does in the metric's unit: a rate is this over the step's seconds."""
    amounts: Mapping[str, float | None] = {
        "step_seconds": 1.0,
        "first_step_seconds": 1.0,
        "seconds_to_target": 1.0 if case.evaluate_every else None,
        "units_per_second": case.work.units,
        "flops_per_second": case.work.flops,
        "bytes_per_second": case.work.bytes,
    }
    return amounts.get(metric)


def unit_of(metric: str, case: Case) -> str:
    """SI unit of a metric for this case."""
    return f"{case.work.unit}/s" if metric == "units_per_second" else METRIC_UNITS.get(metric, "")


def in_metric(metric: str, case: Case, log_seconds: float) -> float:
    """ln(seconds of a step) as a value of the metric."""
    seconds = math.exp(log_seconds)
    return seconds if metric in TIMES else (amount_of(case, metric) or math.nan) / seconds


def margin_of(criterion: Criterion, case: Case, criteria: Criteria) -> float:
    """The practical margin of a criterion, like 0.03: its own, or its workload class's."""
    own = criterion.within_of_baseline if criterion.margin is None else criterion.margin
    if isinstance(own, float | int):
        return float(own)
    return criteria.margins.get(case.bound_by, 0.0)


def smallest_margin(case: Case, criteria: Criteria) -> float:
    """The smallest margin of all criteria that a case's times are judged by, like 0.03.

    Rates of what is slow have none of their own; neither has a case without a limit.
    """
    margins = [
        margin_of(criterion, case, criteria)
        for criterion in criteria.criterion
        if criterion.kind == "perf"
        and criterion.metric not in COUNTED
        and (matches(criterion, case.id) or is_compared(criterion, case.id))
    ]
    return min(margins, default=USUAL_MARGIN)


def _absolute(criterion: Criterion) -> float | None:
    limit = criterion.at_most if criterion.at_most is not None else criterion.at_least
    return None if limit is None else scaled(criterion, limit)


def _of_baseline(
    criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs
) -> Limit | Unlimited:
    case = evidence.case
    baseline, reason, explanation = find(
        inputs.baselines, case, inputs.plan.protocol, inputs.system
    )
    if baseline is None:
        return Unlimited(reason=reason, explanation=explanation)
    wanted = margin_of(criterion, case, inputs.criteria)
    margin = math.log1p(wanted)
    level = baseline.by(evidence.clock)
    log_limit = level.log_seconds + margin
    source = f"baseline + {100 * wanted:.3g} %"
    if level.tolerance is not None and level.tolerance.log_limit > log_limit:
        log_limit = level.tolerance.log_limit
        source = f"tolerance limit of the baseline's {len(baseline.devices)} devices"
    return Limit(
        log_seconds=log_limit,
        value=in_metric(criterion.metric, case, log_limit),
        unit=unit_of(criterion.metric, case),
        margin=margin,
        source=source,
        baseline=baseline,
    )
