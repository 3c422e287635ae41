"""Rulings on what happened: completion, integrity, checks, health, inventory.

A launch that crashed or did not end, a clock that cannot be right, a rate above what the device
can do or a check outside its bound fails; whatever is missing is inconclusive, so that nothing
is accepted by default. Rulings on times are in performance.py and location.py, on repeats in
repeatability.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.evidence import device_health, hidden_links
from appliance.evidence.baseline_key import peak_for
from appliance.evidence.case_results import log_seconds
from appliance.evidence.determinism import unlisted
from appliance.evidence.disturbance import disturbance
from appliance.evidence.float32_products import other_products, unread_products
from appliance.evidence.launches import (
    CaseEvidence,
    LaunchEvidence,
    clock_doubt,
    clock_fault,
    device_clock_fault,
    lost_steps,
)
from appliance.evidence.qualification import find
from appliance.judging.criteria_check import PEAK_SLACK
from appliance.judging.limits import RulingInputs, amount_of
from appliance.planning.launch_constants import SEGMENTED
from appliance.planning.sessions import NO_TIME, TIME_LIMIT
from appliance.records.criteria import Criterion
from appliance.records.journal import (
    UNJUDGED_FOR_MEMORY,
    Check,
    Checked,
    CheckKind,
    LaunchEnded,
    Stage,
)
from appliance.records.json import Scalar
from appliance.records.plan import Case, Plan
from appliance.records.qualified import ReachedLoad
from appliance.records.system import Fact, System
from appliance.records.verdict import Reason, RulingWord, Statistic
from appliance.records.vocabulary import THROTTLES, metric_value, metric_words
from appliance.stress import kinds
from appliance.stress.aggregates import first_place, is_left

TOLERATED_INTERRUPTIONS = 1
MINUTE, HOUR = 60, 3600
MOST_DEVICES = 4  # that one sentence names
HEALTH_ACTIONS: Mapping[tuple[str, ...], str] = {
    ("power_limit_lowered",): "Find out who set the limit and why, set the part's default, and run "
    "again.",
    ("throttle_share", "throttled_", "lost_clock", "thermal_", "power_", "unused_power"): (
        "Look at cooling, power supply and limits of the node, and run again."
    ),
    ("lost",): "Read the kernel's log, switch the node off and on, and run again; replace the "
    "device if it is lost again.",
    ("ecc_corrected", "rows_remapped_corrected", "pages_retired_corrected", "ras_corrected"): (
        "Run a longer suite: errors that keep coming mean that the device is to be replaced."
    ),
    ("row_remap_pending", "pages_pending"): "Reset the device or start the node again, so that "
    "the memory is replaced, and run again; replace the device if it comes back.",
    ("ecc_", "rows_", "row_", "pages_", "ras_", "resets"): "Replace the device, or run its "
    "vendor's diagnostics and show their result.",
    ("pcie_",): "Reseat the card and its riser, look at the slot's settings, and run again.",
    ("link",): "Reseat the device and its bridge or cables, reset the links, and run again.",
    ("kernel_faults",): "Read the kernel's log (dmesg), follow the vendor's advice for this fault, "
    "and run again.",
}
"""What to do next, by how the name of what showed it begins; the first that fits."""
STAGES: Mapping[Stage, str] = {
    "load": " before its build",
    "build": " in its build",
    "first_step": " in its first step",
}
SETTING = "Take away what changes torch's settings (a variable, a library), and run again."
OTHER_PHASE = "repeated"  # which is ruled on as integrity
CLOCK = "Find out what disturbs the clock of this node; run again."
ALONE = "Keep everything else off this node and its devices, and run again."
MORE_MINUTES = "Run it within more minutes, or without --minutes."
NO_MEMORY = (
    "See who else uses that memory, allow the case more of it (memory_limit_gib in its suite), or "
    "take a smaller size, and run again; replace a device that has less than its part should have."
)
SOFTWARE = (
    "Install what is named there, or the versions of the locks (see `bench doctor`), and run again."
)
POWER, CORES = "power_fraction", "core_use"
OF_HOSTS = frozenset({"cpu"})
"""Vendors of devices whose cores a launch's own threads compute on."""
CORES_AT_LEAST = 0.95
"""Of processors, whose power nobody limits by load, what hot phases use of their cores."""
SPEED_AT_LEAST = 0.95
"""Of the products a second of a plain loop, what those of a burn-in that are proven come to."""
MOST_SLOWED, MOST_LOST_CLOCK = 0.01, 0.05
"""Readings with a reason to slow down, and clock below the highest, of a device that is free."""
WITH_LOOP = "Run segments of a minute or longer, each with a plain loop that is read."
HELD = "Find out what limits its clock, cool it, or agree on a load with a criterion of one's own."
NOT_BURNT = "no case of the plan is a burn-in"
RECORD = (
    "Nothing for this device; with a qualified record of the burn-in on this model "
    "(`bench qualify`) its load is judged."
)
RATES = ("flops_per_second", "bytes_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingDraft:
    """A ruling without its criterion and case."""

    ruling: RulingWord
    reason: Reason = ""
    explanation: str = ""
    action: str = ""
    statistic: Statistic | None = None


def inconclusive(reason: Reason, explanation: str, action: str) -> RulingDraft:
    """What is neither a pass nor a fail, why, and what to do next."""
    return RulingDraft(ruling="inconclusive", reason=reason, explanation=explanation, action=action)


def functional(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The ruling of a criterion that is not about times, for one case."""
    if criterion.kind == "completion":
        return _completion(evidence, inputs)
    draft = _by_kind(criterion, evidence, inputs)
    has_none = not any(launch.is_completed for launch in evidence.all_launches)
    if draft.ruling == "inconclusive" and draft.reason == "coverage" and has_none:
        cause = _completion(evidence, inputs)
        return cause if cause.reason in ("software", "unsupported", "time_limit") else draft
    return draft


def _by_kind(criterion: Criterion, evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The same of what its launches gave, whatever kept them from giving anything."""
    match criterion.kind:
        case "integrity":
            return _integrity(evidence, inputs)
        case "numeric":
            return numeric(evidence)
        case "exact" | "trajectory" | "collective":
            return _of_kind(criterion.kind, evidence)
        case "health" if criterion.metric == POWER:
            return load(criterion, [evidence], inputs)
        case "health":
            return health(criterion, [evidence], inputs, "interim")
        case _:
            raise AssertionError(criterion.kind)


# ------------------------------------------------------------------ completion


def _completion(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    case = evidence.case
    failed = _failed_launch(evidence.launches) or _failed_repeat(evidence, inputs)
    if failed is not None:
        return failed
    if case.unsupported:
        return RulingDraft(
            ruling="inconclusive",
            reason="unsupported",
            explanation=f"cannot run here: {case.unsupported}",
            action="Provide what is missing, or agree on a suite without this case.",
        )
    return _incomplete(evidence, inputs) or RulingDraft(ruling="pass")


def _failed_repeat(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft | None:
    """The same of the deterministic phase; whose fault it is, only a record of this stack shows."""
    failed = _failed_launch(evidence.repeats)
    if failed is None:
        return None
    record, why = find(inputs.qualified, evidence.case, inputs.system)
    if record is not None:
        return failed
    return replace(
        failed,
        ruling="inconclusive",
        explanation=f"{failed.explanation}, in the deterministic phase; {why}, so nothing shows "
        "that the phase can be run here",
    )


def _failed_launch(launches: Sequence[LaunchEvidence]) -> RulingDraft | None:
    """The first launch that crashed or did not end; one made again is not forgotten."""
    for ended in (ended for launch in launches for ended in launch.ends):
        if ended.outcome in ("crashed", "timed_out") and ended.reason != "bad_parameters":
            has_crashed = ended.outcome == "crashed"
            return RulingDraft(
                ruling="fail",
                reason="crashed" if has_crashed else _lateness(ended),
                explanation=f"launch {ended.launch} "
                f"{'crashed' if has_crashed else 'did not end in time'}: {_why(ended)}",
                action=NO_MEMORY
                if ended.reason == "out_of_memory"
                else f"Read logs/ of {ended.launch}; fix the device or its software, run again.",
            )
    return None


def _lateness(ended: LaunchEnded) -> Reason:
    """A rank that waited in vain for another says so; that is no want of time."""
    return "stalled" if ended.reason == "stalled" else "timed_out"


def _why(ended: LaunchEnded) -> str:
    return ended.reason + (f" ({ended.detail})" if ended.detail else "")


def _incomplete(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft | None:
    """Launches that are not there, where one interruption is forgiven and decided ones are."""
    for launch in _owed(evidence):
        ended = launch.ended
        if ended is None:
            return _missing(f"launch {launch.id} was not made or has no end")
        if ended.outcome == "interrupted" and not _is_forgiven(launch, evidence):
            return RulingDraft(
                ruling="inconclusive",
                reason="interrupted",
                explanation=f"launch {launch.id} was interrupted and is not made again",
                action="Start a new run and let it finish.",
            )
        if ended.outcome == "software":
            return inconclusive(
                "software", f"cannot run: software: {_lack(launch, evidence)}", SOFTWARE
            )
        if (ended.outcome, ended.reason) in (("not_run", TIME_LIMIT), ("not_run", NO_TIME)):
            return _out_of_time(ended, inputs.plan)
        if ended.outcome not in ("completed", "interrupted") and not launch.is_decided:
            return RulingDraft(
                ruling="inconclusive",
                reason="not_run" if ended.outcome == "not_run" else "unsupported",
                explanation=f"launch {launch.id}: {_why(ended)}",
                action="Correct the parameters or provide what is missing, and run again.",
            )
    return _missing(evidence.fault) if evidence.fault else None


def _owed(evidence: CaseEvidence) -> list[LaunchEvidence]:
    """Launches that the case owes: all but those for time that is left, where there was none."""
    return [
        launch
        for launch in evidence.all_launches
        if not (launch.had_no_time and launch.number > evidence.case.num_assured)
    ]


def never_began(evidence: CaseEvidence, plan: Plan) -> RulingDraft | None:
    """What stands against a case for which the minutes of the run left no time, whatever is asked.

    No launch of it began, so each criterion would say in words of its own that nothing is there.
    """
    first, *_ = evidence.launches
    if first.ended is None or not all(launch.had_no_time for launch in evidence.all_launches):
        return None
    return _out_of_time(first.ended, plan)


def _out_of_time(ended: LaunchEnded, plan: Plan) -> RulingDraft:
    """What was not begun, because the suite's time was over or the run's minutes left none."""
    if ended.reason == NO_TIME:
        minutes = 0 if plan.schedule is None else plan.schedule.minutes
        return inconclusive(
            "coverage", f"the {minutes} min of the run left no time for it", MORE_MINUTES
        )
    seconds = plan.time_limit_seconds
    hours = seconds >= 2 * HOUR
    limit = f"{seconds / HOUR:g} h" if hours else f"{seconds / MINUTE:g} min"
    return RulingDraft(
        ruling="inconclusive",
        reason="time_limit",
        explanation=f"time limit of the suite ({limit}) reached before launch {ended.launch} began",
        action="Stop what slows the node down, or plan fewer rows (--minutes), and run again.",
    )


def _lack(launch: LaunchEvidence, evidence: CaseEvidence) -> str:
    """What of the software keeps a launch from being made."""
    ended = launch.ended
    if ended is None or launch.mode is None:
        return evidence.case.software
    stage = STAGES.get(ended.stage, "")
    return f"launch {launch.id} failed{stage}: {_why(ended)}"


def _is_forgiven(launch: LaunchEvidence, evidence: CaseEvidence) -> bool:
    """One interruption of a run is, in a timed launch of a case that completed another one.

    Of a workload whose launches are segments every one is: what it cost is not covered.
    """
    is_segment = evidence.case.workload in SEGMENTED
    return (
        launch.number > 0
        and (is_segment or evidence.num_interruptions <= TOLERATED_INTERRUPTIONS)
        and any(other.is_completed for other in evidence.timed)
    )


def _missing(explanation: str) -> RulingDraft:
    return RulingDraft(
        ruling="inconclusive",
        reason="evidence_missing",
        explanation=explanation,
        action="Resume the run, or start a new one and let it finish.",
    )


def numeric(evidence: CaseEvidence) -> RulingDraft:
    outside = _outside([item for item in evidence.ruled_checks if item.phase != OTHER_PHASE])
    if outside is not None:
        return outside
    mixed = _mixed_artifact(evidence)
    if mixed:
        return _missing(mixed)
    for launch in evidence.launches:
        if launch.is_completed and not launch.has_phase("first", evidence.case.ranks):
            return _uncovered(f"launch {launch.id} yielded no check of its first output")
    if not any(launch.is_completed for launch in evidence.launches):
        return _uncovered("no launch completed, so no output was checked")
    unchecked = _unchecked_last(evidence) or _unchecked_samples(evidence) or _unspread(evidence)
    return _uncovered(unchecked) if unchecked else RulingDraft(ruling="pass")


def _unchecked_last(evidence: CaseEvidence) -> str:
    """The launch whose last output should have been checked and was not, or nothing.

    A case with a number of steps checks its last output in every launch. Else it is the drawn
    launch that counts, or a later one if that was interrupted.
    """
    case = evidence.case
    if not case.is_timed and case.steps is None:
        return ""
    candidates = evidence.timed if case.is_timed else evidence.launches
    owing = [launch for launch in candidates if launch.is_completed]
    if case.steps is None and case.checked_launch is not None:
        drawn = [launch for launch in owing if launch.number == case.checked_launch]
        later = [launch for launch in owing if launch.number > case.checked_launch]
        owing = drawn or [launch for launch in later if launch.has_phase("last", case.ranks)]
    if not owing:
        return "no launch completed with a check of its last output"
    missing = [launch.id for launch in owing if not launch.has_phase("last", case.ranks)]
    return f"launch {missing[0]} yielded no check of its last output" if missing else ""


def _unchecked_samples(evidence: CaseEvidence) -> str:
    """A launch of inference that checked none of its timed outputs but the last, or nothing."""
    case = evidence.case
    if not case.scenario or case.steps is not None:
        return ""
    owing = [launch for launch in evidence.timed if launch.is_completed]
    missing = [launch.id for launch in owing if not launch.has_phase("sampled", case.ranks)]
    return f"launch {missing[0]} checked none of its outputs that were drawn" if missing else ""


def _unspread(evidence: CaseEvidence) -> str:
    """The untimed launch that did not hold its output to the workload's spread, or nothing."""
    launch = evidence.launches[0] if evidence.launches else None
    if evidence.case.is_repeatable or launch is None or not launch.is_completed:
        return ""
    if launch.has_phase("repeatability", evidence.case.ranks):
        return ""
    return f"launch {launch.id} made no output twice to be held to the spread of its workload"


def _uncovered(explanation: str) -> RulingDraft:
    return RulingDraft(
        ruling="inconclusive",
        reason="coverage",
        explanation=explanation,
        action="Run the case again; without a check nothing is accepted.",
    )


def _outside(checks: Sequence[Checked]) -> RulingDraft | None:
    """What those of the checks that are not within their bound come to; None where all are.

    What may be a single transient event is open, but not where it was seen in two launches. Links
    whose partners were gone are open too, however often, and steps that lacked the memory to be
    run again.
    """
    every = [item for item in checks if not item.check.is_within]
    unjudged = [item for item in every if _is_unjudged(item.check)]
    outside = [item for item in every if not (is_left(item.check) or item in unjudged)]
    certain = [item for item in outside if not _may_be_transient(item.check)]
    if certain:
        return _failed_check(certain[0])
    launches = list(dict.fromkeys(item.launch for item in outside))
    if len(launches) > 1:
        failed = _failed_check(outside[0])
        again = f"{failed.explanation}; and again in launch {launches[1]}"
        return replace(failed, explanation=again)
    if outside:
        return inconclusive(
            "transient",
            f"{_described(outside[0])}; it did not happen again",
            "Run the case again for longer: a second event shows that the device is at fault.",
        )
    if unjudged:
        return inconclusive(
            "coverage",
            f"launch {unjudged[0].launch}: the device's memory held a step and not the same step "
            "once more beside what it had left there, so that nothing of its inside was judged",
            "Look at who else uses the device's memory, or take a smaller batch; run again.",
        )
    if every:
        return inconclusive(
            "coverage",
            f"{_described(every[0])}: its partners were gone, and nothing is shown of its links",
            "Look at what became of the other devices; run again.",
        )
    return None


def _may_be_transient(check: Check) -> bool:
    """Whether a mismatch of this check proves nothing, and its error is a finite one."""
    is_number = math.isfinite(check.error) and math.isfinite(check.bound)
    return check.if_outside == "inconclusive" and is_number and check.error > check.bound >= 0


def _is_unjudged(check: Check) -> bool:
    """Whether a check says that a step was not judged for want of memory, which proves nothing."""
    return check.name == UNJUDGED_FOR_MEMORY and _may_be_transient(check)


def _described(checked: Checked) -> str:
    check = checked.check
    return (
        f"launch {checked.launch}, {checked.phase} output: {check.name}: "
        f"error {check.error:.3g}, bound {check.bound:.3g}"
        + (f", {place}" if (place := first_place(check)) else "")
    )


def _failed_check(checked: Checked) -> RulingDraft:
    return RulingDraft(
        ruling="fail",
        reason="check",
        explanation=_described(checked),
        action="Repeat the case on this device and on another of the same model; "
        "if only this one differs, replace it.",
    )


def _mixed_artifact(evidence: CaseEvidence) -> str:
    """A reference that some launch read in another form than the untimed launch made it."""
    originals = evidence.launches[0].artifacts if evidence.launches else {}
    for launch in evidence.timed:
        for name, digests in launch.artifacts.items():
            if not digests <= originals.get(name, set()):
                return f"launch {launch.id} read another {name} than the untimed launch made"
    return ""


def _of_kind(kind: CheckKind, evidence: CaseEvidence) -> RulingDraft:
    """Checks of one kind: at least one, and all of them within; ranks that hung fail too."""
    failed = _failed_launch(evidence.launches) if kind == "collective" else None
    if failed is not None:
        return failed
    checks = [checked for checked in evidence.ruled_checks if checked.check.kind == kind]
    if not checks:
        return _uncovered(f"{evidence.case.id} yields no check of the kind {kind}")
    return _outside(checks) or numeric(evidence)


# ------------------------------------------------------------------ integrity


def injected(case: Case) -> str:
    """The fault that this case injects; a workload from outside the appliance counts as one."""
    is_foreign = "." in case.workload and not case.injector
    return f"{case.workload}, from outside the appliance" if is_foreign else case.injector


def _integrity(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """Whether what was recorded can be what a device did."""
    odd = clock_doubt(evidence) or lost_steps(evidence)
    doubt = disturbed_clock(evidence, inputs, odd)
    fault = clock_fault(evidence)
    if fault and doubt is None:
        return RulingDraft(ruling="fail", reason="clock", explanation=fault, action=CLOCK)
    above = _above_peak(evidence, inputs)
    if above is not None:
        return above
    repeated = _outside([item for item in evidence.checks if item.phase == OTHER_PHASE])
    if repeated is not None:
        return repeated
    if doubt is not None:
        return doubt
    return _not_as_asked(evidence) or _unattested(evidence) or RulingDraft(ruling="pass")


def _not_as_asked(evidence: CaseEvidence) -> RulingDraft | None:
    """A case that injects a fault, or a launch under other settings than its case asks for."""
    if injected(evidence.case):
        return inconclusive(
            "injected",
            f"this case injects a fault on purpose: {injected(evidence.case)}",
            "Run a suite of the appliance's own workloads.",
        )
    other = other_products(evidence)
    return inconclusive("setting", other, SETTING) if other else None


def disturbed_clock(evidence: CaseEvidence, inputs: RulingInputs, odd: str) -> RulingDraft | None:
    """A device's clock that cannot be judged because others used the device; None else.

    `odd` says what is odd about the clocks. Time that a device gives to others shows in its host's
    clock and not in its own, so a device that is shared and a clock that lies look alike. Times
    that no clock can give are no such thing.
    """
    fault = clock_fault(evidence)
    sentence = fault or odd
    if not sentence or (fault and fault != device_clock_fault(evidence)):
        return None
    disturbed = disturbance(evidence, inputs.system)
    return inconclusive("environment", f"{sentence}, but {disturbed}", ALONE) if disturbed else None


def _unattested(evidence: CaseEvidence) -> RulingDraft | None:
    """Clocks that do not quite agree or were not compared, unknown code, steps without work."""
    doubt = clock_doubt(evidence) or lost_steps(evidence)
    if doubt:
        return inconclusive("clock", doubt, CLOCK)
    if not any(launch.is_completed for launch in evidence.launches):
        return _uncovered("no launch completed, so no clocks were compared")
    uncompared = [
        launch.id for launch in evidence.launches if launch.is_completed and not launch.calibrated
    ]
    if uncompared:
        return inconclusive(
            "evidence_missing", f"launch {uncompared[0]} did not compare its clocks", "Run again."
        )
    silent = unlisted(evidence) or unread_products(evidence)
    if silent:
        return inconclusive("evidence_missing", silent, "Run again.")
    if not 0.0 < evidence.case.work.units < math.inf:
        return _uncovered(f"{evidence.case.id} does no work in a step")
    return None


def _above_peak(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft | None:
    """A rate that the device cannot reach, so that the work was not done or the clock lies."""
    times = [*log_seconds(evidence, "steps"), *log_seconds(evidence, "wall")]
    fastest = min((value for value in times if math.isfinite(value)), default=None)
    for metric in RATES if fastest is not None else ():
        amount = amount_of(evidence.case, metric)
        peak = peak_for(inputs.peaks, inputs.system, evidence.case, metric)
        if fastest is None or amount is None or peak is None:
            continue
        rate = amount / math.exp(fastest)
        if rate > peak:
            return RulingDraft(
                ruling="fail" if rate > PEAK_SLACK * peak else "inconclusive",
                reason="above_peak",
                explanation=f"{metric} {rate:.4g} is above the device's peak of {peak:.4g}: "
                "the work was not done, or the clock is wrong",
                action="Do not trust this node's figures; run it again under supervision.",
            )
    return None


# ------------------------------------------------------------------ health and inventory


def health(
    criterion: Criterion,
    cases: Sequence[CaseEvidence],
    inputs: RulingInputs,
    scope: device_health.Scope,
) -> RulingDraft:
    """Whether every device of the cases keeps the limit, as far as it was watched.

    What was seen beyond the limit fails, whatever else could not be seen; what could not be seen
    is inconclusive, and what a device cannot have, unless the criterion says that it does not apply
    then.
    """
    devices = inputs.system.identity.devices
    observed = [
        one.observe(criterion.metric) for one in device_health.of_devices(devices, cases, scope)
    ]
    present = [one for one in observed if not one.is_absent]
    beyond = [one for one in present if _is_beyond(criterion, one)]
    unseen = [one for one in present if one.gap or one.high is None]
    absent = [one.device for one in observed if one.is_absent]
    if beyond:
        return _unhealthy(criterion, beyond)
    if unseen and all(
        hidden_links.are_hidden(criterion, one, inputs.system, inputs.order) for one in unseen
    ):
        return RulingDraft(
            ruling="not_applicable",
            reason="not_shown",
            explanation=hidden_links.SENTENCE,
            action="Nothing for a device alone; to have them judged, run where they are shown.",
        )
    if unseen or not observed:
        return _unseen(criterion, unseen)
    if absent and (criterion.if_absent != "not_applicable" or not present):
        return _absent(criterion, absent)
    limit, worst = _limit(criterion), _worst(criterion, present)
    if limit is None or worst is None or not (math.isfinite(worst) and math.isfinite(limit)):
        return inconclusive(
            "evidence_missing", f"{metric_words(criterion.metric)} is no number", "Run again."
        )
    return RulingDraft(ruling="pass", statistic=_statistic(criterion, present))


def load(criterion: Criterion, cases: Sequence[CaseEvidence], inputs: RulingInputs) -> RulingDraft:
    """Whether a burn-in drew what its device may draw, where a record of the model has that load.

    Elsewhere it is shown and not judged, as nobody has seen that a healthy one reaches it.
    """
    burnt = [one for one in cases if is_burn_in(one.case)]
    if not burnt:
        return RulingDraft(ruling="not_applicable", reason="unplanned", explanation=NOT_BURNT)
    draft = _full_load(criterion, burnt, inputs)
    lacking = [why for one in burnt if (why := _unrecorded(criterion, one.case, inputs))]
    if not lacking:
        return draft
    devices = inputs.system.identity.devices
    shown = "; ".join(map(load_sentence, device_health.of_devices(devices, burnt, "cases")))
    return RulingDraft(
        ruling="not_applicable",
        reason="unqualified",
        explanation=f"{lacking[0]}; reported, not judged: {shown}",
        action=RECORD,
        statistic=draft.statistic,
    )


def _full_load(
    criterion: Criterion, burnt: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """By power over its limit, or over that of the plain loop; of processors by use of their cores.

    The limits are the appliance's own choice, and no vendor's promise. So a device that is below
    them fails only where a plain loop on the same device, in the same launch, reached more: that
    takes a power limit, firmware and sharing into account, as both have them. One that does as its
    plain loop does is at full load, unless something held back both.
    """
    draft = health(criterion, burnt, inputs, "cases")
    devices = inputs.system.identity.devices
    ledgers = device_health.of_devices(devices, burnt, "cases")
    if all(map(_goes_by_cores, ledgers)):
        return _core_load(criterion, burnt, inputs)
    if draft.ruling != "fail":
        return draft
    beyond = [one for one in ledgers if _is_beyond(criterion, one.observe(criterion.metric))]
    drafts = [_below(criterion, one, draft, inputs) for one in beyond]
    shown = "; ".join(map(load_sentence, beyond))
    alike = RulingDraft(
        ruling="pass",
        explanation=f"at full load by the plain loop beside it: {shown}",
        statistic=draft.statistic,
    )
    words = ("fail", "inconclusive")
    return next((one for word in words for one in drafts if one.ruling == word), alike)


def _core_load(
    criterion: Criterion, burnt: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """Of processors. Stress beside a burn-in takes their cores by design, and others by chance."""
    by_cores = replace(criterion, metric=CORES, at_least=CORES_AT_LEAST)
    draft = health(by_cores, burnt, inputs, "cases")
    if draft.ruling != "fail":
        return draft
    if any(one.case.parameters.get(kinds.PARAMETER) for one in burnt):
        return RulingDraft(
            ruling="not_applicable",
            reason="unplanned",
            explanation=f"{draft.explanation}; the stress beside the products takes those cores",
            action="Nothing for this device; without --stress the use of its cores is judged.",
            statistic=draft.statistic,
        )
    return _unless_disturbed(draft, burnt, inputs)


def _unless_disturbed(
    draft: RulingDraft, burnt: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """The draft, inconclusive where others used the devices of one of the cases."""
    disturbed = next((why for one in burnt if (why := disturbance(one, inputs.system))), "")
    if not disturbed:
        return draft
    return replace(
        inconclusive("environment", f"{draft.explanation}, but {disturbed}", ALONE),
        statistic=draft.statistic,
    )


def _below(
    criterion: Criterion, ledger: device_health.Ledger, draft: RulingDraft, inputs: RulingInputs
) -> RulingDraft:
    """The ruling on a device that draws less than is wanted, whose draft is a fail."""
    if ledger.observe(criterion.metric).gap:
        return draft
    loop = ledger.plain_loop()
    if loop is None or loop.power is None:
        why = "no plain loop was read beside it, which would say what it can draw"
        return inconclusive("not_observed", f"{load_sentence(ledger)}: {why}", WITH_LOOP)
    if loop.power < (criterion.at_least or 1.0) or loop.speed < SPEED_AT_LEAST:
        return _unless_disturbed(draft, ledger.cases, inputs)
    held = _held_back(ledger)
    if held:
        return inconclusive("not_observed", f"{load_sentence(ledger)}: {held}", HELD)
    return RulingDraft(ruling="pass")


def _held_back(ledger: device_health.Ledger) -> str:
    """What held back a device and its plain loop alike, or why that is not known; or nothing.

    A limit on its power is what full load is measured by, and holds no device back.
    """
    slowed, lost = ledger.observe(device_health.SHARE), ledger.observe("lost_clock")
    capped = ledger.observe(f"{device_health.SHARE}_power_cap").high
    if slowed.high is None or slowed.gap or lost.high is None or lost.gap:
        return "whether it was held back is not reported"
    if slowed.high > MOST_SLOWED:
        return f"a reason to slow down was active in {100 * slowed.high:.0f} % of the time"
    if lost.high > MOST_LOST_CLOCK and not (capped or 0.0) > MOST_SLOWED:
        return (
            f"its clock was at {100 * (1 - lost.high):.1f} % of the highest for no reason that "
            "is reported"
        )
    return ""


def _goes_by_cores(ledger: device_health.Ledger) -> bool:
    """Whether it is a processor whose power is not read, or whose limit is not."""
    return ledger.device.vendor in OF_HOSTS and ledger.observe(POWER).high is None


def is_burn_in(case: Case) -> bool:
    """Whether a case is there to load its device: at its small size it is not."""
    return case.workload in SEGMENTED and case.is_timed and not case.small


def _unrecorded(criterion: Criterion, case: Case, inputs: RulingInputs) -> str:
    """Why no qualified record says that healthy devices of the model reach this, or nothing."""
    record, why = find(inputs.qualified, case, inputs.system)
    if record is None:
        return why
    named = f"the qualified record of {record.workload} on {record.model}"
    if record.load is None:
        return f"{named} does not say what load its devices reached"
    return "" if _has_reached(criterion, record.load) else f"{named} is of less load than that"


def _has_reached(criterion: Criterion, load: ReachedLoad) -> bool:
    """Whether the least loaded device of a record is at the load that is wanted."""
    wanted = criterion.at_least or 1.0
    if load.power_fraction is None:
        return (load.core_use or 0.0) >= CORES_AT_LEAST
    is_alike = (load.loop_power or 0.0) >= wanted and (load.loop_speed or 0.0) >= SPEED_AT_LEAST
    return load.power_fraction >= wanted or is_alike


def load_sentence(ledger: device_health.Ledger) -> str:
    """Power, clock, temperature and throttling of a device under load, in one clause."""
    power, lost = ledger.observe(POWER), ledger.observe("lost_clock")
    warm = ledger.temperature()
    shares = {
        name: share
        for name in THROTTLES
        if (share := ledger.observe(f"{device_health.SHARE}_{name}").high) is not None
    }
    reasons = [
        f"{name.replace('_', ' ')} in {100 * share:.0f} %"
        for name, share in shares.items()
        if share
    ]
    is_known = ledger.observe(device_health.SHARE).high is not None
    calm = "not slowed down" if is_known else "throttling not reported"
    words = [
        "power not reported"
        if power.low is None
        else f"{100 * power.low:.1f} % of its power limit in hot phases",
        "clock not reported"
        if lost.high is None
        else f"clock at {100 * (1 - lost.high):.1f} % of the highest",
        "temperature not reported"
        if warm is None
        else f"{warm[0]:.0f} celsius at most, {'settled' if warm[1] else 'still rising'}",
        f"slowed down by {', '.join(reasons)} of the time" if reasons else calm,
        _beside_plain_loop(ledger.plain_loop()),
    ]
    use = ledger.observe(CORES)
    if _goes_by_cores(ledger) and use.low is not None:
        words[0] = f"{100 * use.low:.1f} % of its cores in use in hot phases"
    return f"{ledger.device.id}: {', '.join(words)}"


def _beside_plain_loop(loop: device_health.PlainLoop | None) -> str:
    if loop is None:
        return "no plain loop beside it"
    power = "" if loop.power is None else f"{100 * loop.power:.1f} % of the power and "
    return f"{power}{100 * loop.speed:.1f} % of the speed of a plain loop"


def _limit(criterion: Criterion) -> float | None:
    return criterion.at_most if criterion.at_least is None else criterion.at_least


def _worst(criterion: Criterion, observed: Sequence[device_health.Observed]) -> float | None:
    is_low = criterion.at_least is not None
    values = [one.low if is_low else one.high for one in observed]
    known = [value for value in values if value is not None]
    return (min if is_low else max)(known, default=None)


def _is_beyond(criterion: Criterion, one: device_health.Observed) -> bool:
    worst, limit = _worst(criterion, [one]), _limit(criterion)
    if worst is None or limit is None:
        return False
    return worst < limit if criterion.at_least is not None else worst > limit


def _statistic(
    criterion: Criterion, observed: Sequence[device_health.Observed]
) -> Statistic | None:
    worst = _worst(criterion, observed)
    if worst is None:
        return None
    return Statistic(
        metric=criterion.metric,
        unit=criterion.unit,
        value=worst,
        low=None,
        high=None,
        confidence=None,
        limit=_limit(criterion),
        limit_source="absolute",
        count=sum(one.count for one in observed),
    )


def _unhealthy(criterion: Criterion, observed: Sequence[device_health.Observed]) -> RulingDraft:
    is_low = criterion.at_least is not None
    readings = [
        f"{one.device}: {_written(criterion, one.low if is_low else one.high)}"
        + (f" ({one.where})" if one.where else "")
        for one in observed
    ]
    limit = _limit(criterion)
    return RulingDraft(
        ruling="fail",
        reason="health",
        explanation=f"{criterion.title}: {metric_words(criterion.metric)} of {_some(readings)}, "
        f"where {'at least' if is_low else 'at most'} {_written(criterion, limit)} is required",
        action=health_action(criterion.metric),
        statistic=_statistic(criterion, observed),
    )


def _written(criterion: Criterion, value: float | None) -> str:
    return "not reported" if value is None else metric_value(criterion.metric, value)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_DEVICES
    return ", ".join(names[:MOST_DEVICES]) + (f" and of {rest} more" if rest > 0 else "")


def _unseen(criterion: Criterion, observed: Sequence[device_health.Observed]) -> RulingDraft:
    reasons = dict.fromkeys(one.gap or device_health.UNREPORTED for one in observed) or {
        device_health.UNREPORTED: None
    }
    names = _some([one.device for one in observed]) or "any device"
    is_meant = criterion.if_not_observed == "not_applicable"
    return RulingDraft(
        ruling="not_applicable" if is_meant else "inconclusive",
        reason="not_observed",
        explanation=f"{metric_words(criterion.metric)} of {names} was not observed: "
        f"{'; '.join(reasons)}",
        action="Provide what is named there to have it judged; the criteria do not insist on it."
        if is_meant
        else "Provide what is named there and run again; nothing that was not seen is accepted.",
    )


def _absent(criterion: Criterion, devices: Sequence[str]) -> RulingDraft:
    is_meant = criterion.if_absent == "not_applicable"
    return RulingDraft(
        ruling="not_applicable" if is_meant else "inconclusive",
        reason="absent",
        explanation=f"there is no {metric_words(criterion.metric)} of {_some(devices)}: the part "
        "has none, or its vendor has no count of it",
        action="Nothing: the criteria say that it does not apply to such a device."
        if is_meant
        else "Agree on criteria for this device, or judge one that has it.",
    )


def health_action(metric: str) -> str:
    """What to do next about a device that is not healthy, by what showed it."""
    for beginnings, action in HEALTH_ACTIONS.items():
        if metric.startswith(beginnings):
            return action
    return "Fix or replace the part, and run again."


def _between(criterion: Criterion, values: Sequence[float], name: str) -> RulingDraft:
    """Whether all values keep the limits of a criterion."""
    is_low = criterion.at_least is not None
    limit = criterion.at_least if is_low else criterion.at_most
    if limit is None or not all(map(math.isfinite, values)):
        return inconclusive("evidence_missing", f"{name} is no number", "Run again.")
    worst = min(values) if is_low else max(values)
    statistic = Statistic(
        metric=criterion.metric,
        unit=criterion.unit,
        value=worst,
        low=None,
        high=None,
        confidence=None,
        limit=limit,
        limit_source="absolute",
        count=len(values),
    )
    if worst >= limit if is_low else worst <= limit:
        return RulingDraft(ruling="pass", statistic=statistic)
    reason: Reason = "inventory" if criterion.kind == "inventory" else "health"
    return RulingDraft(
        ruling="fail",
        reason=reason,
        explanation=f"{criterion.title}: {name} {worst:.6g}, "
        f"where {'at least' if is_low else 'at most'} {limit:.6g} is required",
        action="Fix or replace the part, and run again.",
        statistic=statistic,
    )


def inventory(criterion: Criterion, system: System) -> RulingDraft:
    """Whether a fact of the node, or that fact of each device, is what the criterion asks for."""
    facts = _facts(criterion.metric, system)
    if not facts or any(value is None for value in facts.values()):
        unknown = next((name for name, value in facts.items() if value is None), criterion.metric)
        return inconclusive(
            "evidence_missing",
            f"{criterion.title}: {unknown} was not reported",
            "Allow the appliance to read it (see `bench probe`), and run again.",
        )
    if criterion.equals is None:
        numbers = [
            float(value)
            for value in facts.values()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if len(numbers) < len(facts):
            return inconclusive(
                "evidence_missing", f"{criterion.metric} is no number", "Correct the criterion."
            )
        return _between(criterion, numbers, criterion.metric)
    for name, value in facts.items():
        if value != criterion.equals or isinstance(value, bool) != isinstance(
            criterion.equals, bool
        ):
            return RulingDraft(
                ruling="fail",
                reason="inventory",
                explanation=f"{criterion.title}: {name} is {value}, "
                f"where {criterion.equals} is required",
                action="Compare the node with what was agreed.",
            )
    return RulingDraft(ruling="pass")


def _facts(metric: str, system: System) -> dict[str, Scalar | None]:
    """The values that a name of the inventory stands for, by where they were found."""
    place, _, name = metric.partition(".")
    identity = system.identity
    if place == "host":
        return {metric: identity.host.get(name, Fact(value=None)).value}
    if name == "count":
        return {metric: len(identity.devices)}
    return {
        f"{device.id} {name}": getattr(device, name)
        if name in ("model", "serial", "memory_bytes")
        else device.facts.get(name, Fact(value=None)).value
        for device in identity.devices
    }
