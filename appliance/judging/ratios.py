"""Speed of a case over that of another case of the same run, with its interval and its ruling.

A node may lose what each of its devices has: a loader that does not keep up, devices that slow
each other down when all work at once. So the speed of one case, in units per second, is held
against that of another one that does the same work for each unit. With x and y the launches'
ln(seconds per unit) of the case and of the other,

    ln(ratio) = mean(y) - mean(x),   se = sqrt(sd(x)**2 / n_x + sd(y)**2 / n_y)

and the limit L is met where (ln(ratio) - ln(L)) / se reaches Student's t, missed where its negative
does. The degrees of freedom are those of the smaller side, min(n_x, n_y) - 1, which keeps the risk
of a wrong ruling whatever the two spreads are (Mickey and Brown, Ann. Math. Statist. 37, 1966);
Welch's own would rule a little earlier, but may exceed it. Both sides have the same interim
analyses, and one is made once both have made its launches, on these launches alone: with
equally many on both sides the information grows as that of one case does, so the planned
group-sequential bounds hold. A pass must assume a spread of a third of the margin on either side,
as for every limit on times. A launch shares its round with one of the other case, so what slows
both counts as spread: the test errs towards saying nothing.

Several sessions are one observation each, mean(y) - mean(x) of what both made in it: levels of the
run that the two cases do not share are in the spread of these differences alone, with the degrees
of freedom of the sessions (run_levels.py).

What stands beside a case of the whole node without any criterion is the same ratio with its
95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from appliance.evidence.case_results import common_clock, withheld
from appliance.evidence.launches import CaseEvidence
from appliance.judging.decision_rule import FLOOR, decide
from appliance.judging.functional import RulingDraft, inconclusive
from appliance.judging.limits import RulingInputs, margin_of
from appliance.judging.location import (
    CLOCK,
    STOP_OTHER_LOAD,
    bounds_at,
    instability,
)
from appliance.judging.performance import undisturbed, unjudged
from appliance.planning.criterion_scope import RATIO, other_of
from appliance.records.criteria import Criterion
from appliance.records.plan import Case
from appliance.records.verdict import Clock, Estimate, Statistic
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES
from appliance.statistics.group_sequential import Tested, test_limit
from appliance.statistics.run_levels import Sessions, sessions_of, uncertainty_of_sessions

SLOWED = "Find what slows the case down (loading, power, heat, links), or agree on a lower ratio."
METHOD = (
    "units per second over those of the same work on its device, or alone on it; Student's t of "
    "two cases with the freedom of the smaller"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A case beside another: `difference` is the mean of ln(seconds per unit) less the other's.

    `sd` is the spread that a mean over `count` launches would need to have the difference's error,
    and `floored` the same with at least the floor on either side. `sessions` are the differences of
    several sessions, with the spread of a launch's.
    """

    difference: float
    sd: float
    floored: float
    count: int
    sessions: Sessions | None = None

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Two-sided interval of the ratio of speeds; needs two launches on either side."""
        freedom, error = float(self.count - 1), self.sd / math.sqrt(self.count)
        if self.sessions is not None:
            whole = uncertainty_of_sessions(self.sessions, 0.0)
            freedom, error = float(whole.freedom), math.sqrt(float(whole.variance))
        half = error * float(stdtrit(freedom, 0.5 + confidence / 2))
        return math.exp(-self.difference - half), math.exp(-self.difference + half)


def contrast(
    times: Sequence[float], others: Sequence[float], *, floor: float = 0.0
) -> Contrast | None:
    """Both sides are ln(seconds per unit); None below five launches or without finite numbers."""
    sides = [np.asarray(side, dtype=np.float64) for side in (times, others)]
    count = min(side.size for side in sides)
    if count < LEAST_LAUNCHES or not all(np.isfinite(side).all() for side in sides):
        return None
    spreads = [(float(np.std(side, ddof=1)), side.size) for side in sides]

    def joined(least: float) -> float:
        return math.sqrt(count * sum(max(spread, least) ** 2 / size for spread, size in spreads))

    return Contrast(
        difference=float(np.mean(sides[0]) - np.mean(sides[1])),
        sd=joined(0.0),
        floored=joined(floor),
        count=count,
    )


def contrast_of(
    times: Sequence[Sequence[float]], others: Sequence[Sequence[float]], *, floor: float = 0.0
) -> Contrast | None:
    """The same of launches by session, where one without a launch of either side says nothing."""
    made = [(one, other) for one, other in zip(times, others, strict=True) if one and other]
    flat = [[value for session in side for value in session] for side in (times, others)]
    whole = contrast(*flat, floor=floor)
    if whole is None or len(made) < 2:  # noqa: PLR2004 - one session is judged by its launches
        return whole
    sides = [
        sessions_of([np.asarray(pair[side], dtype=np.float64) for pair in made], 0.0)
        for side in (0, 1)
    ]
    means = sides[0].means - sides[1].means
    sessions = Sessions(
        means=means,
        within=np.asarray(sides[0].within + sides[1].within),
        counts=tuple(map(min, sides[0].counts, sides[1].counts)),
    )
    return replace(whole, difference=float(means.mean()), sessions=sessions)


# ------------------------------------------------------------------ the ruling


def judged(
    criterion: Criterion, case: Case, cases: Mapping[str, CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The ruling of a criterion on the speed of a case against that of another one."""
    other = other_of(criterion, case, inputs.plan.cases)
    if isinstance(other, str) or criterion.at_least is None:
        what = other if isinstance(other, str) else "the criterion has no limit"
        return inconclusive("coverage", what, "Plan the other case, or correct the criterion.")
    sides = (cases[case.id], cases[other.id])
    for evidence in sides:
        not_judged = unjudged(evidence, inputs)
        if not_judged is not None:
            return replace(not_judged, explanation=f"{evidence.case.id}: {not_judged.explanation}")
    num_made = _common_analysis(sides)
    margin = math.log1p(margin_of(criterion, case, inputs.criteria))
    clock = common_clock(sides)
    times = [log_seconds_per_unit(evidence, num_made, clock) for evidence in sides]
    difference = contrast_of(*times, floor=FLOOR * margin)
    bounds = bounds_at(sides[0], num_made, inputs)
    if difference is None or bounds is None:
        counts = " and ".join(f"{one.num_made} of {one.case.id}" for one in sides)
        what = f"{criterion.title}: {counts} launches are too few to compare"
        return inconclusive("coverage", what, "Run both cases to their first interim analysis.")
    tested = tested_at(difference, math.log(criterion.at_least), bounds)
    draft = _ruled(criterion, sides, [_flat(side) for side in times], tested, margin=margin)
    draft = undisturbed(draft, sides, inputs)
    return replace(draft, statistic=_statistic(criterion, other, difference, tested))


