"""How each limit was judged, on paper: what was measured, what it was compared with, how surely.

A vendor who disputes a ruling begins here: every figure that decided it stands beside the value
that it had to reach, with the interim analysis at which it did. No figure is shown for a case
whose check failed, whatever the verdict's record holds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from appliance.evidence.journal_index import JournalIndex
from appliance.planning.criterion_scope import alphas
from appliance.records.baseline import Baseline, Peak
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import InterimAnalysis
from appliance.records.plan import Bounds, Plan
from appliance.records.verdict import Ratio, Ruling, Score, Statistic, Straggler, Verdict
from appliance.storage.bundle import Bundle
from reports import guard_bands, words
from reports.model import Grid, Group, Judging, Row
from reports.words import count, percent

WITHHELD = "withheld"
NOTHING = "—"
MOST_NAMED = 8  # devices of a baseline
MOST_ROWS = 24  # of one table; a small run has them all
MOST_NAMED = 8  # cases of which the same is said, by name
BOUNDS_NOTE = (
    "At an interim analysis of n launches Student's t with n - 1 degrees of freedom is compared "
    "with the value that has the same tail probability; exact tests of rates spend the same risk "
    "over the interim analyses."
)
ATTEMPTS_NOTE = "Shown are those of this attempt; plan.json has those of all that it allows."
BASELINES_NOTE = (
    "The smallest margin is that at which a healthy run of such a spread passes; baselines.json "
    "has the software and settings that must be the same."
)
_CHANCE = ("perf", "tail", "drift")
_MOST_DIGESTS = 2  # of the bundles behind a baseline; baselines.json has them all


def chapter(
    bundle: Bundle,
    verdict: Verdict,
    criteria: Sequence[Criterion],
    hidden: frozenset[str],
    index: JournalIndex,
) -> Judging:
    """The annex; `criteria` with those always required, `hidden` the cases without timing."""
    plan = bundle.plan
    with_figures = [
        (criterion, rulings)
        for criterion in criteria
        if (rulings := [one for one in verdict.rulings if one.criterion == criterion.id])
        and (criterion.kind in _CHANCE or any(one.statistic for one in rulings))
    ]
    return Judging(
        risks=risks(plan, bundle.criteria, index.attempt),
        bounds=_bounds(plan, bundle.criteria, index.attempt),
        limits=(
            *(
                _limit(criterion, rulings, bundle, index.interim_analyses, hidden)
                for criterion, rulings in with_figures
                if not _is_single(rulings)
            ),
            *_single([pair for pair in with_figures if _is_single(pair[1])], bundle),
        ),
        baselines=_baselines(bundle.baselines.baseline),
        score=None if verdict.score is None else _score(verdict.score, hidden),
        stragglers=_stragglers(verdict.stragglers)
        if verdict.stragglers or len(bundle.system.identity.devices) > 1
        else None,
    )


# ------------------------------------------------------------------ risks and bounds


def risks(plan: Plan, criteria: Criteria, attempt: int) -> str:
    """The stated risks of buyer and vendor in this attempt, in one sentence; 0: not counted."""
    if plan.num_limits == 0:
        return (
            "No required limit is on times, so chance has no part in the verdict: "
            "neither buyer nor vendor bears a stated risk."
        )
    passing, _ = alphas(criteria, plan.num_limits, attempt)
    of_all = ""
    if attempt:
        whole, part = percent(criteria.alpha_pass), attempt * (attempt + 1)
        of_all = f", 1/{part} of the {whole} that all attempts at the challenge share"
    limits = "the limit" if plan.num_limits == 1 else f"any of the {plan.num_limits:,} limits"
    return (
        f"Buyer's (consumer's) risk: at most {percent(passing)} that a device at or beyond "
        f"{limits} on times passes it{of_all}; "
        f"vendor's (producer's): at most {percent(criteria.alpha_fail)} that "
        "a run within all limits is rejected."
    )


def _bounds(plan: Plan, criteria: Criteria, attempt: int) -> Grid | None:
    if not plan.bounds:
        return None
    return Grid(
        columns=(
            "Test",
            "Risk",
            "After launches",
            "Bound at each interim analysis, standard normal",
        ),
        rows=tuple(
            (
                _test(bounds, plan, criteria, attempt),
                percent(bounds.alpha),
                ", ".join(map(str, bounds.interim_analyses)),
                ", ".join(f"{bound:.4f}" for bound in bounds.z),
            )
            for bounds in plan.bounds
            if not attempt or bounds.alpha in alphas(criteria, plan.num_limits, attempt)
        ),
        notes=(BOUNDS_NOTE, *((ATTEMPTS_NOTE,) if attempt else ())),
    )


def _test(bounds: Bounds, plan: Plan, criteria: Criteria, attempt: int) -> str:
    passing, failing = alphas(criteria, plan.num_limits, attempt)
    names = [name for name, risk in (("pass", passing), ("fail", failing)) if risk == bounds.alpha]
    return " and ".join(names) or "not used"


# ------------------------------------------------------------------ what a criterion demands


def limit_words(criterion: Criterion, criteria: Criteria) -> str:
    """The limit of a criterion as it was written, with what it is measured by."""
    within = criterion.within_of_baseline
    limits = []
    if criterion.at_least is not None:
        of = f" of {criterion.against}" if criterion.against else ""
        limits.append(f"at least {_written(criterion, criterion.at_least)}{of}")
    if criterion.at_most is not None:
        limits.append(f"at most {_written(criterion, criterion.at_most)}")
    if criterion.equals is not None:
        limits.append(f"equal to {words.scalar(criterion.equals, criterion.unit)}")
    if criterion.fraction_of_peak is not None:
        limits.append(f"at least {percent(criterion.fraction_of_peak)} of the vendor's peak")
    if within == "class":
        limits.append(
            f"no slower than the baseline by more than {_class_margins(criteria.margins)}"
        )
    elif isinstance(within, float | int):
        limits.append(f"no slower than the baseline by more than {percent(within)}")
    if criterion.margin is not None:
        limits.append(f"practical margin {percent(criterion.margin)}")
    return f"{_measure(criterion)} {', '.join(limits)}" if limits else ""


def _measure(criterion: Criterion) -> str:
    if criterion.kind == "inventory":
        return criterion.metric
    if criterion.quantile is not None:
        return f"{words.metric(criterion.metric)}, quantile {criterion.quantile:g},"
    return words.metric(criterion.metric)


def _written(criterion: Criterion, limit: float) -> str:
    return (
        f"{limit:,.6g} {criterion.unit}"
        if criterion.unit
        else words.measured(criterion.metric, limit, "")
    )


def _class_margins(margins: Mapping[str, float]) -> str:
    """The margins of the classes, those of one size together."""
    sizes: dict[float, list[str]] = {}
    for name, margin in margins.items():
        sizes.setdefault(margin, []).append(name)
    margins_by_class = [f"{percent(size)} ({', '.join(names)})" for size, names in sizes.items()]
    return " or ".join(margins_by_class)


# ------------------------------------------------------------------ every comparison


def _is_single(rulings: Sequence[Ruling]) -> bool:
    """Whether a criterion has one ruling, which is of the run."""
    return len(rulings) == 1 and not rulings[0].case


def _single(pairs: Sequence[tuple[Criterion, Sequence[Ruling]]], bundle: Bundle) -> Iterable[Group]:
    """Criteria with one ruling each, together."""
    rows = []
    for criterion, (ruling,) in pairs:
        value = limit = NOTHING
        if ruling.statistic is not None:
            _, _, value, limit, _ = _row(ruling, ruling.statistic, {})
        rows.append(
            (
                f"{criterion.id}: {criterion.title}",
                words.RULINGS[ruling.ruling],
                value,
                limit,
                limit_words(criterion, bundle.criteria),
            )
        )
    if rows:
        columns = ("Criterion", "Ruling", "Value", "Limit", "As it was written")
        yield Group(title="Limits on the run", grid=Grid(columns=columns, rows=tuple(rows)))


def _limit(
    criterion: Criterion,
    rulings: Sequence[Ruling],
    bundle: Bundle,
    interim_analyses: Mapping[str, InterimAnalysis],
    hidden: frozenset[str],
) -> Group:
    closed = hidden if criterion.kind in _CHANCE else frozenset()
    tabled = [one for one in rulings if one.statistic is not None and one.case not in closed]
    has_t = any(one.statistic is not None and one.statistic.t_pass is not None for one in tabled)
    level = _level(tabled)
    columns = ["Case", "Ruling", f"Value and interval{level}", "Limit (its source)"]
    columns.append("Of how many, left at")
    if has_t:
        columns += ["t for a pass", "t for a fail", "Spread of launches (for a pass)"]
        columns += ["Accepted up to", "Standard uncertainty (degrees of freedom)"]
    row = _t_row if has_t else _row
    shown = _tightest(tabled)
    part = guard_bands.common_part([one.statistic for one in tabled if one.statistic])
    seen = interim_analyses if criterion.kind in _CHANCE else {}
    return Group(
        title=f"{criterion.id}: {criterion.title}",
        intro=_sentence(limit_words(criterion, bundle.criteria)),
        grid=Grid(
            columns=tuple(columns),
            rows=tuple(
                _said_once(row(one, one.statistic, seen), level, part)
                for one in shown
                if one.statistic
            ),
            notes=(*([f"Of each uncertainty{part}."] if part else []), *_left_out(tabled, shown)),
        )
        if tabled
        else None,
        notes=(*_unfigured(rulings, closed), *_peak_notes(criterion, bundle)),
    )


def _level(tabled: Sequence[Ruling]) -> str:
    """The confidence of the intervals, where all have the same."""
    levels = {one.statistic.confidence for one in tabled if one.statistic is not None}
    (level, *others) = levels or {None}
    return "" if others or level is None else f", {percent(level)}"


def _said_once(row: tuple[str, ...], level: str, part: str) -> tuple[str, ...]:
    """A row that does not repeat the level in the head and the baseline's part in the note."""
    head, value, rest = row[:2], row[2], row[3:]
    return (
        *head,
        value.replace(f"{level})", ")") if level else value,
        *(cell.removesuffix(part) if part else cell for cell in rest),
    )


