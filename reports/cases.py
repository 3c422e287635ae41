"""A case on paper: what it is, whether it was right, and only then how fast it was.

Timing is shown for a case when at least one check was made and every one is within its bound;
whatever the verdict's record holds, a failed check takes the figures and the plot off the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from markupsafe import Markup

from appliance.evidence.baseline_key import suite_id
from appliance.evidence.journal_index import JournalIndex
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.evidence.repeats import described, repeats_of
from appliance.planning.sessions import NO_TIME
from appliance.records.baseline import Peaks
from appliance.records.journal import NOT_JUDGED, UNJUDGED_FOR_MEMORY, LaunchEnded
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.verdict import (
    CaseClocks,
    CaseResult,
    CheckResult,
    Clock,
    Estimate,
    LaunchResult,
    Ruling,
    RulingWord,
    Verdict,
)
from reports import machine, performance, plots, roofline, words
from reports.model import CaseSection, CheckRow, Grid, LaunchRow, Legend, Row, Timing
from reports.words import count

WORST_FIRST: tuple[RulingWord, ...] = ("fail", "inconclusive", "not_applicable", "pass")
_PHASES = {
    "first": "first output",
    "last": "last output",
    "sampled": "drawn outputs",
    "repeatability": "same step twice, default mode",
    "repeated": "repeated inputs",
}
_OUTCOMES = {"software": "cannot run: software"}
"""Outcomes that are more than their word; the others are shown as they are recorded."""
UNMADE = {"decided": "not needed", NO_TIME: "no time left"}
"""What is said of launches that were not made, by the reason; those of a case share a row."""
_SERIES = {
    "": "—",
    "short": "short",
    "steady": "steady",
    "warm_up": "warm-up",
    "slowdown": "slowdown",
    "no_steady_state": "no steady state",
}
_SCENARIOS = {
    "": "",
    "single_stream": "Single stream: one query after the other, a step is one query.",
    "offline": "Offline: all queries are there at once, a step is one batch of them.",
}
_LONGEST_DETAIL = 160
NO_CHECK = "No timing is shown: nothing was checked."
_SHOWN_DIGEST = 12  # of 64 digits: enough to distinguish two runs by eye
LAUNCHES_LEGEND = (
    "Launches: the median is the mean of the launch's block medians; of a case that is judged by "
    "the wall, the mean of its blocks' wall times over their steps. The series of a launch's steps "
    "is steady or not; the autocorrelation is that of consecutive steps. A launch counts once, "
    "however many steps it has."
)
PLOTS_LEGEND = (
    "Plots: every timed step of every launch, dots in their order, a bar for each block's median, "
    "the shaded band for the interval of the mean over launches; a grey field is what came before "
    "the steady part, which counts all the same. Of many steps the smallest and largest of each "
    "run are drawn; ▲ are beyond the axis. Of several devices each one's step time with its "
    "interval. No axis need begin at zero. The HTML page draws block medians over the run's time."
)


@dataclass(frozen=True, kw_only=True)
class _Course:
    """What one launch showed over time.

    `blocks` are the milliseconds of each judged step of a block, and the minutes after the run's
    first line at which the block was recorded. `spans` and `events` are the largest relative
    differences that its clocks showed; None where they were not compared.
    """

    blocks: tuple[tuple[float, tuple[float, ...]], ...] = ()
    spans: float | None = None
    events: float | None = None


def sections(
    index: JournalIndex, verdict: Verdict, peaks: Peaks, qualified: Qualified, system: System
) -> tuple[CaseSection, ...]:
    """One section per planned case, in the plan's order.

    Of a row of several devices, which stand together, sections have neither the courses of launches
    nor checks and readings.
    """
    results = {result.case: result for result in verdict.cases}
    begin = words.moment(index.begin_utc)
    finder = performance.References(qualified, system)
    rulings: dict[str, list[Ruling]] = {}
    for ruling in verdict.rulings:
        rulings.setdefault(ruling.case, []).append(ruling)
    sizes = Counter(suite_id(evidence.case) for evidence in index.cases.values())
    return tuple(
        _section(
            number=number,
            case=evidence.case,
            result=results.get(name) or nothing(evidence.case),
            rulings=rulings.get(name, []),
            evidence=evidence,
            begin=begin,
            roofs=roofline.roofs(evidence.case, peaks, system),
            known=performance.reference_sentence(evidence.case, finder),
            is_drawn=sizes[suite_id(evidence.case)] == 1,
            is_processor=performance.is_processor(system, evidence.case),
        )
        for number, (name, evidence) in enumerate(index.cases.items(), 1)
    )


def untimed(plan: Plan, verdict: Verdict) -> frozenset[str]:
    """The cases of which no timing may be shown."""
    results = {result.case: result for result in verdict.cases}
    return frozenset(
        case.id for case in plan.cases if no_timing(case, results.get(case.id) or nothing(case))
    )


def worst(rulings: Sequence[RulingWord]) -> RulingWord:
    """The worst of several rulings; no ruling at all is inconclusive."""
    return next((word for word in WORST_FIRST if word in rulings), "inconclusive")


def worst_that_applies(rulings: Sequence[RulingWord]) -> RulingWord:
    """The worst of the rulings on a case, of which some may ask for what it has not."""
    return worst([one for one in rulings if one != "not_applicable"] or rulings)


def legend(verdict: Verdict) -> Legend:
    """How a section is read, with the method of every figure that the run has."""
    methods: dict[str, list[str]] = {}
    for result in verdict.cases:
        for estimate in result.estimates:
            names = methods.setdefault(estimate.method, [])
            if (name := _quantity_name(estimate)) not in names:
                names.append(name)
    return Legend(
        estimates=tuple(f"{', '.join(names)}: {method}." for method, names in methods.items()),
        launches=LAUNCHES_LEGEND,
        plots=PLOTS_LEGEND,
    )


def nothing(case: Case) -> CaseResult:
    """What stands for a case of which verdict.json has no result."""
    return CaseResult(
        case=case.id,
        num_planned=case.launches + 1,
        num_completed=0,
        num_decided=0,
        launches=(),
        checks=(),
        estimates=(),
        withheld="no timing is shown: verdict.json has no result for this case",
    )


def _course(launch: LaunchEvidence, begin: datetime | None, clock: Clock) -> _Course:
    """The samples of a launch as they were judged, and how far its clocks disagreed."""
    spans, events = _differences(launch)
    return _Course(
        blocks=tuple(
            (_minutes(utc, begin), tuple(1e3 * times)) for utc, times in launch.samples(clock)
        ),
        spans=spans,
        events=events,
    )


def _differences(launch: LaunchEvidence) -> tuple[float | None, float | None]:
    """The largest relative differences of its clocks over spans, and of the device's events."""
    spans = [(block.block_raw_ns, block.block_wall_ns) for block in launch.blocks]
    events: list[tuple[int, int]] = []
    for calibrated in launch.calibrated:
        spans += zip(calibrated.raw_ns, calibrated.wall_ns, strict=False)
        if calibrated.event_ns is not None:
            events += zip(calibrated.event_ns, calibrated.wall_ns, strict=False)
    return _largest(spans), _largest(events)


