"""What cannot be asked for: limits beyond the vendor's figures, margins that no baseline carries.

Both are refused before anything runs. A limit that no device of its kind can meet is a slip of a
unit or of a zero, and would reject healthy hardware; a margin smaller than what the baseline
carries plans for an inconclusive run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from appliance.errors import UsageError
from appliance.evidence.baseline_key import find, least_seconds, peak_for
from appliance.evidence.device_health import MADE
from appliance.judging.limits import TIMES, amount_of, margin_of, scaled, unit_of
from appliance.judging.pass_chance import (
    CHANCE,
    Schedule,
    carried_margin,
    least_chance,
    more_runs,
    schedule_of,
)
from appliance.planning.criterion_scope import alphas, matches
from appliance.records.baseline import Baseline, Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.plan import Case, Plan
from appliance.records.system import System
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.storage.toml_file import did_you_mean
from appliance.storage.units import UNITS

SAMPLED_SESSIONS = 3  # a run's level is sampled by as many
LONGEST_HINT = 200  # characters of a sentence's list of names
PEAK_SLACK = 1.05
"""How far above the vendor's figure a rate is still believed.

Published figures assume a nominal clock, and devices may run above it: an H200 NVL has been
measured at 853 TFLOP/s in bfloat16, 2 % above its dense figure.
"""


def check_limits(criteria: Criteria, cases: Sequence[Case], peaks: Peaks, system: System) -> None:
    """UsageError for an absolute limit that the vendor's own figures say no device can meet."""
    for criterion, case in _limited(criteria, cases):
        least = least_seconds(peaks, system, case)
        wanted = _wanted_seconds(criterion, case, peaks, system)
        if wanted is not None and least is not None and wanted < least:
            raise UsageError(
                f'criterion "{criterion.id}" asks {_worded(criterion, case, wanted)} of {case.id}, '
                f"which is above the device's peak ({_worded(criterion, case, least)}): correct "
                "the limit or its unit"
            )


def _worded(criterion: Criterion, case: Case, seconds: float) -> str:
    """A step time as the criterion's metric and unit say it."""
    if criterion.metric in TIMES:
        return f"a step in {seconds:.4g} s"
    scale = UNITS.get(criterion.unit, ("", 1.0))[1]
    unit = criterion.unit or unit_of(criterion.metric, case)
    return f"{(amount_of(case, criterion.metric) or math.nan) / seconds / scale:.4g} {unit}"


def check_health(criteria: Criteria, system: System) -> None:
    """UsageError for a metric of health that no device has: it could only come to nothing."""
    known = {*MADE, *COUNTERS, *READINGS, *_reported_names(system)}
    for criterion in criteria.criterion:
        if criterion.kind == "health" and criterion.metric not in known:
            hint = did_you_mean(criterion.metric, known)
            short = (
                hint if len(hint) <= LONGEST_HINT else " (docs/explanation/judging.md names them)"
            )
            raise UsageError(
                f'criterion "{criterion.id}" is of health, which does not judge '
                f'"{criterion.metric}"{short}'
            )


def _reported_names(system: System) -> Iterator[str]:
    """Names of the readings and counters of these devices, as their vendors give them."""
    for device in system.identity.devices:
        for key, fact in system.conditions.facts.items():
            name = key.removeprefix(f"{device.id}_")
            if name != key:
                yield f"{name}_{fact.unit}" if fact.unit else name


def check_margins(
    criteria: Criteria,
    baselines: Baselines,
    cases: Sequence[Case],
    plan: Plan,
    system: System,
) -> None:
    """UsageError for a margin that a baseline cannot carry in a run as it is planned."""
    for criterion, case in _limited(criteria, cases):
        if criterion.within_of_baseline is None:
            continue
        baseline, _, _ = find(baselines, case, plan.protocol, system)
        if baseline is not None:
            refusal = _margin_refusal(criterion, case, criteria, baseline, plan)
            if refusal:
                raise UsageError(refusal)


def planned_chances(
    criteria: Criteria, baselines: Baselines, plan: Plan, system: System
) -> Mapping[str, float]:
    """By case, how often a healthy device passes its limits around baselines at least."""
    chances: dict[str, float] = {}
    for criterion, case in _limited(criteria, plan.cases):
        baseline, _, _ = find(baselines, case, plan.protocol, system)
        if criterion.within_of_baseline is None or baseline is None or not criterion.required:
            continue
        schedule = planned_schedule(criteria, case, plan)
        margin = math.log1p(margin_of(criterion, case, criteria))
        least = least_chance(baseline, margin, schedule)
        chances[case.id] = min(least, chances.get(case.id, 1.0))
    return chances


