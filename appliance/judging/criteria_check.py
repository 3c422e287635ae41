"""What cannot be asked for: limits beyond the vendor's figures, margins below a baseline's noise.

Both are found before anything runs. A limit that no device of its kind can meet is a slip of a
unit or of a zero, and would reject healthy hardware; a margin smaller than what the baseline can
resolve plans for an inconclusive run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from appliance.errors import UsageError
from appliance.evidence.baseline_key import find, least_seconds, peak_for
from appliance.evidence.device_health import MADE
from appliance.judging.limits import TIMES, amount_of, margin_of, scaled, unit_of
from appliance.planning.criterion_scope import matches
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.plan import Case
from appliance.records.suite import Protocol
from appliance.records.system import System
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.storage.toml_file import did_you_mean
from appliance.storage.units import UNITS

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
    protocol: Protocol,
    system: System,
) -> None:
    """UsageError for a margin below the smallest at which a healthy run passes its baseline."""
    for criterion, case in _limited(criteria, cases):
        if criterion.within_of_baseline is None:
            continue
        margin = margin_of(criterion, case, criteria)
        baseline, _, _ = find(baselines, case, protocol, system)
        if baseline is None or margin >= baseline.smallest_margin:
            continue
        is_class = isinstance(criterion.within_of_baseline, str) and criterion.margin is None
        remedy = f'the margin "{case.bound_by}"' if is_class else "within_of_baseline"
        raise UsageError(
            f'criterion "{criterion.id}" lets {case.id} lose {margin:g} of its baseline, which '
            f"varies more than that: raise {remedy} to at least "
            f"{rounded_up(baseline.smallest_margin):g} or make a quieter baseline"
        )


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