def _minutes(utc: str, begin: datetime | None) -> float:
    now = words.moment(utc)
    return 0.0 if now is None or begin is None else (now - begin).total_seconds() / 60


def clocks_apart(evidence: CaseEvidence) -> float | None:
    """The largest relative difference that the clocks of any launch showed; None if unknown."""
    differences = (one for launch in evidence.launches for one in _differences(launch))
    return max((one for one in differences if one is not None), default=None)


def _largest(pairs: Sequence[tuple[int, int]]) -> float | None:
    """The largest relative difference of any pair of times; None where there is none."""
    differences = (abs(one / other - 1) if other else math.inf for one, other in pairs)
    return max(differences, default=None)


def _section(
    *,
    number: int,
    case: Case,
    result: CaseResult,
    rulings: Sequence[Ruling],
    evidence: CaseEvidence,
    begin: datetime | None,
    roofs: roofline.Roofs,
    known: str,
    is_drawn: bool,
    is_processor: bool,
) -> CaseSection:
    reason = no_timing(case, result)
    clock = _clock(result)
    ended = {launch.id: launch.ends[-1] for launch in evidence.launches if launch.ends}
    shown = evidence.launches if is_drawn else ()
    courses = {launch.id: _course(launch, begin, clock) for launch in shown}
    readings = [reading for launch in shown for reading in launch.readings]
    return CaseSection(
        number=str(number),
        id=case.id,
        workload=f"{case.workload}, version {case.version}",
        summary=case.summary,
        scale=_scale(case),
        ruling=worst_that_applies([one.ruling for one in rulings if one.required]),
        rulings=tuple((ruling.criterion, ruling.ruling) for ruling in rulings),
        parameters=tuple(
            Row(label=name, value=words.parameter(name, value))
            for name, value in case.parameters.items()
        ),
        checks=(*map(check_row, result.checks), *repeats(evidence)) if is_drawn else (),
        launches=tuple(_launches(result, ended, is_timing_shown=not reason)),
        launch_counts=_launch_counts(result),
        timing=None
        if reason
        else _timing(
            case,
            result,
            courses,
            "" if is_processor else roofline.sentence(case, result, roofs),
            known,
            limit=step_limit(rulings),
        ),
        no_timing=reason,
        readings=_readings_words(machine.telemetry(readings)) if is_drawn else "",
    )


