"""Rulings: one criterion, applied to all that one case has shown, and the reason of the answer.

Functional criteria first: a launch that crashed or did not end, a clock that cannot be right
or a check outside its bound fails; whatever is missing is inconclusive. Performance is judged
only for outputs that were right, by two one-sided t-tests at the same limit, so that noise
earns neither a pass nor a fail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.evidence import CaseEvidence, LaunchEvidence, clock_fault
from appliance.records import Case, Checked, Criterion, LaunchEnded, Reason, RulingWord
from appliance.statistics import risk_below

TOLERATED_INTERRUPTIONS = 1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A ruling without its criterion and case."""

    ruling: RulingWord
    reason: Reason = ""
    explanation: str = ""
    action: str = ""


@dataclass(frozen=True, kw_only=True)
class Risks:
    """The risk of a wrong pass and of a wrong fail that one look at one limit may take.

    Passing needs every limit, so each may take the whole risk; failing needs only one, so the
    limits of the run share it (Bonferroni, as do the looks).
    """

    passing: float
    failing: float


def answer(criterion: Criterion, evidence: CaseEvidence, risks: Risks) -> Answer:
    """The ruling that a criterion comes to for one case."""
    if criterion.kind == "completion":
        return _completion(evidence)
    if criterion.kind == "numeric":
        return _numeric(evidence)
    if criterion.kind == "determinism":
        return _determinism(evidence)
    return _performance(criterion, evidence, risks)


def _completion(evidence: CaseEvidence) -> Answer:
    case = evidence.case
    failed = _failed_launch(evidence)
    if failed is not None:
        return failed
    if case.unsupported:
        return Answer(
            ruling="inconclusive",
            reason="unsupported",
            explanation=f"cannot run here: {case.unsupported}",
            action="Provide what is missing, or agree on a suite without this case.",
        )
    clock = clock_fault(evidence)
    if clock:
        return Answer(
            ruling="fail",
            reason="clock",
            explanation=clock,
            action="Find out what disturbs the clock of this node; run again.",
        )
    return _incomplete(evidence) or Answer(ruling="pass")


def _failed_launch(evidence: CaseEvidence) -> Answer | None:
    """The first launch that crashed or did not end; one made again is not forgotten."""
    for ended in (ended for launch in evidence.launches for ended in launch.ends):
        if ended.outcome in ("crashed", "timed_out") and ended.reason != "bad_parameters":
            has_crashed = ended.outcome == "crashed"
            return Answer(
                ruling="fail",
                reason="crashed" if has_crashed else "timed_out",
                explanation=f"launch {ended.launch} "
                f"{'crashed' if has_crashed else 'did not end in time'}: {_why(ended)}",
                action=f"Read logs/ of {ended.launch}; mend the device or its software, run again.",
            )
    return None


def _why(ended: LaunchEnded) -> str:
    return ended.reason + (f" ({ended.detail})" if ended.detail else "")


def _incomplete(evidence: CaseEvidence) -> Answer | None:
    """Launches that are not there, where one interruption is forgiven and decided ones are."""
    for launch in evidence.launches:
        ended = launch.ended
        if ended is None:
            return _missing(f"launch {launch.id} was not made or has no end")
        if ended.outcome == "interrupted" and not _is_forgiven(launch, evidence):
            return Answer(
                ruling="inconclusive",
                reason="interrupted",
                explanation=f"launch {launch.id} was interrupted and is not made again",
                action="Start a new run and let it finish.",
            )
        if ended.outcome not in ("completed", "interrupted") and not launch.is_decided:
            return Answer(
                ruling="inconclusive",
                reason="not_run" if ended.outcome == "not_run" else "unsupported",
                explanation=f"launch {launch.id}: {_why(ended)}",
                action="Correct the parameters or provide what is missing, and run again.",
            )
    return _missing(evidence.fault) if evidence.fault else None


def _is_forgiven(launch: LaunchEvidence, evidence: CaseEvidence) -> bool:
    """One interruption of a run is, in a timed launch of a case that completed another one."""
    return (
        launch.number > 0
        and evidence.num_interruptions <= TOLERATED_INTERRUPTIONS
        and any(other.is_completed for other in evidence.timed)
    )


def _missing(explanation: str) -> Answer:
    return Answer(
        ruling="inconclusive",
        reason="evidence_missing",
        explanation=explanation,
        action="Resume the run, or start a new one and let it finish.",
    )


def _numeric(evidence: CaseEvidence) -> Answer:
    outside = [
        item
        for item in evidence.checks
        if item.phase != "repeatability" and not item.check.is_within
    ]
    if outside:
        return _failed_check(outside[0])
    mixed = _mixed_artifact(evidence)
    if mixed:
        return _missing(mixed)
    for launch in evidence.launches:
        if launch.is_completed and not launch.has_phase("first"):
            return _uncovered(f"launch {launch.id} yielded no check of its first output")
    if not any(launch.is_completed for launch in evidence.launches):
        return _uncovered("no launch completed, so no output was checked")
    unchecked = _unchecked_last(evidence)
    return _uncovered(unchecked) if unchecked else Answer(ruling="pass")