def _tightest(tabled: Sequence[Ruling]) -> Sequence[Ruling]:
    """All of a few; of many those that are no pass, then those nearest to their limit."""
    if len(tabled) <= MOST_ROWS:
        return tabled
    ordered = sorted(tabled, key=lambda one: (one.ruling == "pass", _room(one.statistic)))
    return ordered[:MOST_ROWS]


def _room(statistic: Statistic | None) -> float:
    """How far a figure is from its limit, in ln; what has none comes last."""
    if statistic is None or statistic.limit is None:
        return math.inf
    value, limit = statistic.value, statistic.limit
    if not (value > 0 and limit > 0 and math.isfinite(value) and math.isfinite(limit)):
        return math.inf
    return abs(math.log(value / limit))


def _left_out(tabled: Sequence[Ruling], shown: Sequence[Ruling]) -> tuple[str, ...]:
    """How many rulings are not in the table, by their word."""
    rest = [one.ruling for one in tabled if not any(one is other for other in shown)]
    if not rest:
        return ()
    counted = ", ".join(
        f"{rest.count(word):,} {word.replace('_', ' ')}" for word in dict.fromkeys(rest)
    )
    shown_are = "Shown are what is no pass and what is nearest to its limit"
    return (f"{shown_are}; {len(rest):,} more ({counted}) stand in verdict.json.",)


