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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from appliance.plan import case_looks
from appliance.records import (
    Artifact,
    Baselines,
    Block,
    Case,
    CaseResult,
    Check,
    Checked,
    CheckResult,
    Criteria,
    Criterion,
    LaunchEnded,
    LaunchMode,
    LaunchResult,
    LaunchStarted,
    Line,
    Peaks,
    Plan,
    Reason,
    Ruling,
    RulingWord,
    RunResumed,
    Started,
    Verdict,
    VerdictWord,
)
from appliance.statistics import launch_statistic, risk_below, timing_estimates

ALPHA = 0.01
TOLERATED_INTERRUPTIONS = 1
BLOCK_SLACK = 1.005  # the sum of a block's steps may exceed its own wall time by clock error only
IMPLIED = (
    Criterion(id="completion", kind="completion", title="Every planned launch completed"),
    Criterion(id="correctness", kind="numeric", title="Every check within its bound"),
    Criterion(id="repeatability", kind="determinism", title="Same inputs, same output"),
)


@dataclass
class _Launch:
    """What the journal tells of one launch; of a repeated untimed one, all of it."""

    id: str
    number: int
    mode: LaunchMode | None = None
    ended: LaunchEnded | None = None
    started: Started | None = None
    blocks: list[Block] = field(default_factory=list)
    checks: list[Checked] = field(default_factory=list)
    artifacts: dict[str, set[str]] = field(default_factory=dict)

    @property
    def is_completed(self) -> bool:
        return self.ended is not None and self.ended.outcome == "completed"


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """All that one case has shown, and how often the run was interrupted."""

    case: Case
    launches: tuple[_Launch, ...]
    num_interruptions: int

    @property
    def checks(self) -> list[Checked]:
        return [checked for launch in self.launches for checked in launch.checks]

    @property
    def timed(self) -> list[_Launch]:
        return [launch for launch in self.launches if launch.number > 0]


@dataclass(frozen=True, kw_only=True)
class _Answer:
    ruling: RulingWord
    reason: Reason = ""
    explanation: str = ""
    action: str = ""


def requirements(criteria: Criteria) -> tuple[Criterion, ...]:
    """The file's criteria and those functional ones that it leaves out for some case."""
    covered = {
        criterion.kind
        for criterion in criteria.criterion
        if criterion.required and criterion.cases == "*"
    }
    implied = tuple(criterion for criterion in IMPLIED if criterion.kind not in covered)
    return (*criteria.criterion, *implied)


