"""Rulings and the verdict: a pure function of the files in the bundle.

Nothing is accepted by default. Every criterion is applied to every case that it matches and
gives one ruling with a reason and, unless it is a pass, one next action. ACCEPTED needs a
pass from every required ruling; one fail makes REJECTED; anything else is INCONCLUSIVE. The
three functional criteria (completed, correct, repeatable) hold for every planned case, whether
the criteria file names them or not.

One interruption per run is tolerated: the interrupted launch counts as made and is never made
again, because whoever may repeat a slow launch can choose his result. From the second
interruption on, the cases touched are inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from appliance.evidence import CaseEvidence, LaunchEvidence, clock_fault, evidence_fault, gather
from appliance.records import (
    Baselines,
    Case,
    CaseResult,
    Check,
    Checked,
    CheckResult,
    Criteria,
    Criterion,
    LaunchResult,
    Line,
    Peaks,
    Plan,
    Ruling,
    Verdict,
    VerdictWord,
)
from appliance.rulings import Answer, Risks, answer
from appliance.statistics import timing_estimates

ALPHA = 0.01
IMPLIED = (
    Criterion(id="completion", kind="completion", title="Every planned launch completed"),
    Criterion(id="correctness", kind="numeric", title="Every check within its bound"),
    Criterion(id="repeatability", kind="determinism", title="Same inputs, same output"),
)


def requirements(criteria: Criteria) -> tuple[Criterion, ...]:
    """The file's criteria and those functional ones that it leaves out for some case."""
    covered = {
        criterion.kind
        for criterion in criteria.criterion
        if criterion.required and criterion.cases == "*"
    }
    taken = {criterion.id for criterion in criteria.criterion}
    implied = (criterion for criterion in IMPLIED if criterion.kind not in covered)
    return (*criteria.criterion, *(_renamed(criterion, taken) for criterion in implied))


def _renamed(criterion: Criterion, taken: set[str]) -> Criterion:
    """An id of its own, where the file gave this one to something else."""
    name = criterion.id
    while name in taken:
        name = f"implied-{name}"
    return replace(criterion, id=name)


def judge(
    *,
    plan: Plan,
    criteria: Criteria,
    lines: Sequence[Line],
    baselines: Baselines,
    peaks: Peaks,
) -> Verdict:
    """All rulings of a run, and what they come to; the same for the same files, anywhere."""
    del peaks  # no criterion judges a fraction of peak
    found = gather(plan, lines)
    evidence = {
        case.id: replace(
            found[case.id],
            fault=evidence_fault(found[case.id])
            or _decision_fault(plan, criteria, lines, found[case.id]),
        )
        for case in plan.cases
    }
    num_limits = _num_limits(plan, criteria)
    rulings: list[Ruling] = []
    for criterion in requirements(criteria):
        matching = [case for case in plan.cases if _matches(criterion, case)]
        rulings += [
            _ruling(criterion, evidence[case.id], _risks(evidence[case.id], num_limits))
            for case in matching
        ]
        if not matching:
            rulings.append(_unmatched(criterion))
    return Verdict(
        run_id=plan.run_id,
        verdict=_word(rulings),
        scope=_scope(plan, criteria, baselines),
        num_interruptions=max((item.num_interruptions for item in evidence.values()), default=0),
        rulings=tuple(rulings),
        cases=tuple(_case_result(evidence[case.id]) for case in plan.cases),
    )


def look(
    *,
    plan: Plan,
    criteria: Criteria,
    lines: Sequence[Line],
    baselines: Baselines,
    peaks: Peaks,
    case: str,
) -> tuple[bool, str]:
    """Whether a case is decided by the launches so far, so that the rest need not be made.

    A fail is final. Where performance is judged, so is a performance ruling on every criterion,
    at a planned look only: who looks more often finds a pass by chance. Where it is not judged,
    all launches are made, for their timing is reported.
    """
    del baselines, peaks  # no criterion compares with them
    return _look(plan, criteria, gather(plan, lines)[case])


def _look(plan: Plan, criteria: Criteria, evidence: CaseEvidence) -> tuple[bool, str]:
    risks = _risks(evidence, _num_limits(plan, criteria))
    functional: list[Answer] = []
    performance: list[Answer] = []
    for criterion in requirements(criteria):
        if criterion.required and _matches(criterion, evidence.case):
            kind = performance if criterion.kind == "perf" else functional
            kind.append(answer(criterion, evidence, risks))
    num_made = sum(launch.ended is not None and not launch.is_decided for launch in evidence.timed)
    is_planned = num_made in evidence.looks
    for found in (*functional, *(performance if is_planned else ())):
        if found.ruling == "fail":
            return True, f"decided: {found.explanation}"
    if not performance:
        return False, "nothing has failed; performance is reported, not judged"
    if not is_planned:
        return False, f"open: no look is planned after {num_made} launches"
    for found in performance:
        if found.ruling != "pass":
            return False, f"open: {found.explanation}"
    return True, "decided: within every limit"