def _common_analysis(sides: Sequence[CaseEvidence]) -> int:
    """Launches of the last interim analysis that both cases have come to; 0 before the first."""
    made = min(evidence.num_made for evidence in sides)
    return max(
        (
            interim_analysis
            for interim_analysis in sides[0].interim_analyses
            if interim_analysis <= made
        ),
        default=0,
    )


def log_seconds_per_unit(evidence: CaseEvidence, num_made: int, clock: Clock) -> list[list[float]]:
    """Of each launch that counts among the first `num_made`, by session."""
    units = evidence.case.work.units
    shift = math.log(units) if 0.0 < units < math.inf else math.nan
    return [
        [
            value - shift
            for launch in evidence.counted
            if launch.number <= num_made
            and launch.session == session
            and (value := launch.location(clock)) is not None
        ]
        for session in range(1, evidence.sessions + 1)
    ]


def _flat(values: Sequence[Sequence[float]]) -> list[float]:
    return [value for session in values for value in session]


def tested_at(difference: Contrast, log_ratio: float, bounds: tuple[float, float]) -> Tested:
    """Both tests; where both sides stand still there is no spread, and nothing is ruled."""
    if difference.sessions is not None:
        return decide(
            difference.sessions,
            None,
            log_limit=-log_ratio,
            floor=difference.floored,
            z_pass=bounds[0],
            z_fail=bounds[1],
        ).tested
    return test_limit(
        difference.difference,
        difference.sd,
        difference.count,
        log_limit=-log_ratio,
        floor=difference.floored,
        z_pass=bounds[0],
        z_fail=bounds[1],
    )