def _clock(result: CaseResult) -> Clock:
    """The clock that the case was judged by."""
    return "steps" if result.clocks is None else result.clocks.judged


def no_timing(case: Case, result: CaseResult) -> str:
    """Why no timing of a case is shown, or nothing."""
    outside = [
        check
        for check in result.checks
        if (check.num_outside or not check.worst.is_within) and not _is_reported_only(check)
    ]
    failed = [check.name for check in outside if check.name != UNJUDGED_FOR_MEMORY]
    if outside:
        why = f"the check “{failed[0]}” is not within its bound" if failed else NOT_JUDGED
        return f"No timing is shown: {why}."
    if result.withheld:
        return f"{result.withheld[:1].upper()}{result.withheld[1:]}."
    if not result.checks:
        return NO_CHECK
    if not case.is_timed:
        return "This case is one of correctness alone; it is not timed."
    if not any(one.log_seconds is not None for one in result.launches):
        return "No timing is shown: no launch has a timed step."
    return ""


def _is_reported_only(check: CheckResult) -> bool:
    """Whether it compares bits in the library's default mode, in which they may differ."""
    return check.phase == "repeatability" and check.worst.bound == 0


def _scale(case: Case) -> str:
    size = "" if case.num_parameters is None else count(case.num_parameters, "parameter")
    if case.small:
        return f"reduced size, {size}" if size else "reduced size"
    return size


def _launch_counts(result: CaseResult) -> str:
    missing = result.num_planned - result.num_completed - result.num_decided
    clauses = [f"{result.num_planned} planned", f"{result.num_completed} completed"]
    if result.num_decided:
        clauses.append(f"{result.num_decided} not needed (decided)")
    return ", ".join([*clauses, f"{missing} missing"])


def _readings_words(grid: Grid | None) -> str:
    """Telemetry in a line: range and median of each value, and how often it was read."""
    if grid is None:
        return "Not reported: no reading was taken."
    clauses = (
        f"{name}: {low} to {high}, median {median} ({number} read)"
        if high
        else f"{name}: {low} ({number} read)"
        for name, low, median, high, number in grid.rows
    )
    return f"{'; '.join(clauses)}."


# ------------------------------------------------------------------ correctness