def _unchecked_last(evidence: CaseEvidence) -> str:
    """The launch whose last output should have been checked and was not, or nothing.

    A case with a number of steps checks its last output in every launch. Else it is the drawn
    launch that counts, or a later one if that was interrupted.
    """
    case = evidence.case
    if not case.is_timed and case.steps is None:
        return ""
    made = evidence.timed if case.is_timed else evidence.launches
    owing = [launch for launch in made if launch.is_completed]
    if case.steps is None and case.checked_launch is not None:
        drawn = [launch for launch in owing if launch.number == case.checked_launch]
        later = [launch for launch in owing if launch.number > case.checked_launch]
        owing = drawn or [launch for launch in later if launch.has_phase("last")]
    if not owing:
        return "no launch completed with a check of its last output"
    missing = [launch.id for launch in owing if not launch.has_phase("last")]
    return f"launch {missing[0]} yielded no check of its last output" if missing else ""


def _uncovered(explanation: str) -> Answer:
    return Answer(
        ruling="inconclusive",
        reason="coverage",
        explanation=explanation,
        action="Run the case again; without a check nothing is accepted.",
    )


def _failed_check(checked: Checked) -> Answer:
    check = checked.check
    return Answer(
        ruling="fail",
        reason="check",
        explanation=f"launch {checked.launch}, {checked.phase} output: {check.name}: "
        f"error {check.error:.3g}, bound {check.bound:.3g}",
        action="Repeat the case on this device and on another of the same model; "
        "if only this one differs, replace it.",
    )


def _mixed_artifact(evidence: CaseEvidence) -> str:
    """A reference that some launch read in another form than the untimed launch made it."""
    made = evidence.launches[0].artifacts if evidence.launches else {}
    for launch in evidence.timed:
        for name, digests in launch.artifacts.items():
            if not digests <= made.get(name, set()):
                return f"launch {launch.id} read another {name} than the untimed launch made"
    return ""


def _determinism(evidence: CaseEvidence) -> Answer:
    found = [checked for checked in evidence.checks if checked.phase == "repeatability"]
    if not found:
        return _uncovered("no output was made twice to be compared")
    outside = [checked for checked in found if not checked.check.is_within]
    return _failed_check(outside[0]) if outside else Answer(ruling="pass")


def _performance(criterion: Criterion, evidence: CaseEvidence, risks: Risks) -> Answer:
    unjudged = _unjudged(evidence)
    if unjudged is not None:
        return unjudged
    limit = _log_limit(criterion, evidence.case)
    if limit is None or not evidence.case.is_timed:
        return _uncovered(f"{criterion.metric} is not counted for this workload")
    values = [launch.statistic for launch in evidence.timed if launch.statistic is not None]
    if risk_below(values, limit) <= risks.passing:
        return Answer(ruling="pass")
    if risk_below([-value for value in values], -limit) <= risks.failing:
        return Answer(
            ruling="fail",
            reason="over_limit",
            explanation=f"{criterion.title}: slower than the limit, "
            f"at a risk of {risks.failing:.2g} that it is not",
            action="Find what slows this device (clocks, power, neighbours) or replace it.",
        )
    return _noise(criterion, values)


def _unjudged(evidence: CaseEvidence) -> Answer | None:
    """Why the times of this case are not judged at all."""
    if _numeric(evidence).ruling != "pass":
        return _uncovered("no timing is judged while a check is missing or has failed")
    fault = evidence.fault or clock_fault(evidence)
    if fault:
        return _missing(f"no timing is judged: {fault}")
    if evidence.num_interruptions > TOLERATED_INTERRUPTIONS and evidence.was_touched:
        return Answer(
            ruling="inconclusive",
            reason="interrupted",
            explanation="the run was interrupted more than once, and in a launch of this case",
            action="Start a new run and let it finish.",
        )
    return None


def _noise(criterion: Criterion, values: Sequence[float]) -> Answer:
    if len(values) > 1 and len(set(values)) == 1:
        return Answer(
            ruling="inconclusive",
            reason="clock",
            explanation=f"all {len(values)} launches took the same time to the last digit",
            action="Find out what disturbs the clock of this node; run again.",
        )
    return Answer(
        ruling="inconclusive",
        reason="noise",
        explanation=f"{criterion.title}: {len(values)} launches cannot tell it from the limit",
        action="Quieten the node and run again, or agree on a wider limit.",
    )


def _log_limit(criterion: Criterion, case: Case) -> float | None:
    """The limit as ln(seconds of a step), rates being work over time; None if there is none."""
    work = case.work
    amounts: Mapping[str, float | None] = {
        "units_per_second": work.units,
        "flops_per_second": work.flops,
        "bytes_per_second": work.bytes,
    }
    is_time = criterion.metric == "step_seconds"
    above = criterion.at_most if is_time else amounts.get(criterion.metric)
    below = 1.0 if is_time else criterion.at_least
    if above is None or below is None:
        return None
    if not (0.0 < above < math.inf and 0.0 < below < math.inf):
        return None
    return math.log(above) - math.log(below)