def _ruled(
    criterion: Criterion,
    sides: tuple[CaseEvidence, CaseEvidence],
    times: Sequence[Sequence[float]],
    tested: Tested,
    *,
    margin: float,
) -> RulingDraft:
    """A fail, then what forbids a pass, then the pass, as for one case's limit."""
    case, other = (evidence.case.id for evidence in sides)
    if bool(tested.is_fail):
        return RulingDraft(
            ruling="fail",
            reason="over_limit",
            explanation=f"{criterion.title}: {case} is slower than {criterion.at_least:g} of "
            f"{other}, after {len(times[0])} launches of each",
            action=SLOWED,
        )
    for evidence, values in zip(sides, times, strict=True):
        if len(set(values)) == 1:
            what = f"all launches of {evidence.case.id} took the same time to the last digit"
            return inconclusive("clock", what, CLOCK)
        unstable = instability(evidence, margin)
        if unstable:
            what = f"{evidence.case.id}: {unstable}"
            return inconclusive("unstable", what, "Let the node settle (clocks, heat); run again.")
    if bool(tested.is_pass):
        return RulingDraft(ruling="pass")
    return inconclusive(
        "noise",
        f"{criterion.title}: {len(times[0])} launches of {case} and {len(times[1])} of {other} "
        "cannot tell their ratio from the limit",
        STOP_OTHER_LOAD,
    )


def _statistic(
    criterion: Criterion, other: Case, difference: Contrast, tested: Tested
) -> Statistic:
    low, high = difference.interval()
    limit = criterion.at_least or math.nan
    return Statistic(
        metric=RATIO,
        unit="",
        value=math.exp(-difference.difference),
        low=low,
        high=high,
        confidence=CONFIDENCE,
        limit=limit,
        limit_source=f"of {other.id}",
        count=difference.count,
        log_mean=difference.difference,
        log_sd=difference.sd,
        log_sd_used=float(tested.sd_used),
        log_limit=-math.log(limit),
        t_pass=float(tested.t_pass),
        critical_pass=float(tested.critical_pass),
        t_fail=float(tested.t_fail),
        critical_fail=float(tested.critical_fail),
    )


# ------------------------------------------------------------------ beside a case


def estimates(evidence: CaseEvidence, cases: Mapping[str, CaseEvidence]) -> tuple[Estimate, ...]:
    """The speed of a case over that of the same work on one device, and of it alone."""
    return tuple(
        Estimate(
            name=name,
            value=math.exp(-difference.difference),
            unit="",
            low=low,
            high=high,
            confidence=CONFIDENCE,
            method=METHOD,
            count=difference.count,
        )
        for name, other in _beside(evidence, cases)
        if not withheld(other)
        for clock in (common_clock([evidence, other]),)
        if (difference := contrast_of(_all_times(evidence, clock), _all_times(other, clock)))
        is not None
        for low, high in (difference.interval(),)
    )


def _all_times(evidence: CaseEvidence, clock: Clock) -> list[list[float]]:
    return log_seconds_per_unit(evidence, evidence.case.launches, clock)


def _beside(
    evidence: CaseEvidence, cases: Mapping[str, CaseEvidence]
) -> Iterator[tuple[str, CaseEvidence]]:
    """What a case is naturally held against, where there is one such case and no other."""
    case = evidence.case
    alike = [one for one in cases.values() if one is not evidence and _is_alike(one.case, case)]
    if case.scope == "node":
        of_device = [one for one in alike if one.case.scope == "device"]
        if len(of_device) == 1:
            yield "ratio_to_device", of_device[0]
    if not case.alone:
        by_itself = [one for one in alike if one.case.alone and one.case.scope == case.scope]
        if len(by_itself) == 1:
            yield "ratio_to_alone", by_itself[0]


def _is_alike(one: Case, other: Case) -> bool:
    """Whether two cases of the suite differ in their scope and company alone."""
    if one.workload != other.workload:  # of most, which need not be looked at longer
        return False
    is_same = (one.version, one.parameters) == (other.version, other.parameters)
    return is_same and not one.variant and one.all_devices == other.all_devices and one.is_timed