def check_row(result: CheckResult) -> CheckRow:
    """A check with its worst comparison, as a row."""
    check = result.worst
    is_within = check.is_within and result.num_outside == 0
    times = count(result.count, "time")
    return CheckRow(
        name=check.name,
        phase=_PHASES.get(result.phase, result.phase),
        count=times if result.num_outside == 0 else f"{times}, {result.num_outside} outside",
        error=words.small(check.error),
        bound=words.small(check.bound),
        margin=_margin(result),
        detects="exact: any difference"
        if check.detects is None
        else f"{words.small(check.detects)} {check.detects_what}",
        is_within=is_within,
    )


def repeats(evidence: CaseEvidence) -> Iterator[CheckRow]:
    """Whether the processes of the deterministic phase gave the same bits; ruled on elsewhere."""
    known = repeats_of(evidence)
    if not known.first:
        return
    is_same = not known.has_mismatch
    answers = {*known.first.values(), *known.examined}
    shown = " ".join(known.usual)[:_SHOWN_DIGEST]
    operators = ", ".join(known.operators)
    lacking = f"; without a deterministic form: {operators}" if operators else ""
    yield CheckRow(
        name=f"bitwise reproducible{lacking}",
        phase="deterministic phase",
        count=f"{count(len(known.first), 'process', 'processes')}, "
        f"{len(known.examined)} repeats after a mismatch",
        error=f"digest {shown}" if is_same else f"{len(answers)} different digests",
        bound="one digest",
        margin="equal" if is_same else described(evidence),
        detects="exact: any difference",
        is_within=is_same,
    )


def _margin(result: CheckResult) -> str:
    """What is left of the bound."""
    check = result.worst
    if not check.is_within:
        is_ratio = math.isfinite(check.error) and check.bound > 0 and math.isfinite(check.bound)
        return (
            f"none: {check.error / check.bound:.3g} times the bound"
            if is_ratio
            else "none: outside"
        )
    return (
        "equal" if check.bound == 0 else f"{1 - check.error / check.bound:.0%}".replace("%", " %")
    )


# ------------------------------------------------------------------ launches and timing


def _launches(
    result: CaseResult, ended: Mapping[str, LaunchEnded], *, is_timing_shown: bool
) -> Iterator[LaunchRow]:
    """A row for each launch; those that were not needed, or had no time, share one."""
    for one in result.launches:
        if _why_unmade(one) is None:
            clock = _clock(result)
            yield _launch(one, ended.get(one.launch), clock, is_timing_shown=is_timing_shown)
    for reason, outcome in UNMADE.items():
        unmade = [one for one in result.launches if _why_unmade(one) == reason]
        if unmade:
            numbers = [one.launch.rpartition("/")[2] for one in (unmade[0], unmade[-1])]
            row = _launch(unmade[0], None, _clock(result), is_timing_shown=False)
            yield replace(
                row,
                number=" to ".join(dict.fromkeys(numbers)),
                outcome=outcome,
                is_completed=True,
            )


def _why_unmade(result: LaunchResult) -> str | None:
    """The reason by which a launch was left out, by the plan's own rules; None of others."""
    return result.reason if result.outcome == "not_run" and result.reason in UNMADE else None


def _is_timed(result: LaunchResult) -> bool:
    """Whether a launch is neither the untimed one nor a repeat, by its number."""
    number = result.launch.rpartition("/")[2]
    return number != "0" and not number.startswith("r")


def _launch(
    result: LaunchResult, ended: LaunchEnded | None, clock: Clock, *, is_timing_shown: bool
) -> LaunchRow:
    number = result.launch.rpartition("/")[2]
    memory = None if ended is None else ended.peak_memory_bytes
    is_timed = _is_timed(result)
    untimed = f"{number} ({'untimed' if number == '0' else 'repeat'})"
    is_shown = is_timing_shown and is_timed
    location = result.location(clock)
    median = None if location is None else math.exp(location) * 1e3
    first = None if result.first_step_seconds is None else result.first_step_seconds * 1e3
    return LaunchRow(
        number=number if is_timed else untimed,
        mode=result.mode or "—",
        outcome=_outcome(result, ended),
        is_completed=result.outcome == "completed",
        memory=words.size(memory) if memory else "—",  # none was seen; it never is 0
        steps=str(result.num_steps) if is_shown else "",
        median=_figure(median) if is_shown else "",
        first_step=_figure(first) if is_shown else "",
        series=_series(result) if is_shown else "",
        lag1=_plain(result.lag1, 2) if is_shown else "",
        effective=_plain(result.effective_samples, 0) if is_shown else "",
    )