def judge(
    *,
    plan: Plan,
    criteria: Criteria,
    lines: Sequence[Line],
    baselines: Baselines,
    peaks: Peaks,
) -> Verdict:
    """All rulings of a run, and what they come to; the same for the same files, anywhere."""
    del baselines, peaks  # nothing is judged against them unless a criterion says so; none does yet
    evidence = _evidence(plan, lines)
    rulings: list[Ruling] = []
    for criterion in requirements(criteria):
        matching = [case for case in plan.cases if _matches(criterion, case)]
        rulings += [_ruling(criterion, evidence[case.id], plan) for case in matching]
        if not matching:
            rulings.append(_unmatched(criterion))
    return Verdict(
        run_id=plan.run_id,
        verdict=_word(rulings),
        scope=_scope(criteria, evidence.values()),
        num_interruptions=_num_interruptions(lines),
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

    A fail is final. Where performance is judged, so is a performance ruling on every criterion.
    Where it is not, all launches are made, for their timing is reported.
    """
    del baselines, peaks
    found = _evidence(plan, lines)[case]
    fails, open_performance, judged = [], [], 0
    for criterion in requirements(criteria):
        if criterion.required and _matches(criterion, found.case):
            answer = _answer(criterion, found, plan)
            judged += criterion.kind == "perf"
            if answer.ruling == "fail":
                fails.append(answer.explanation)
            elif criterion.kind == "perf" and answer.ruling != "pass":
                open_performance.append(answer.explanation)
    if fails:
        return True, f"decided: {fails[0]}"
    if open_performance:
        return False, f"open: {open_performance[0]}"
    if judged:
        return True, "decided: within every limit"
    return False, "nothing has failed; performance is reported, not judged"


# ------------------------------------------------------------------ evidence


def _evidence(plan: Plan, lines: Sequence[Line]) -> dict[str, _Evidence]:
    launches = {launch.id: _Launch(launch.id, launch.number) for launch in plan.launches}
    for line in lines:
        event = line.event
        name = getattr(event, "launch", None)
        if isinstance(name, str) and name in launches:
            _take(launches[name], event)
    return {
        case.id: _Evidence(
            case=case,
            launches=tuple(launches[item.id] for item in plan.launches if item.case == case.id),
            num_interruptions=_num_interruptions(lines),
        )
        for case in plan.cases
    }


def _take(launch: _Launch, event: object) -> None:
    match event:
        case LaunchStarted():
            launch.mode = event.mode
            launch.ended = None  # an untimed launch is made again after an interruption
        case LaunchEnded():
            launch.ended = event
        case Started():
            launch.started = event
        case Block():
            launch.blocks.append(event)
        case Checked():
            launch.checks.append(event)
        case Artifact():
            launch.artifacts.setdefault(event.name, set()).add(event.sha256)
        case _:
            pass


def _num_interruptions(lines: Sequence[Line]) -> int:
    return sum(isinstance(line.event, RunResumed) for line in lines)


# ------------------------------------------------------------------ rulings


def _matches(criterion: Criterion, case: Case) -> bool:
    return fnmatchcase(case.id, criterion.cases) or fnmatchcase(
        case.id.partition("@")[0], criterion.cases
    )


def _ruling(criterion: Criterion, evidence: _Evidence, plan: Plan) -> Ruling:
    answer = _answer(criterion, evidence, plan)
    return Ruling(
        criterion=criterion.id,
        case=evidence.case.id,
        required=criterion.required,
        ruling=answer.ruling,
        reason=answer.reason,
        explanation=answer.explanation,
        action=answer.action,
    )


def _answer(criterion: Criterion, evidence: _Evidence, plan: Plan) -> _Answer:
    if criterion.kind == "completion":
        return _completion(evidence)
    if criterion.kind == "numeric":
        return _numeric(evidence)
    if criterion.kind == "determinism":
        return _determinism(evidence)
    return _performance(criterion, evidence, plan)


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


def _completion(evidence: _Evidence) -> _Answer:
    case = evidence.case
    if case.unsupported:
        return _Answer(
            ruling="inconclusive",
            reason="unsupported",
            explanation=f"cannot run here: {case.unsupported}",
            action="Provide what is missing, or agree on a suite without this case.",
        )
    for launch in evidence.launches:
        ended = launch.ended
        if ended is not None and ended.outcome in ("crashed", "timed_out"):
            what = "crashed" if ended.outcome == "crashed" else "did not end in time"
            return _Answer(
                ruling="fail",
                reason="crashed" if ended.outcome == "crashed" else "timed_out",
                explanation=f"launch {launch.id} {what}: {ended.reason}"
                + (f" ({ended.detail})" if ended.detail else ""),
                action=f"Read logs/ of {launch.id}; mend the device or its software, run again.",
            )
    return _clock_fault(evidence) or _incomplete(evidence) or _Answer(ruling="pass")


def _clock_fault(evidence: _Evidence) -> _Answer | None:
    """Times that no clock can give: not positive, or longer than the block that holds them."""
    for launch in evidence.timed:
        for block in launch.blocks:
            times = block.wall_ns if block.event_ns is None else (*block.wall_ns, *block.event_ns)
            if times and min(times) <= 0:
                fault = "has a step time that is not positive"
            elif sum(block.wall_ns) > block.block_wall_ns * BLOCK_SLACK:
                fault = "has steps that take longer than the block that holds them"
            else:
                continue
            return _Answer(
                ruling="fail",
                reason="clock",
                explanation=f"launch {launch.id}, block {block.index} {fault}",
                action="Find out what disturbs the clock of this node; run again.",
            )
    return None


def _incomplete(evidence: _Evidence) -> _Answer | None:
    """Launches that are not there, where one interruption is forgiven and decided ones are."""
    tolerates = evidence.num_interruptions <= TOLERATED_INTERRUPTIONS
    for launch in evidence.launches:
        ended = launch.ended
        if launch.is_completed:
            if launch.number > 0 and not any(block.wall_ns for block in launch.blocks):
                return _missing(f"launch {launch.id} completed without one timed step")
        elif ended is None:
            return _missing(f"launch {launch.id} was not made or has no end")
        elif ended.outcome == "interrupted":
            if not tolerates or not any(other.is_completed for other in evidence.timed):
                return _Answer(
                    ruling="inconclusive",
                    reason="interrupted",
                    explanation=f"launch {launch.id} was interrupted and is not made again",
                    action="Start a new run and let it finish.",
                )
        elif not (ended.outcome == "not_run" and ended.reason == "decided"):
            return _Answer(
                ruling="inconclusive",
                reason="not_run" if ended.outcome == "not_run" else "unsupported",
                explanation=f"launch {launch.id}: {ended.reason}"
                + (f" ({ended.detail})" if ended.detail else ""),
                action="Correct the parameters or provide what is missing, and run again.",
            )
    return None


def _missing(explanation: str) -> _Answer:
    return _Answer(
        ruling="inconclusive",
        reason="evidence_missing",
        explanation=explanation,
        action="Resume the run, or start a new one and let it finish.",
    )


def _numeric(evidence: _Evidence) -> _Answer:
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
        if launch.is_completed and not _has_phase(launch, "first"):
            return _uncovered(f"launch {launch.id} yielded no check of its first output")
    if not any(launch.is_completed for launch in evidence.launches):
        return _uncovered("no launch completed, so no output was checked")
    if evidence.case.is_timed:
        checked = [launch for launch in evidence.timed if _has_phase(launch, "last")]
        must_all = evidence.case.checked_launch is None or evidence.case.steps is not None
        completed = [launch for launch in evidence.timed if launch.is_completed]
        if not checked or (must_all and any(launch not in checked for launch in completed)):
            return _uncovered("the last timed output was not checked")
    return _Answer(ruling="pass")


def _has_phase(launch: _Launch, phase: str) -> bool:
    return any(checked.phase == phase for checked in launch.checks)


def _uncovered(explanation: str) -> _Answer:
    return _Answer(
        ruling="inconclusive",
        reason="coverage",
        explanation=explanation,
        action="Run the case again; without a check nothing is accepted.",
    )


def _failed_check(checked: Checked) -> _Answer:
    check = checked.check
    return _Answer(
        ruling="fail",
        reason="check",
        explanation=f"launch {checked.launch}, {checked.phase} output: {check.name}: "
        f"error {check.error:.3g}, bound {check.bound:.3g}",
        action="Repeat the case on this device and on another of the same model; "
        "if only this one differs, replace it.",
    )


def _mixed_artifact(evidence: _Evidence) -> str:
    """A reference that some launch read in another form than the untimed launch made it."""
    made = evidence.launches[0].artifacts if evidence.launches else {}
    for launch in evidence.timed:
        for name, digests in launch.artifacts.items():
            if not digests <= made.get(name, set()):
                return f"launch {launch.id} read another {name} than the untimed launch made"
    return ""


def _determinism(evidence: _Evidence) -> _Answer:
    found = [checked for checked in evidence.checks if checked.phase == "repeatability"]
    if not found:
        return _uncovered("no output was made twice to be compared")
    outside = [checked for checked in found if not checked.check.is_within]
    return _failed_check(outside[0]) if outside else _Answer(ruling="pass")


def _performance(criterion: Criterion, evidence: _Evidence, plan: Plan) -> _Answer:
    """Two one-sided t-tests at the frozen limit, each at ALPHA shared over the looks."""
    correct = _numeric(evidence)
    if correct.ruling != "pass":
        return _uncovered("no timing is judged while a check is missing or has failed")
    if evidence.num_interruptions > TOLERATED_INTERRUPTIONS and any(
        launch.ended is not None and launch.ended.outcome == "interrupted"
        for launch in evidence.timed
    ):
        return _Answer(
            ruling="inconclusive",
            reason="interrupted",
            explanation="the run was interrupted more than once while this case ran",
            action="Start a new run and let it finish.",
        )
    limit = _log_limit(criterion, evidence.case)
    if limit is None:
        return _uncovered(f"{criterion.metric} is not counted for this workload")
    values = [value for value in map(_statistic, evidence.timed) if value is not None]
    alpha = ALPHA / len(case_looks(plan, evidence.case))
    if risk_below(values, limit) <= alpha:
        return _Answer(ruling="pass")
    if risk_below([-value for value in values], -limit) <= alpha:
        return _Answer(
            ruling="fail",
            reason="over_limit",
            explanation=f"{criterion.title}: slower than the limit, at a risk of {ALPHA:.0%}",
            action="Find what slows this device (clocks, power, neighbours) or replace it.",
        )
    return _Answer(
        ruling="inconclusive",
        reason="noise",
        explanation=f"{criterion.title}: {len(values)} launches cannot tell it from the limit",
        action="Quieten the node and run again, or agree on a wider limit.",
    )


def _log_limit(criterion: Criterion, case: Case) -> float | None:
    """The limit as ln(seconds of a step); rates are work over time."""
    if criterion.metric == "step_seconds":
        return None if criterion.at_most is None else math.log(criterion.at_most)
    amounts: Mapping[str, float | None] = {
        "units_per_second": case.work.units,
        "flops_per_second": case.work.flops,
        "bytes_per_second": case.work.bytes,
    }
    amount = amounts.get(criterion.metric)
    if amount is None or criterion.at_least is None:
        return None
    return math.log(amount / criterion.at_least)


# ------------------------------------------------------------------ what it comes to


def _word(rulings: Sequence[Ruling]) -> VerdictWord:
    required = [ruling.ruling for ruling in rulings if ruling.required]
    if "fail" in required:
        return "REJECTED"
    if required and all(ruling == "pass" for ruling in required):
        return "ACCEPTED"
    return "INCONCLUSIVE"


def _scope(criteria: Criteria, evidence: Iterable[_Evidence]) -> str:
    judged = any(criterion.kind == "perf" for criterion in criteria.criterion)
    num_small = sum(found.case.small for found in evidence)
    words = ["Judged: every planned case completed, was correct and repeatable"]
    words.append(
        ", and met the limits of the criteria file."
        if judged
        else ". Performance was measured and is reported, but not judged: "
        "the criteria set no limit and there is no baseline for this device."
    )
    if num_small:
        words.append(f" {num_small} cases ran at reduced size.")
    return "".join(words)


def _statistic(launch: _Launch) -> float | None:
    """A launch's statistic; an interrupted launch counts with the blocks that it had finished."""
    is_cut = launch.ended is not None and launch.ended.outcome == "interrupted"
    return launch_statistic(launch.blocks) if launch.is_completed or is_cut else None


def _case_result(evidence: _Evidence) -> CaseResult:
    launches = tuple(_launch_result(launch) for launch in evidence.launches)
    outside = [checked for checked in evidence.checks if not checked.check.is_within]
    values = [value for value in map(_statistic, evidence.timed) if value is not None]
    first_steps = [
        launch.started.first_step_ns * 1e-9 for launch in evidence.timed if launch.started
    ]
    withheld = ""
    if outside:
        withheld = (
            f'no timing is shown: the check "{outside[0].check.name}" is not within its bound'
        )
    elif not evidence.checks:
        withheld = "no timing is shown: nothing was checked"
    return CaseResult(
        case=evidence.case.id,
        num_planned=len(evidence.launches),
        num_completed=sum(launch.is_completed for launch in evidence.launches),
        num_decided=sum(
            launch.ended is not None
            and (launch.ended.outcome, launch.ended.reason) == ("not_run", "decided")
            for launch in evidence.launches
        ),
        launches=launches,
        checks=_check_results(evidence.checks),
        estimates=() if withheld else timing_estimates(values, first_steps, evidence.case.work),
        withheld=withheld,
    )


def _launch_result(launch: _Launch) -> LaunchResult:
    return LaunchResult(
        launch=launch.id,
        outcome=launch.ended.outcome if launch.ended else "not_run",
        reason=launch.ended.reason if launch.ended else "no end is recorded",
        mode=launch.mode,
        num_steps=sum(len(block.wall_ns) for block in launch.blocks),
        log_seconds=launch_statistic(launch.blocks),
        first_step_seconds=launch.started.first_step_ns * 1e-9 if launch.started else None,
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
