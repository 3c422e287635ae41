"""What the judge writes: estimates, results of cases, rulings, ratios, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.records.journal import Check, Outcome, Phase
from appliance.records.json import Number, Record
from appliance.records.suite import LaunchMode

RulingWord = Literal["pass", "fail", "inconclusive", "not_applicable"]
VerdictWord = Literal["ACCEPTED", "REJECTED", "INCONCLUSIVE"]
EXIT_CODES: Mapping[VerdictWord, int] = {"ACCEPTED": 0, "REJECTED": 1, "INCONCLUSIVE": 3}
Reason = Literal[
    "",  # a pass needs none
    "crashed",
    "timed_out",
    "check",
    "interrupted",
    "unsupported",
    "not_run",
    "software",
    "coverage",
    "evidence_missing",
    "noise",
    "over_limit",
    "clock",
    "unstable",
    "environment",
    "setting",
    "budget",
    "time_limit",
    "baseline_missing",
    "baseline_mismatch",
    "baseline_short",
    "peak_missing",
    "above_peak",
    "too_good",
    "injected",
    "rerun",
    "converted",
    "transient",
    "disagreement",
    "unqualified",
    "unplanned",
    "no_deterministic_form",
    "stalled",
    "health",
    "not_observed",
    "not_shown",
    "fabric",
    "absent",
    "inventory",
]
Clock = Literal["steps", "wall"]
"""What a case's times are: its steps, by the device's events where there are any; or the wall time
of its blocks over their steps."""
SeriesClass = Literal["", "short", "steady", "warm_up", "slowdown", "no_steady_state"]


# ------------------------------------------------------------------ what was decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Record):
    """A statistic with its interval; `low` and `high` are None when there are too few launches."""

    name: str
    value: Number
    unit: str
    low: Number | None
    high: Number | None
    confidence: Number | None
    method: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult(Record):
    """One launch as it ended, with its statistic by both clocks.

    `log_seconds` is the mean over blocks of the median ln(seconds) of a step, by the device's
    events where it has any; `wall_log_seconds` that of ln(wall time of a block over its steps).
    `series` is what its timed steps look like over time, `cut` the number of steps before the
    steady part, `num_changes` the level changes found, `lag1` their first autocorrelation and
    `effective_samples` what they are worth as independent ones (None below 20 steps, and where
    all are equal or one is no number).
    """

    launch: str
    outcome: Outcome
    reason: str
    mode: LaunchMode | None
    num_steps: int
    log_seconds: Number | None
    wall_log_seconds: Number | None
    first_step_seconds: Number | None
    series: SeriesClass
    cut: int
    num_changes: int
    lag1: Number | None
    effective_samples: Number | None

    def location(self, clock: Clock) -> float | None:
        """ln(seconds) of a step by this clock."""
        return self.log_seconds if clock == "steps" else self.wall_log_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Record):
    """All comparisons of one name and phase in a case: the worst one, and how many."""

    name: str
    phase: Phase
    count: int
    num_outside: int
    worst: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseClocks(Record):
    """What the two clocks of a case say, and which is judged (`statistics.two_clocks`).

    `step_seconds` and `wall_seconds` are geometric means over launches; `has_events` says that a
    device's clock gave the first. `overhead_seconds` is what timing a step cost, None where it was
    not measured, and `subtracted_seconds` what of it counted. `ratio` is the sum of all steps over
    the wall of their blocks after that, `least_ratio` that of the block where it is the least.
    `missing` is what the steps lack of the wall, in ln; up to `allowed` they are judged.
    """

    judged: Clock
    has_events: bool
    step_seconds: Number
    wall_seconds: Number
    overhead_seconds: Number | None
    subtracted_seconds: Number
    ratio: Number
    least_ratio: Number
    missing: Number
    allowed: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult(Record):
    """One case: launches, checks, and clocks and estimates (none while a check is not within)."""

    case: str
    num_planned: int
    num_completed: int
    num_decided: int
    launches: tuple[LaunchResult, ...]
    checks: tuple[CheckResult, ...]
    estimates: tuple[Estimate, ...]
    clocks: CaseClocks | None = None
    withheld: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(Record):
    """The figures behind a ruling, in the unit of its metric, and how they were compared.

    `count` are launches, steps or readings. The `log_` fields and the t statistics are of ln of
    seconds: `log_sd_used` is the spread that the test for a pass took, at least a third of the
    margin; a ruling is pass where `t_pass` reaches `critical_pass`, fail where `t_fail` reaches
    `critical_fail`. `log_uncertainty` is the standard uncertainty of the difference from the limit
    that the test for a pass took, with `freedom`, `log_uncertainty_fail` and `freedom_fail` those
    for a fail; `log_limit_uncertainty` is what of it is the baseline's, 0 for a limit that is
    stated. `num_sessions` sampled the level of a run. In the terms of JCGM 106: a value is accepted
    up to `acceptance_limit`, and rejected from `rejection_limit` on; `consumer_risk` is the
    probability that what measures so is beyond the limit, `producer_risk` that it is within.
    None where the kind of criterion has no such figure.
    """

    metric: str
    unit: str
    value: Number
    low: Number | None
    high: Number | None
    confidence: Number | None
    limit: Number | None
    limit_source: str
    count: int
    log_mean: Number | None = None
    log_sd: Number | None = None
    log_sd_used: Number | None = None
    log_limit: Number | None = None
    t_pass: Number | None = None
    critical_pass: Number | None = None
    t_fail: Number | None = None
    critical_fail: Number | None = None
    num_sessions: int | None = None
    log_uncertainty: Number | None = None
    freedom: Number | None = None
    log_uncertainty_fail: Number | None = None
    freedom_fail: Number | None = None
    log_limit_uncertainty: Number | None = None
    acceptance_limit: Number | None = None
    rejection_limit: Number | None = None
    consumer_risk: Number | None = None
    producer_risk: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling(Record):
    """The answer to one criterion for one case, with its reason and one next action.

    `case` is empty where the criterion is of all its cases together, or of the node.
    """

    criterion: str
    case: str
    required: bool
    ruling: RulingWord
    reason: Reason
    explanation: str
    action: str
    statistic: Statistic | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(Record):
    """Speed of one case against its baseline: above 1 is faster."""

    case: str
    weight: Number
    ratio: Number
    low: Number | None
    high: Number | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Record):
    """Suite score: weighted geometric mean of speeds against the baseline, with its interval.

    It never offsets a criterion. `left_out` are timed cases without a comparable baseline, or
    without timing.
    """

    value: Number
    low: Number | None
    high: Number | None
    confidence: Number
    ratios: tuple[Ratio, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Record):
    """One device against the others of its node, over all workloads that all of them ran.

    `effect` is relative step time (0.03: three percent slower). A device `is_flagged` where `t`
    reaches `critical`, the effect is large enough, and both halves of the run show it.
    """

    device: str
    effect: Number
    t: Number
    critical: Number
    first_half: Number
    second_half: Number
    num_workloads: int
    is_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Record):
    """verdict.json: what the rulings come to. `scope` says what was judged and what was not.

    `decided_by` names the criterion of the highest precedence among those that kept the run
    from a better word; empty for ACCEPTED. `num_failed` of `num_made` launches crashed, did not
    end in time, or had a check outside its bound: the failure rate.
    """

    schema: Literal["bench/verdict/5"] = "bench/verdict/5"
    run_id: str
    verdict: VerdictWord
    decided_by: str
    scope: str
    num_interruptions: int
    num_made: int
    num_failed: int
    rulings: tuple[Ruling, ...]
    cases: tuple[CaseResult, ...]
    score: Score | None
    stragglers: tuple[Straggler, ...]
