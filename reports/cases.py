"""A case on paper: what it is, whether it was right, and only then how fast it was.

Timing is shown for a case when at least one check was made and every one is within its bound;
whatever the verdict's record holds, a failed check takes the figures and the plot off the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from appliance.records import (
    Block,
    Case,
    CaseResult,
    CheckResult,
    Estimate,
    LaunchEnded,
    LaunchResult,
    Line,
    Plan,
    Reading,
    Ruling,
    RulingWord,
    Verdict,
)
from reports import machine, plots, words
from reports.model import CaseSection, CheckRow, Grid, LaunchRow, Row, Timing
from reports.words import NOT_REPORTED, count

WORST_FIRST: tuple[RulingWord, ...] = ("fail", "inconclusive", "not_applicable", "pass")
_PHASES = {
    "first": "first output",
    "last": "last output",
    "repeatability": "same step twice",
}
_QUANTITIES = {
    "step_seconds": "Step time",
    "units_per_second": "Rate",
    "flops_per_second": "Arithmetic rate",
    "bytes_per_second": "Memory rate",
    "first_step_seconds": "First step",
}
_LONGEST_DETAIL = 160


def sections(plan: Plan, verdict: Verdict, lines: Sequence[Line]) -> tuple[CaseSection, ...]:
    """One section per planned case, in the plan's order."""
    results = {result.case: result for result in verdict.cases}
    samples = _samples(lines)
    ended = {line.event.launch: line.event for line in lines if isinstance(line.event, LaunchEnded)}
    return tuple(
        _section(
            number=number,
            case=case,
            result=results.get(case.id) or _nothing(case),
            rulings=[ruling for ruling in verdict.rulings if ruling.case == case.id],
            samples=samples,
            ended=ended,
            readings=_readings(case, lines),
        )
        for number, case in enumerate(plan.cases, 1)
    )


def worst(rulings: Sequence[RulingWord]) -> RulingWord:
    """The worst of several rulings; no ruling at all is inconclusive."""
    return next((word for word in WORST_FIRST if word in rulings), "inconclusive")


def _nothing(case: Case) -> CaseResult:
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