def _sentence(text: str) -> str:
    return f"{text}." if text else ""


def _row(
    ruling: Ruling, statistic: Statistic, interim_analyses: Mapping[str, InterimAnalysis]
) -> tuple[str, ...]:
    limit = (
        NOTHING
        if statistic.limit is None
        else words.measured(statistic.metric, statistic.limit, statistic.unit)
    )
    return (
        ruling.case or "all",
        words.RULINGS[ruling.ruling],
        _value(statistic),
        f"{limit} ({statistic.limit_source})" if statistic.limit_source else limit,
        _counted(statistic, interim_analyses.get(ruling.case)),
    )


def _t_row(
    ruling: Ruling, statistic: Statistic, interim_analyses: Mapping[str, InterimAnalysis]
) -> tuple[str, ...]:
    return (
        *_row(ruling, statistic, interim_analyses),
        _against(statistic.t_pass, statistic.critical_pass),
        _against(statistic.t_fail, statistic.critical_fail),
        _spread(statistic),
        *guard_bands.cells(statistic),
    )


def _value(statistic: Statistic) -> str:
    value = words.measured(statistic.metric, statistic.value, statistic.unit)
    ends = [
        None
        if end is None
        else words.in_unit_of(statistic.metric, statistic.value, end, statistic.unit)
        for end in (statistic.low, statistic.high)
    ]
    level = "" if statistic.confidence is None else f", {percent(statistic.confidence)}"
    if ends[0] is None and ends[1] is None:
        return value
    if ends[0] is None:
        return f"{value} (at most {ends[1]}{level})"
    if ends[1] is None:
        return f"{value} (at least {ends[0]}{level})"
    return f"{value} ({ends[0]} to {ends[1]}{level})"


