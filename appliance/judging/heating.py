"""Heating: whether a device grows slower while it works, by all its cases' launches together.

A mean over the run hides it, and a case that is decided early does not come to see it; see
sustained.py for the stage that a plan holds the devices under load for. One ruling is made over all
devices, and the worst of them is named. Launches of different sessions are not compared: a device
cools in a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from appliance.evidence.launches import CaseEvidence
from appliance.judging.functional import RulingDraft, inconclusive
from appliance.judging.limits import RulingInputs
from appliance.judging.location import STOP_OTHER_LOAD
from appliance.judging.performance import LimitTest, undisturbed, unjudged
from appliance.planning import sustained
from appliance.planning.criterion_scope import alphas
from appliance.records.criteria import Criterion
from appliance.records.verdict import RulingWord
from appliance.statistics.heating import LEAST_INDEPENDENT, Series, Slope, slope

HALF_HOUR = 1800.0
LEAST_SECONDS = 600.0
"""Over which a rate for half an hour may be extrapolated."""
OVER_RUN = "drift_over_run"
WORST: tuple[RulingWord, ...] = ("fail", "inconclusive", "pass")
LONGER = "Find what changes slowly on this node (cooling, other load), or plan more launches."
COOL = "Find what heats this device (cooling, air flow, power limit) or replace it."


def heated(
    criterion: Criterion, cases: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The ruling on the drift of all devices of these cases: that of the worst one."""
    for evidence in cases:
        withheld = unjudged(evidence, inputs)
        if withheld is not None:
            return withheld
    devices = sustained.devices_of(criterion, [one.case for one in cases])
    drafts = [_of_device(criterion, name, cases, inputs, len(devices)) for name in devices]
    return min(drafts, key=_badness)


def _badness(draft: RulingDraft) -> tuple[int, float]:
    """Orders rulings from the worst: by their word, then by the slope that was seen."""
    value = draft.statistic.value if draft.statistic is not None else 0.0
    return WORST.index(draft.ruling), -value


def _of_device(
    criterion: Criterion,
    device: str,
    cases: Sequence[CaseEvidence],
    inputs: RulingInputs,
    num_devices: int,
) -> RulingDraft:
    """The ruling on one of so many devices, which share the risk of a wrong fail."""
    own = [one for one in cases if device in one.case.all_devices]
    seen = slope(_series(own))
    short = _unsustained(criterion, device, cases, inputs, seen)
    if seen is None or short:
        what = short or f"{device} has too few launches to show a slope"
        action = "Run again, and let it end; or agree on a shorter sustained_seconds."
        return inconclusive("coverage", f"{criterion.title}: {what}", action)
    if seen.num_independent < LEAST_INDEPENDENT:
        return inconclusive("noise", f"{criterion.title}: {_alike(device, seen)}", LONGER)
    passing, failing = alphas(inputs.criteria, inputs.plan.num_limits)
    seconds = seen.span_s if criterion.metric == OVER_RUN else HALF_HOUR
    low, high = seen.begin(failing / num_devices) * seconds, seen.end(passing) * seconds
    limit = criterion.at_most or 0.0
    change, length = 100 * seen.value * seconds, "over the run"
    if criterion.metric != OVER_RUN:
        length = "in half an hour"
    draft = LimitTest(
        criterion=criterion,
        word="pass" if high <= limit else "fail" if low > limit else "open",
        value=seen.value * seconds,
        low=low,
        high=high,
        limit=limit,
        count=seen.num_launches,
        finding=f"{device} grew slower by {change:.2g} % {length}",
        action=COOL,
    ).draft()
    if draft.ruling == "inconclusive":
        draft = replace(draft, action=STOP_OTHER_LOAD)
    return undisturbed(draft, own, inputs)


def _alike(device: str, seen: Slope) -> str:
    return (
        f"the {seen.num_launches} launches on {device} resemble those before them so much that "
        f"they tell no more than {seen.num_independent:.2g} independent ones, and a slope needs "
        f"{LEAST_INDEPENDENT}"
    )


def _unsustained(
    criterion: Criterion,
    device: str,
    cases: Sequence[CaseEvidence],
    inputs: RulingInputs,
    seen: Slope | None,
) -> str:
    """Why a device was not under load for long enough, or nothing."""
    made = {one.case.id: one.num_made for one in cases}
    plan = inputs.plan
    seconds = sustained.load_seconds(
        criterion,
        [one.case for one in cases],
        device,
        protocol=plan.protocol,
        sessions=plan.sessions,
        counted=lambda case: made[case.id],
    )
    wanted = criterion.sustained_seconds or 0.0
    if seconds < wanted:
        return f"{device} was under load for {seconds:.3g} s, which is less than {wanted:g} s"
    if criterion.metric != OVER_RUN and seen is not None and seen.span_s < LEAST_SECONDS:
        return (
            f"the launches on {device} span {seen.span_s:.0f} s, which is less than "
            f"{LEAST_SECONDS:.0f} s"
        )
    return ""


def _series(cases: Sequence[CaseEvidence]) -> list[Series]:
    """Launches of each case and session, by the time at which they ended."""
    series: list[Series] = []
    for evidence in cases:
        for session in range(1, evidence.sessions + 1):
            launches = [
                (datetime.fromisoformat(one.moments[-1]).timestamp(), value)
                for one in evidence.counted
                if one.session == session and (value := one.location(evidence.clock)) is not None
            ]
            times, values = zip(*launches, strict=True) if launches else ((), ())
            series.append(Series(times_s=np.array(times), values=np.array(values)))
    return series