def _series(result: LaunchResult) -> str:
    """The class of a launch's series, with where its steady part begins and how often it shifts."""
    clauses = [_SERIES.get(result.series, result.series)]
    if result.cut:
        clauses.append(f"first {result.cut} cut")
    if result.num_changes:
        clauses.append(count(result.num_changes, "change"))
    return ", ".join(clauses)


def _figure(value: float | None, digits: int = 4) -> str:
    return "—" if value is None else words.figure(value, digits)


def _plain(value: float | None, places: int) -> str:
    return "—" if value is None or not math.isfinite(value) else f"{value:.{places}f}"


def _outcome(result: LaunchResult, ended: LaunchEnded | None) -> str:
    outcome = _OUTCOMES.get(result.outcome, result.outcome.replace("_", " "))
    if result.outcome == "completed":
        return outcome
    detail = "" if ended is None else ended.detail
    detail = detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:_LONGEST_DETAIL]}…"
    return (
        outcome
        + (f": {result.reason}" if result.reason else "")
        + (f" ({detail})" if detail else "")
    )


def _timing(
    case: Case,
    result: CaseResult,
    courses: Mapping[str, _Course],
    place: str,
    known: str,
    *,
    limit: float | None,
) -> Timing:
    timed = [one for one in result.launches if _is_timed(one)]
    launches = [one for one in timed if _why_unmade(one) is None]
    strips = [_strip(one, courses[one.launch]) for one in launches if one.launch in courses]
    interval = _plotted_interval(result.estimates)
    course = plots.course(
        f"Block medians of {case.id} over the run",
        [
            plots.Moment(launch=one.launch, minutes=minutes, median=_median(times))
            for one in launches
            for minutes, times in courses.get(one.launch, _Course()).blocks
        ],
        interval,
    )
    return Timing(
        scenario=_SCENARIOS.get(case.scenario, ""),
        estimates=_estimates(result.estimates),
        plot=plots.launches(
            f"Step times of {case.id} by launch",
            strips,
            interval,
            None if limit is None else limit * 1e3,
        )
        if courses
        else Markup(),
        course=course,
        caption=_caption(strips),
        roofline=place,
        reference=known,
        clocks=_judged_clock(result.clocks)
        + _clocks([courses[one.launch] for one in launches if one.launch in courses]),
    )


def _caption(strips: Sequence[plots.Strip]) -> str:
    num_samples = sum(len(strip.samples) for strip in strips)
    is_thinned = num_samples > plots.MOST_POINTS
    return f"{count(num_samples, 'sample')}{', thinned for drawing' if is_thinned else ''}"


def _median(times: Sequence[float]) -> float:
    """The median as the statistic of a block takes it: of the logarithms."""
    if not times or min(times) <= 0:
        return math.nan
    return float(np.exp(np.median(np.log(times))))


def _judged_clock(clocks: CaseClocks | None) -> str:
    """Which clock is judged, with what both say, in words; nothing where nothing was timed."""
    if clocks is None:
        return ""
    by_step = "the device's events" if clocks.has_events else "the host's clock, step by step"
    judged = by_step if clocks.judged == "steps" else "the wall time of its blocks"
    cost = (
        "what timing costs was not measured"
        if clocks.overhead_seconds is None
        else f"timing a step costs {words.duration(clocks.overhead_seconds)}, of which "
        f"{words.duration(clocks.subtracted_seconds)} count"
    )
    return (
        f"Judged by {judged}. A step takes {words.duration(clocks.step_seconds)} by {by_step} and "
        f"{words.duration(clocks.wall_seconds)} by the wall of its blocks; {cost}. "
        f"After that all steps are {clocks.ratio:.4f} of the wall of their blocks, those of one "
        f"block {clocks.least_ratio:.4f} at least; they lack {words.percent(clocks.missing)}, and "
        f"are judged up to {words.percent(clocks.allowed)}. "
    )