def chance_sentences(chances: Mapping[str, float]) -> tuple[str, ...]:
    """The chances of passing, in a sentence; none where nothing is judged around a baseline."""
    if not chances:
        return ()
    case = min(chances, key=lambda name: chances[name])
    of_all = max(0.0, 1.0 - sum(1.0 - one for one in chances.values()))
    together = (
        f"; all {len(chances)} with {100 * of_all:.4g} % at least" if len(chances) > 1 else ""
    )
    least = f"{100 * chances[case]:.4g} % at least in {case}"
    return (f"a healthy device passes its limit around the baseline with {least}{together}",)


def planned_schedule(criteria: Criteria, case: Case, plan: Plan) -> Schedule:
    """When a case's times are judged, with the bounds of the first attempt where they count."""
    alpha, _ = alphas(criteria, plan.num_limits, 1 if plan.num_attempts else 0)
    return schedule_of(plan.protocol.interim_analyses, case.launches, plan.sessions, alpha)


def _margin_refusal(
    criterion: Criterion, case: Case, criteria: Criteria, baseline: Baseline, plan: Plan
) -> str:
    """Why a margin is below what a baseline carries, with what is missing; or nothing."""
    margin = margin_of(criterion, case, criteria)
    schedule = planned_schedule(criteria, case, plan)
    if least_chance(baseline, math.log1p(margin), schedule) >= CHANCE:
        return ""
    carried = rounded_up(max(carried_margin(level, schedule) for level in baseline.levels))
    is_class = isinstance(criterion.within_of_baseline, str) and criterion.margin is None
    remedy = f'the margin "{case.bound_by}"' if is_class else "within_of_baseline"
    what = f"carries {carried:g}" if math.isfinite(carried) else "carries no margin"
    sessions = f"{plan.sessions} session{'' if plan.sessions == 1 else 's'}"
    ways = [
        *_missing(baseline, math.log1p(margin), schedule),
        *(["plan three sessions"] if plan.sessions < SAMPLED_SESSIONS else []),
        *([f"raise {remedy} to {carried:g}"] if math.isfinite(carried) else []),
    ]
    return (
        f'criterion "{criterion.id}" lets {case.id} lose {margin:g} of its baseline, which '
        f"{what} in a run of {sessions}: {', or '.join(ways)}"
    )


def _missing(baseline: Baseline, margin: float, schedule: Schedule) -> Iterator[str]:
    """The launches and runs that a baseline lacks for a margin, where any number would do."""
    if min(level.freedom for level in baseline.levels) < 1:
        yield "make the baseline of several runs, on several days"
        return
    more = more_runs(baseline, margin, schedule)
    if more:
        launches = more * max(level.run_launches for level in baseline.levels)
        yield f"add {launches} launches in {more} run{'' if more == 1 else 's'} to the baseline"


def rounded_up(margin: float) -> float:
    """A margin in steps of 0.001, upwards; what is such a step but for its last bits stays."""
    return math.ceil(margin * 1000 - 1e-9) / 1000 if math.isfinite(margin) else margin


def _limited(criteria: Criteria, cases: Sequence[Case]) -> Iterator[tuple[Criterion, Case]]:
    """Every limit on performance with each timed case that it is for."""
    for criterion in criteria.criterion:
        if criterion.kind == "perf":
            for case in cases:
                if case.is_timed and matches(criterion, case.id):
                    yield criterion, case


def _wanted_seconds(criterion: Criterion, case: Case, peaks: Peaks, system: System) -> float | None:
    """The step time that an absolute limit comes to; None where it says nothing of it."""
    amount = amount_of(case, criterion.metric)
    limit = criterion.at_most if criterion.metric in TIMES else criterion.at_least
    if limit is not None:
        value = scaled(criterion, limit)
    elif criterion.fraction_of_peak is not None:
        peak = peak_for(peaks, system, case, criterion.metric)
        value = 0.0 if peak is None else criterion.fraction_of_peak * peak
    else:
        return None
    if amount is None or not (0.0 < amount < math.inf and 0.0 < value < math.inf):
        return None
    return value if criterion.metric in TIMES else amount / value