def _counted(statistic: Statistic, analysis: InterimAnalysis | None) -> str:
    """What the figure was made of, and the interim analysis at which its case was left."""
    if analysis is None:
        return f"{statistic.count:,}"
    is_open = "" if analysis.is_decided else " (open)"
    made = "" if statistic.count == analysis.launches else f"{statistic.count:,}, "
    return f"{made}at {analysis.launches}{is_open}"


def _against(value: float | None, critical: float | None) -> str:
    """A statistic and the value that it had to reach."""
    if value is None or critical is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.2f} {'≥' if value >= critical else '<'} {critical:.2f}"


def _spread(statistic: Statistic) -> str:
    """The spread between launches, and the one that the test for a pass took."""
    if statistic.log_sd is None:
        return NOTHING
    used = statistic.log_sd_used
    if used is None or not math.isfinite(used) or used == statistic.log_sd:
        return percent(statistic.log_sd)
    return f"{percent(statistic.log_sd)} ({percent(used)})"


def _unfigured(rulings: Sequence[Ruling], closed: frozenset[str]) -> Iterable[str]:
    """The cases that are not in the table, and why."""
    withheld = [one.case for one in rulings if one.case in closed and one.statistic is not None]
    if withheld:
        yield f"Withheld, because no timing of them is shown: {_listed(withheld)}."
    without = [one for one in rulings if one.statistic is None and one.case]
    reasons = dict.fromkeys((one.ruling, one.explanation) for one in without)
    for ruling, explanation in reasons:
        named = [
            one.case for one in without if (one.ruling, one.explanation) == (ruling, explanation)
        ]
        reason = f": {explanation}" if explanation else ""
        yield f"Without figures ({words.RULINGS[ruling]}){reason}: {_listed(named)}."


def _listed(cases: Sequence[str]) -> str:
    return words.cases(cases)