def _clocks(courses: Sequence[_Course]) -> str:
    """How far the clocks of the launches were apart at most, in words."""
    spans = [course.spans for course in courses if course.spans is not None]
    events = [course.events for course in courses if course.events is not None]
    if not spans and not events:
        return "Not reported: no clocks were compared."
    clauses = []
    if spans:
        clauses.append(
            f"the clock of the samples and the raw clock differ by at most "
            f"{words.percent(max(spans))}"
        )
    clauses.append(
        f"the device's clock and that of the samples by at most {words.percent(max(events))}"
        if events
        else "the device has no clock of its own"
    )
    return f"Compared in {count(max(len(spans), len(events)), 'launch', 'launches')}: " + (
        "; ".join(clauses) + "."
    )


def _strip(result: LaunchResult, course: _Course) -> plots.Strip:
    number = result.launch.rpartition("/")[2]
    is_completed = result.outcome == "completed"
    outcome = _OUTCOMES.get(result.outcome, result.outcome.replace("_", " "))
    note = f"{outcome}: {result.reason}" if result.reason else outcome
    levels: list[plots.Level] = []
    samples: list[float] = []
    for _, times in course.blocks:
        last = len(samples) + len(times) - 1
        levels.append(plots.Level(first=len(samples), last=last, median=_median(times)))
        samples += times
    return plots.Strip(
        label=f"{number} {result.mode or ''}" if is_completed else f"{number} {outcome}",
        samples=tuple(samples),
        levels=tuple(levels),
        cut=result.cut,
        note="" if is_completed or samples else note,
    )


def step_limit(rulings: Sequence[Ruling]) -> float | None:
    """The tightest limit on the step time, in seconds; None without one."""
    limits = [
        ruling.statistic.limit
        for ruling in rulings
        if ruling.statistic is not None
        and ruling.statistic.metric == "step_seconds"
        and ruling.statistic.limit is not None
        and math.isfinite(ruling.statistic.limit)
    ]
    return min(limits, default=None)


def _plotted_interval(estimates: Sequence[Estimate]) -> tuple[float, float] | None:
    for estimate in estimates:
        if estimate.name == "step_seconds" and None not in (estimate.low, estimate.high):
            low, high = float(estimate.low or 0) * 1e3, float(estimate.high or 0) * 1e3
            return (low, high) if math.isfinite(low) and math.isfinite(high) else None
    return None


def _estimates(estimates: Sequence[Estimate]) -> Grid:
    return Grid(
        columns=("Quantity", "Estimate", "Interval", "Of"),
        rows=tuple(
            (
                _quantity_name(estimate),
                words.measured(estimate.name, estimate.value, estimate.unit),
                _interval(estimate),
                _basis(estimate),
            )
            for estimate in estimates
        ),
    )


def _basis(estimate: Estimate) -> str:
    """What the estimate counts: launches, or steps where it is of single ones."""
    if estimate.name in ("stall_rate", "window_throughput") or estimate.name.startswith("latency"):
        return count(estimate.count, "step")
    return count(estimate.count, "launch", "launches")


def _quantity_name(estimate: Estimate) -> str:
    return words.metric(estimate.name)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None and estimate.high is None:
        return "none" if estimate.confidence is None else "too few to say"
    level = "" if estimate.confidence is None else f" ({words.percent(estimate.confidence)})"
    ends = [
        None if end is None else words.in_unit_of(estimate.name, estimate.value, end, estimate.unit)
        for end in (estimate.low, estimate.high)
    ]
    if estimate.confidence is None and None not in ends:  # of values, and of nothing estimated
        return "one value" if estimate.count == 1 else f"{ends[0]} to {ends[1]} (all)"
    if ends[0] is None:
        return f"at most {ends[1]}{level}"
    return f"at least {ends[0]}{level}" if ends[1] is None else f"{ends[0]} to {ends[1]}{level}"