def _decision_fault(
    plan: Plan, criteria: Criteria, lines: Sequence[Line], evidence: CaseEvidence
) -> str:
    """Launches left out as decided, where no look had decided the case, or nothing."""
    if not any(launch.is_decided for launch in evidence.launches):
        return ""
    if evidence.decided_at is None:
        return "launches were left out, but no look had decided the case"
    before = gather(plan, lines[: evidence.decided_at])[evidence.case.id]
    is_decided, reason = _look(plan, criteria, before)
    return "" if is_decided else f"launches were left out, but the look says: {reason}"


def _num_limits(plan: Plan, criteria: Criteria) -> int:
    """Performance limits that may each reject this run by chance."""
    limits = [item for item in criteria.criterion if item.kind == "perf" and item.required]
    return sum(_matches(item, case) for item in limits for case in plan.cases)


def _risks(evidence: CaseEvidence, num_limits: int) -> Risks:
    passing = ALPHA / len(evidence.looks)
    return Risks(passing=passing, failing=passing / max(1, num_limits))


# ------------------------------------------------------------------ rulings


def _matches(criterion: Criterion, case: Case) -> bool:
    return fnmatchcase(case.id, criterion.cases) or fnmatchcase(
        case.id.partition("@")[0], criterion.cases
    )


def _ruling(criterion: Criterion, evidence: CaseEvidence, risks: Risks) -> Ruling:
    found = answer(criterion, evidence, risks)
    return Ruling(
        criterion=criterion.id,
        case=evidence.case.id,
        required=criterion.required,
        ruling=found.ruling,
        reason=found.reason,
        explanation=found.explanation,
        action=found.action,
    )


def _unmatched(criterion: Criterion) -> Ruling:
    return Ruling(
        criterion=criterion.id,
        case="",
        required=criterion.required,
        ruling="inconclusive",
        reason="coverage",
        explanation=f'no planned case matches "{criterion.cases}"',
        action="Plan a suite that has such a case, or correct the pattern in the criteria file.",
    )


# ------------------------------------------------------------------ what it comes to


def _word(rulings: Sequence[Ruling]) -> VerdictWord:
    required = [ruling.ruling for ruling in rulings if ruling.required]
    if "fail" in required:
        return "REJECTED"
    if required and all(ruling == "pass" for ruling in required):
        return "ACCEPTED"
    return "INCONCLUSIVE"


def _scope(plan: Plan, criteria: Criteria, baselines: Baselines) -> str:
    limits = [item for item in criteria.criterion if item.kind == "perf" and item.required]
    num_limited = sum(any(_matches(item, case) for item in limits) for case in plan.cases)
    num_small = sum(case.small for case in plan.cases)
    words = ["Judged: whether every planned case completed, was correct and repeatable"]
    if num_limited:
        words.append(
            f", and whether {num_limited} of {len(plan.cases)} cases met the limits "
            "of the criteria."
        )
    else:
        words.append(
            ". Performance was measured and is reported, but not judged: the criteria set no limit"
            + ("." if baselines.baseline else " and there is no baseline for this device.")
        )
    if num_small:
        words.append(f" {num_small} of {len(plan.cases)} cases are of reduced size.")
    return "".join(words)


def _case_result(evidence: CaseEvidence) -> CaseResult:
    withheld = _withheld(evidence)
    shown = [] if withheld else evidence.timed
    values = [launch.statistic for launch in shown if launch.statistic is not None]
    first_steps = [launch.started.first_step_ns * 1e-9 for launch in shown if launch.started]
    return CaseResult(
        case=evidence.case.id,
        num_planned=len(evidence.launches),
        num_completed=sum(launch.is_completed for launch in evidence.launches),
        num_decided=sum(launch.is_decided for launch in evidence.launches),
        launches=tuple(
            _launch_result(launch, is_shown=not withheld) for launch in evidence.launches
        ),
        checks=_check_results(evidence.checks),
        estimates=timing_estimates(values, first_steps, evidence.case.work),
        withheld=withheld,
    )


def _withheld(evidence: CaseEvidence) -> str:
    """Why no timing of this case may be shown, or nothing."""
    outside = [checked.check.name for checked in evidence.checks if not checked.check.is_within]
    if outside:
        return f'no timing is shown: the check "{outside[0]}" is not within its bound'
    if not evidence.checks:
        return "no timing is shown: nothing was checked"
    fault = clock_fault(evidence)
    return f"no timing is shown: {fault}" if fault else ""


def _launch_result(launch: LaunchEvidence, *, is_shown: bool) -> LaunchResult:
    first_step = launch.started if is_shown else None
    return LaunchResult(
        launch=launch.id,
        outcome=launch.ended.outcome if launch.ended else "not_run",
        reason=launch.ended.reason if launch.ended else "no end is recorded",
        mode=launch.mode,
        num_steps=sum(len(block.wall_ns) for block in launch.blocks),
        log_seconds=launch.statistic if is_shown else None,
        first_step_seconds=None if first_step is None else first_step.first_step_ns * 1e-9,
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