def _samples(lines: Sequence[Line]) -> Mapping[str, tuple[float, ...]]:
    """Milliseconds of every timed step, by launch: device time where there is one."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if isinstance(line.event, Block):
            times = line.event.wall_ns if line.event.event_ns is None else line.event.event_ns
            found.setdefault(line.event.launch, []).extend(time * 1e-6 for time in times)
    return {launch: tuple(times) for launch, times in found.items()}


def _readings(case: Case, lines: Sequence[Line]) -> list[Reading]:
    return [
        line.event
        for line in lines
        if isinstance(line.event, Reading) and line.event.launch.rpartition("/")[0] == case.id
    ]


def _section(
    *,
    number: int,
    case: Case,
    result: CaseResult,
    rulings: Sequence[Ruling],
    samples: Mapping[str, tuple[float, ...]],
    ended: Mapping[str, LaunchEnded],
    readings: Sequence[Reading],
) -> CaseSection:
    no_timing = _no_timing(case, result)
    return CaseSection(
        number=str(number),
        id=case.id,
        workload=f"{case.workload}, version {case.version}",
        summary=case.summary,
        scale=_scale(case),
        ruling=worst([ruling.ruling for ruling in rulings if ruling.required]),
        rulings=tuple((ruling.criterion, ruling.ruling) for ruling in rulings),
        parameters=tuple(
            Row(label=name, value=words.scalar(value)) for name, value in case.parameters.items()
        ),
        checks=tuple(map(_check, result.checks)),
        launches=tuple(
            _launch(one, ended.get(one.launch), is_timing_shown=not no_timing)
            for one in result.launches
        ),
        launch_counts=_launch_counts(result),
        timing=None if no_timing else _timing(case, result, samples),
        no_timing=no_timing,
        readings=_readings_words(machine.telemetry(readings)),
    )


def _no_timing(case: Case, result: CaseResult) -> str:
    """Why no timing is shown, or nothing."""
    outside = [check for check in result.checks if check.num_outside or not check.worst.is_within]
    if outside:
        return f"No timing is shown: the check “{outside[0].name}” is not within its bound."
    if result.withheld:
        return f"{result.withheld[:1].upper()}{result.withheld[1:]}."
    if not result.checks:
        return "No timing is shown: nothing was checked."
    if not case.is_timed:
        return "This case is one of correctness alone; it is not timed."
    if not any(one.log_seconds is not None for one in result.launches):
        return "No timing is shown: no launch has a timed step."
    return ""


def _scale(case: Case) -> str:
    size = "" if case.num_parameters is None else count(case.num_parameters, "parameter")
    if case.small:
        return f"reduced: {size}" if size else "reduced size"
    return size


def _launch_counts(result: CaseResult) -> str:
    missing = result.num_planned - result.num_completed - result.num_decided
    told = [f"{result.num_planned} planned", f"{result.num_completed} completed"]
    if result.num_decided:
        told.append(f"{result.num_decided} not needed (decided)")
    return ", ".join([*told, f"{missing} missing"])


def _readings_words(grid: Grid | None) -> str:
    """Telemetry in a line: range and median of each value, and how often it was read."""
    if grid is None:
        return "Not reported: no reading was taken."
    told = (
        f"{name}: {low} to {high}, median {median} ({number} read)"
        if high
        else f"{name}: {low} ({number} read)"
        for name, low, median, high, number in grid.rows
    )
    return f"{'; '.join(told)}."


# ------------------------------------------------------------------ correctness


def _check(result: CheckResult) -> CheckRow:
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
    return "equal" if check.bound == 0 else f"{1 - check.error / check.bound:.0%}"


# ------------------------------------------------------------------ launches and timing


def _launch(result: LaunchResult, ended: LaunchEnded | None, *, is_timing_shown: bool) -> LaunchRow:
    number = result.launch.rpartition("/")[2]
    memory = None if ended is None else ended.peak_memory_bytes
    is_shown = is_timing_shown and number != "0"
    median = None if result.log_seconds is None else math.exp(result.log_seconds) * 1e3
    first = None if result.first_step_seconds is None else result.first_step_seconds * 1e3
    return LaunchRow(
        number=f"{number} (untimed)" if number == "0" else number,
        mode=result.mode or "—",
        outcome=_outcome(result, ended),
        is_completed=result.outcome == "completed",
        memory="—" if memory is None else words.size(memory),
        steps=str(result.num_steps) if is_shown else "",
        median=_milliseconds(median) if is_shown else "",
        first_step=_milliseconds(first) if is_shown else "",
    )


def _milliseconds(value: float | None) -> str:
    return "—" if value is None else words.figure(value)


def _outcome(result: LaunchResult, ended: LaunchEnded | None) -> str:
    told = result.outcome.replace("_", " ")
    if result.outcome == "completed":
        return told
    detail = "" if ended is None else ended.detail
    detail = detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:_LONGEST_DETAIL]}…"
    return (
        told + (f": {result.reason}" if result.reason else "") + (f" ({detail})" if detail else "")
    )


def _timing(case: Case, result: CaseResult, samples: Mapping[str, tuple[float, ...]]) -> Timing:
    timed = [one for one in result.launches if not one.launch.endswith("/0")]
    strips = [_strip(one, samples.get(one.launch, ())) for one in timed]
    interval = _plotted_interval(result.estimates)
    num_samples = sum(len(strip.samples) for strip in strips)
    caption = (
        f"Every timed step of every launch ({count(num_samples, 'sample')}): dots are steps in "
        "their order, a bar is the launch's median"
    )
    if interval is not None:
        caption += "; the shaded band is the interval of the mean over launches"
    if num_samples > plots.MOST_POINTS:
        caption += "; thinned for drawing, with the smallest and largest of each run of steps kept"
    return Timing(
        estimates=_estimates(result.estimates),
        plot=plots.launches(f"Step times of {case.id} by launch", strips, interval),
        caption=f"{caption}. The axis need not begin at zero.",
    )


def _strip(result: LaunchResult, samples: tuple[float, ...]) -> plots.Strip:
    number = result.launch.rpartition("/")[2]
    is_completed = result.outcome == "completed"
    told = result.outcome.replace("_", " ")
    note = f"{told}: {result.reason}" if result.reason else told
    return plots.Strip(
        label=f"{number} {result.mode or ''}" if is_completed else f"{number} {told}",
        samples=samples,
        median=None if result.log_seconds is None else math.exp(result.log_seconds) * 1e3,
        note="" if is_completed or samples else note,
    )


def _plotted_interval(estimates: Sequence[Estimate]) -> tuple[float, float] | None:
    for estimate in estimates:
        if estimate.name == "step_seconds" and None not in (estimate.low, estimate.high):
            low, high = float(estimate.low or 0) * 1e3, float(estimate.high or 0) * 1e3
            return (low, high) if math.isfinite(low) and math.isfinite(high) else None
    return None


def _estimates(estimates: Sequence[Estimate]) -> Grid:
    names: dict[str, list[str]] = {}
    for estimate in estimates:
        names.setdefault(estimate.method, []).append(_quantity_name(estimate))
    return Grid(
        columns=("Quantity", "Estimate", "Interval", "Launches"),
        rows=tuple(
            (
                _quantity_name(estimate),
                words.quantity(estimate.value, estimate.unit),
                _interval(estimate),
                str(estimate.count),
            )
            for estimate in estimates
        ),
        notes=tuple(f"{', '.join(told)}: {method}." for method, told in names.items()),
    )


def _quantity_name(estimate: Estimate) -> str:
    return _QUANTITIES.get(estimate.name, words.label(estimate.name))


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "too few launches" if estimate.confidence is None else NOT_REPORTED
    low, high = (words.quantity(end, estimate.unit) for end in (estimate.low, estimate.high))
    level = "" if estimate.confidence is None else f" ({estimate.confidence:.0%})"
    return f"{low} to {high}{level}"