def _peak_notes(criterion: Criterion, bundle: Bundle) -> Iterable[str]:
    """The vendor's figures that a part of the peak may be of, with where they were published."""
    if criterion.fraction_of_peak is None:
        return
    formats = {case.work.precision for case in bundle.plan.cases if case.work.precision}
    for peak in bundle.peaks.peak:
        is_of_memory = peak.quantity == "memory_bytes_per_second"
        is_of_bytes = criterion.metric == "bytes_per_second"
        if is_of_memory if is_of_bytes else _format(peak) in formats:
            doubt = "" if peak.is_confirmed else ", read in one second-hand source only"
            figure = f"{words.quantity(peak.value, peak.unit)} per {peak.per}"
            origin = f"{words.label(peak.quantity)} {figure}, from {peak.source}{doubt}"
            yield f"Peak of {peak.model}: {origin}."


def _format(peak: Peak) -> str:
    return peak.quantity.partition("_")[0]


# ------------------------------------------------------------------ baselines and score


def _baselines(baselines: Sequence[Baseline]) -> Group | None:
    """What this run may be compared with, and from which bundles that came."""
    if not baselines:
        return None
    columns = ("Case", "Made of", "Step time", "Spread", "Smallest margin", "Bundles, sha256")
    rows = [
        (
            one.key.case,
            _origin(one),
            words.duration(math.exp(one.steps.log_seconds)),
            _baseline_spread(one),
            percent(one.smallest_margin),
            _digests(one.bundles),
        )
        for one in baselines
    ]
    alike = [i for i in range(len(columns)) if len(rows) > 1 and len({row[i] for row in rows}) == 1]
    own = [i for i in range(len(columns)) if i not in alike]
    return Group(
        title=f"Baselines ({len(baselines)})",
        rows=tuple(Row(label=f"{columns[i]}, all", value=rows[0][i]) for i in alike),
        grid=Grid(
            columns=tuple(columns[i] for i in own),
            rows=tuple(tuple(row[i] for i in own) for row in rows),
            notes=(BASELINES_NOTE,),
        ),
    )


def _origin(one: Baseline) -> str:
    runs, launches = count(one.num_runs, "run"), count(one.num_launches, "launch", "launches")
    if one.kind == "same_device":
        devices = one.devices
        own = (
            f"these {len(devices)} devices, which baselines.json names"
            if len(devices) > MOST_NAMED
            else f"this device: {', '.join(devices)}"
        )
        return f"{own}; {runs}, {launches}"
    return f"{count(len(one.devices), 'device')} of {one.key.model}; {runs}, {launches}"


def _baseline_spread(one: Baseline) -> str:
    level = one.steps
    spread = (
        f"{percent(level.launch_sd)} between launches, {percent(level.run_sd)} between means of "
        f"runs of {count(level.run_launches, 'launch', 'launches')}"
    )
    if level.device_sd is not None:
        spread += f", {percent(level.device_sd)} between devices"
    if level.tolerance is not None:
        limit = level.tolerance
        spread += (
            f"; tolerance limit {words.duration(math.exp(limit.log_limit))} for "
            f"{percent(limit.p)} of devices with confidence {percent(limit.gamma)}, "
            f"k {limit.k:.3f}"
        )
    return spread


def _digests(bundles: Sequence[str]) -> str:
    rest = len(bundles) - _MOST_DIGESTS
    return ", ".join(bundles[:_MOST_DIGESTS]) + (f" and {rest} more" if rest > 0 else "")


def score_words(score: Score | None, hidden: frozenset[str]) -> str:
    """The suite score in a sentence, and what it is not."""
    if score is None:
        return "none: no case has a comparable baseline"
    if any(one.case in hidden for one in score.ratios):
        return f"{WITHHELD}: it counts a case of which no timing is shown"
    left = f", {len(score.left_out)} left out" if score.left_out else ""
    ends = (
        f"{score.low:.4f} to {score.high:.4f}, {percent(score.confidence)}"
        if score.low is not None and score.high is not None
        else "no interval"
    )
    return (
        f"{score.value:.4f} ({ends}) of the baseline's speed over "
        f"{count(len(score.ratios), 'case')}{left}; never offsets a criterion"
    )


def _ratio(one: Ratio) -> str:
    ends = "" if one.low is None or one.high is None else f" ({one.low:.4f} to {one.high:.4f})"
    return f"{one.ratio:.4f}{ends}"


def _slowest(ratios: Sequence[Ratio]) -> Sequence[Ratio]:
    """All of a few; of many the slowest."""
    if len(ratios) <= MOST_ROWS:
        return ratios
    return sorted(ratios, key=lambda one: one.ratio)[:MOST_ROWS]


def _score(score: Score, hidden: frozenset[str]) -> Group:
    phrase = score_words(score, hidden)
    if phrase.startswith(WITHHELD):
        return Group(title="Suite score", notes=(_sentence(f"{phrase[:1].upper()}{phrase[1:]}"),))
    return Group(
        title="Suite score",
        grid=Grid(
            columns=("Case", "Weight", "Speed against the baseline", "Launches"),
            rows=tuple(
                (
                    one.case,
                    percent(one.weight),
                    _ratio(one),
                    str(one.count),
                )
                for one in _slowest(score.ratios)
            ),
        ),
        notes=tuple(
            filter(
                None,
                (
                    (
                        f"Weighted geometric mean {phrase}. Above 1 is faster. "
                        "Intervals hold the baseline's own error and how far runs vary; where they "
                        "are missing, launches or runs of the baseline are too few."
                    ),
                    f"Shown are the {MOST_ROWS} slowest; verdict.json has all "
                    f"{len(score.ratios):,}."
                    if len(score.ratios) > MOST_ROWS
                    else "",
                    _sentence(f"Left out: {_listed(score.left_out)}" if score.left_out else ""),
                ),
            )
        ),
    )


# ------------------------------------------------------------------ stragglers


def _stragglers(stragglers: Sequence[Straggler]) -> Group:
    title = "Devices against each other"
    if not stragglers:
        reason = "Not compared: it needs several devices that all ran the same timed workloads."
        return Group(title=title, notes=(reason,))
    flagged = [one for one in stragglers if one.is_flagged]
    named = (
        f"Slower than its neighbours: {', '.join(map(_named, flagged))}."
        if flagged
        else "No device is slower than its neighbours by more than chance explains."
    )
    return Group(
        title=title,
        grid=Grid(
            columns=(
                "Device",
                "Step time",
                "t",
                "Critical",
                "First half",
                "Second half",
                "Workloads",
                "",
            ),
            rows=tuple(
                (
                    one.device,
                    _signed(one.effect),
                    f"{one.t:.2f}" if math.isfinite(one.t) else NOTHING,
                    f"{one.critical:.2f}",
                    _signed(one.first_half),
                    _signed(one.second_half),
                    str(one.num_workloads),
                    "✗ straggler" if one.is_flagged else "",
                )
                for one in stragglers
            ),
        ),
        notes=(named, *_job_loss(stragglers)),
    )


def _named(one: Straggler) -> str:
    return f"{one.device} by {percent(one.effect)}"


def _signed(value: float) -> str:
    return f"{value * 100:+.2f} %" if math.isfinite(value) else words.figure(value)


def _job_loss(stragglers: Sequence[Straggler]) -> Iterable[str]:
    """What a job that waits for its slowest device loses here.

    An effect is against the mean of the other n - 1 devices, in ln(seconds) n / (n - 1) times
    the distance from the mean of all.
    """
    num = len(stragglers)
    if not all(math.isfinite(one.effect) and one.effect > -1 for one in stragglers):
        return
    distances = [math.log1p(one.effect) * (num - 1) / num for one in stragglers]
    slowest = max(stragglers, key=lambda one: one.effect).device
    yield (
        f"A job that waits for all {num} devices at each step goes at the pace of {slowest}: "
        f"predicted loss {percent(math.expm1(max(distances)))} against the devices' mean; "
        f"the devices' spread is {percent(statistics.stdev(distances))}."
    )
