"""Page 2: how fast each case was, against its limit, the baseline, the datasheet and known rates.

Cases of one row of the suite stand together, whatever devices they ran on: their median, and the
slowest by name. Every figure is the verdict's own, or follows from it by one division with a figure
of baselines, peaks.json or qualified.json. A rate of qualified.json is what the same work did
before; no criterion reads it and no ruling follows from one: it holds for the stack of libraries
that it was observed with, and seldom is of more than one device. A processor has no datasheet here:
what its device file holds are bounds that no rate can exceed, and no vendor's figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.evidence.baseline_key import pairs, peak_for, suite_id, worded
from appliance.evidence.qualification import stack
from appliance.planning.criterion_scope import limited_cases
from appliance.records.journal import NOT_JUDGED, UNJUDGED_FOR_MEMORY
from appliance.records.plan import Case
from appliance.records.qualified import Qualified, ReferenceRate
from appliance.records.system import Device, System
from appliance.records.verdict import (
    CaseResult,
    CheckResult,
    Estimate,
    Ratio,
    Ruling,
    RulingWord,
    Statistic,
    Verdict,
)
from appliance.storage.bundle import Bundle
from appliance.storage.qualified_file import is_same_work
from appliance.version import in_order
from reports import plots, words
from reports.model import Grid, PerformancePage
from reports.words import NOT_REPORTED, count, percent

MOST_DIFFERENCES = 3
"""Of two library stacks, that are named on the page; the records have them all."""
MOST_WEAKEST = 3
MANY = (
    "Of several devices: the median and, in brackets, the slowest; of the limit that of the "
    "slowest, and ✗ with the number of devices beyond it, ◆ of those that were not decided."
)
NOTHING = "—"
_ALWAYS = 3  # columns of the table that stand there with nothing in them too
OWN_LEGEND = (
    "No case has a baseline, a vendor's figure or a reference rate to stand against, so no ratio "
    "is drawn."
)
_SPEEDS = ("units_per_second", "flops_per_second", "bytes_per_second", "window_throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One case whose timing may be shown: its rate and ratios, None where there is none.

    `limit` is how far its tightest limit is met: 1 just so, above 1 with room; `limit_words` says
    what it is. `is_open` says that this limit was not decided, or none of several without a figure.
    `baseline` is speed against the baseline, `datasheet` the share of the vendor's peak,
    `reference` the rate over that of the record `known`.
    """

    case: Case
    row: str
    rate: Estimate | None
    limit: float | None
    limit_words: str
    is_failed: bool
    is_open: bool
    baseline: Ratio | None
    datasheet: float | None
    reference: float | None
    known: ReferenceRate | None

    @property
    def main(self) -> float | None:
        """What its bar shows."""
        ratios = (None if self.baseline is None else self.baseline.ratio, self.reference)
        return next((one for one in (*ratios, self.datasheet) if one is not None), None)


def page(bundle: Bundle, verdict: Verdict, hidden: frozenset[str]) -> PerformancePage:
    """The table of all rows, their ratios drawn, the weakest figures, and what is not shown."""
    speeds = list(_speeds(bundle, verdict, hidden))
    rows: dict[str, list[Speed]] = {}
    for one in speeds:
        rows.setdefault(one.row, []).append(one)
    bars = [_bar(name, own) for name, own in rows.items()]
    drawn = plots.ratios("Speeds against what is known", [one for one in bars if one is not None])
    withheld = [case.id for case in bundle.plan.cases if case.id in hidden]
    return PerformancePage(
        headline=_headline(bundle, verdict),
        grid=_without_empty(
            columns=(
                "Case",
                f"Rate{_level(speeds)}",
                "Limit: how far met",
                "Against baseline",
                "Of datasheet",
                "Against reference",
            ),
            notes=(MANY,) if any(len(own) > 1 for own in rows.values()) else (),
            rows=tuple(_row(name, members) for name, members in rows.items()),
        ),
        plot=drawn,
        legend=_legend([one for one in bars if one is not None], speeds),
        weakest=tuple(_weakest(verdict, speeds)),
        withheld=_withheld(withheld, len(bundle.plan.cases)),
        sources=tuple(_sources(bundle, speeds)),
    )


def _without_empty(
    columns: Sequence[str], rows: Sequence[Sequence[str]], notes: tuple[str, ...]
) -> Grid:
    """The table without those comparisons that no case has: a column of dashes says nothing."""
    held = [i for i in range(len(columns)) if i < _ALWAYS or any(row[i] != NOTHING for row in rows)]
    return Grid(
        columns=tuple(columns[i] for i in held),
        rows=tuple(tuple(row[i] for i in held) for row in rows),
        notes=notes,
    )


def _level(speeds: Sequence[Speed]) -> str:
    """The confidence of the intervals, where all have the same."""
    rates = [one.rate for one in speeds if one.rate is not None]
    levels = {one.confidence for one in rates if one.confidence is not None}
    return " and interval" + (f" ({percent(min(levels))})" if len(levels) == 1 else "")


def _headline(bundle: Bundle, verdict: Verdict) -> str:
    """Whether speed was judged, and by what."""
    if not is_judged(bundle, verdict):
        return (
            "Reported, not judged: no required limit is on times, so a slow device would have "
            "the same verdict."
        )
    limited = len(limited_cases(bundle.criteria, verdict.rulings))
    every = count(len(bundle.plan.cases), "case")
    if limited == len(bundle.plan.cases):
        return f"Judged in {every}: all of the run."
    return f"Judged in {limited:,} of {every}; the rest is reported."


def is_judged(bundle: Bundle, verdict: Verdict) -> bool:
    """Whether any required limit on times was ruled on."""
    return bool(limited_cases(bundle.criteria, verdict.rulings))


def _withheld(cases: Sequence[str], num_cases: int) -> str:
    if not cases:
        return ""
    shown = f"No speed is shown of {len(cases):,} of {count(num_cases, 'case')}"
    named = "" if len(cases) == num_cases else f": {words.rows(cases)}"
    return f"{shown} (each one's section says why){named}."


# ------------------------------------------------------------------ the ratios of a case


def _speeds(bundle: Bundle, verdict: Verdict, hidden: frozenset[str]) -> Iterator[Speed]:
    results = {result.case: result for result in verdict.cases}
    ratios = {one.case: one for one in (() if verdict.score is None else verdict.score.ratios)}
    rulings: dict[str, list[Ruling]] = {}
    for ruling in verdict.rulings:
        rulings.setdefault(ruling.case, []).append(ruling)
    limits = {one.id for one in bundle.criteria.criterion if one.kind == "perf"}
    finder = References(bundle.qualified, bundle.system)
    for case in bundle.plan.cases:
        result = results.get(case.id)
        if case.id in hidden or result is None:
            continue
        rate = _rate(result)
        own = rulings.get(case.id, ())
        limit, limit_words, word = _limit(own)
        is_undecided = any(one.criterion in limits and one.ruling == "inconclusive" for one in own)
        known, _ = finder.last(case)
        yield Speed(
            case=case,
            row=suite_id(case),
            rate=rate,
            limit=limit,
            limit_words=limit_words,
            is_failed=word == "fail",
            is_open=word == "inconclusive" or (limit is None and is_undecided),
            baseline=ratios.get(case.id),
            datasheet=_share(bundle, case, result),
            reference=_against(rate, known),
            known=known,
        )


def _rate(result: CaseResult) -> Estimate | None:
    by_name = {one.name: one for one in result.estimates}
    speed = next((by_name[name] for name in _SPEEDS if name in by_name), None)
    return speed or by_name.get("step_seconds")


def _against(rate: Estimate | None, known: ReferenceRate | None) -> float | None:
    if rate is None or known is None or rate.name != "units_per_second":
        return None
    if not (known.units_per_second > 0 and math.isfinite(rate.value)):
        return None
    return rate.value / known.units_per_second


def _share(bundle: Bundle, case: Case, result: CaseResult) -> float | None:
    """The larger share of the vendor's two peaks; None for a processor."""
    if is_processor(bundle.system, case):
        return None
    seconds = next((one.value for one in result.estimates if one.name == "step_seconds"), 0.0)
    by_memory = replace(case, bound_by="memory")
    peaks = (
        (case.work.flops, peak_for(bundle.peaks, bundle.system, case, "flops_per_second")),
        (case.work.bytes, peak_for(bundle.peaks, bundle.system, by_memory, "bytes_per_second")),
    )
    shares = [done / seconds / peak for done, peak in peaks if done and peak and seconds > 0]
    return max(shares, default=None)


def is_processor(system: System, case: Case) -> bool:
    """Whether a case ran on a processor, whose peaks are bounds and no vendor's figures."""
    return all(one.vendor == "cpu" for one in system.identity.devices if one.id == case.device)


def _limit(rulings: Iterable[Ruling]) -> tuple[float | None, str, RulingWord | None]:
    """How far the tightest limit on a time or a rate is met, that limit, and how it was ruled."""
    met = [
        (ratio, one.statistic, one)
        for one in rulings
        if one.statistic is not None and (ratio := _met(one.statistic)) is not None
    ]
    if not met:
        return None, "", None
    ratio, statistic, ruling = min(met, key=lambda one: one[0])
    limit = words.measured(statistic.metric, statistic.limit or 0.0, statistic.unit)
    is_time = statistic.metric.endswith("_seconds")
    sign = "≤" if is_time else "≥"
    return ratio, f"{sign} {limit}", ruling.ruling


def _met(statistic: Statistic) -> float | None:
    """Limit over a time, or a rate over its limit; None for what is neither."""
    value, limit = statistic.value, statistic.limit
    if limit is None or not (math.isfinite(value) and math.isfinite(limit)):
        return None
    if value <= 0 or limit <= 0:
        return None
    if statistic.metric.endswith("_seconds"):
        return limit / value
    return value / limit if statistic.metric.endswith("_per_second") else None


# ------------------------------------------------------------------ rows and bars


def _row(name: str, members: Sequence[Speed]) -> tuple[str, ...]:
    slowest = _slowest(members)
    if len(members) == 1:
        (one,) = members
        rate = "" if one.rate is None else _rate_words(one.rate)
        label = one.case.id
    else:
        rate = _range_words(members)
        label = f"{name} x\N{NO-BREAK SPACE}{len({one.case.place for one in members})}"
    return (
        label,
        rate or NOT_REPORTED,
        _limit_words(members),
        _ratio_words(
            [(None if one.baseline is None else one.baseline.ratio, one) for one in members]
        ),
        _ratio_words([(one.datasheet, one) for one in members], as_share=True),
        _ratio_words([(one.reference, one) for one in members])
        + (" *" if slowest.known is not None and slowest.known.disturbed else ""),
    )


def _slowest(members: Sequence[Speed]) -> Speed:
    return min(members, key=lambda one: math.inf if one.main is None else one.main)


def _rate_words(rate: Estimate) -> str:
    value = words.measured(rate.name, rate.value, rate.unit)
    if rate.low is None or rate.high is None:
        return value
    low, high = (
        words.in_unit_of(rate.name, rate.value, end, rate.unit) for end in (rate.low, rate.high)
    )
    return f"{value} ({low} to {high})"


def _range_words(members: Sequence[Speed]) -> str:
    known = [(one.rate, one) for one in members if one.rate is not None]
    if not known:
        return ""
    is_time = known[0][0].name == "step_seconds"
    ordered = sorted(known, key=lambda one: one[0].value, reverse=is_time)
    median = statistics.median(one.value for one, _ in known)
    first, slowest = ordered[0]
    name, unit = first.name, first.unit
    low = words.in_unit_of(name, median, first.value, unit)
    return f"{words.measured(name, median, unit)} ({low} on {slowest.case.place})"


def _limit_words(members: Sequence[Speed]) -> str:
    met = [one for one in members if one.limit is not None]
    shapes = {
        "✗": sum(one.is_failed for one in members),
        "◆": sum(one.is_open and not one.is_failed for one in members),
    }
    marks = "".join(
        f" {shape}" if len(members) == 1 else f" {shape} {number}"
        for shape, number in shapes.items()
        if number
    )
    if not met:
        return f"not decided{marks}" if marks else "none"
    tightest = min(met, key=lambda one: one.limit or math.inf)
    return f"{tightest.limit_words}: {_ratio(tightest.limit)}{marks}"


def _ratio_words(pairs_of: Sequence[tuple[float | None, Speed]], *, as_share: bool = False) -> str:
    known = sorted(value for value, _ in pairs_of if value is not None)
    if not known:
        return NOTHING

    def write(value: float) -> str:
        return percent(value) if as_share else _ratio(value)

    if len(known) == 1:
        return write(known[0])
    return f"{write(statistics.median(known))} ({write(known[0])})"


def _ratio(value: float | None) -> str:
    """A ratio to thousandths, one from ten up to three digits."""
    if value is None:
        return NOTHING
    return words.small(value) if value >= 10 else f"{value:.3f}"  # noqa: PLR2004 - beyond it thousandths say nothing


def _bar(name: str, members: Sequence[Speed]) -> plots.RatioBar | None:
    known = [(one.main, one) for one in members if one.main is not None]
    if not known:
        return None
    values = sorted(value for value, _ in known)
    middle = statistics.median(values)
    low, high = (values[0], values[-1]) if len(values) > 1 else _whisker(known[0][1])
    limits = [one.main / one.limit for one in members if one.main is not None and one.limit]
    first = known[0][1]
    is_by_baseline = first.baseline is not None
    is_by_share = not is_by_baseline and first.reference is None
    references = [one.reference for one in members if one.reference is not None]
    shares = [one.datasheet for one in members if one.datasheet is not None]
    return plots.RatioBar(
        label=name if len(members) > 1 else members[0].case.id,
        value=middle,
        figure=percent(middle) if is_by_share else _ratio(middle),
        low=low,
        high=high,
        limit=max(limits, default=None),
        reference=statistics.median(references) if references and is_by_baseline else None,
        datasheet=statistics.median(shares) if shares and not is_by_share else None,
        is_failed=any(one.is_failed for one in members),
    )


def _whisker(one: Speed) -> tuple[float | None, float | None]:
    if one.baseline is not None:
        return one.baseline.low, one.baseline.high
    if one.main is None or one.rate is None or one.rate.low is None or one.rate.high is None:
        return None, None
    ends = sorted(
        one.main * (end / one.rate.value if one.rate.name in _SPEEDS else one.rate.value / end)
        for end in (one.rate.low, one.rate.high)
        if end > 0 and one.rate.value > 0
    )
    return (ends[0], ends[-1]) if ends else (None, None)


def _legend(bars: Sequence[plots.RatioBar], speeds: Sequence[Speed]) -> str:
    """How the drawing is read: of what is on it alone."""
    if not bars:
        return OWN_LEGEND
    compared = {
        "the speed against the baseline": [one.baseline is not None for one in speeds],
        "the speed against the reference rate": [one.reference is not None for one in speeds],
        "the share of the datasheet": [one.datasheet is not None for one in speeds],
    }
    marks = {
        "▮ is the slowest speed that its limit allows": any(one.limit for one in bars),
        "◆ the reference rate": any(one.reference for one in bars),
        "■ the share of the datasheet": any(one.datasheet for one in bars),
        "✗ is outside its limit": any(one.is_failed for one in bars),
        "▶ lies beyond the axis, with its figure": any(map(plots.is_beyond_axis, bars)),
        "a whisker with an arrow goes on beyond it": any(
            one.high is not None and one.high > plots.MOST_RATIO for one in bars
        ),
    }
    drawn = "; ".join(what for what, is_drawn in marks.items() if is_drawn)
    several = len(speeds) > len({one.row for one in speeds})
    whisker = "the slowest and the fastest device" if several else "the interval"
    return (
        "Ratios are speeds: 1.0 is as fast as what is compared with, more is faster. A bar is "
        f"{_compared(compared)}; its whisker is {whisker}."
        + (f" {drawn[0].upper()}{drawn[1:]}." if drawn else "")
    )


def _compared(compared: Mapping[str, Sequence[bool]]) -> str:
    """What the bars are of: what comes first that a case has; a later kind where one lacks it."""
    kinds: list[str] = []
    for what, has in compared.items():
        if any(has):
            kinds.append(what)
        if all(has):
            break
    return ", where there is none ".join(kinds)


# ------------------------------------------------------------------ in words


def _weakest(verdict: Verdict, speeds: Sequence[Speed]) -> Iterator[str]:
    """The three figures of the node that a buyer should ask about first, the worst before."""
    checks = _checks_by_use(verdict)
    sentences = [
        f"{words.cases(cases)}: {NOT_JUDGED}."
        if name == UNJUDGED_FOR_MEMORY
        else f"{words.cases(cases)}: the check “{name}” is outside its bound in {outside} of {made}"
        + (f", at {words.of_bound(share)}." if math.isfinite(share) else ".")
        for share, cases, name, outside, made in _failed_checks(checks)
    ]
    sentences += [
        f"{words.cases(cases)}: {missing:,} of {count(planned, 'launch', 'launches')} are missing."
        for cases, missing, planned in _missing(verdict)
    ]
    slow = sorted(_slow(speeds), key=lambda one: one[0])
    sentences += [sentence for _, sentence in slow]
    sentences += [
        f"{case}: the check “{name}” used {percent(share)} of its bound."
        for share, case, name, outside, _ in checks
        if not outside and share > 0
    ]
    yield from sentences[:MOST_WEAKEST]


def _failed_checks(
    checks: Iterable[tuple[float, str, str, int, int]],
) -> Iterator[tuple[float, list[str], str, int, int]]:
    """The worst check of each row of the suite that was outside its bound, on all its devices."""
    rows: dict[str, list[tuple[float, str, str, int, int]]] = {}
    for one in checks:
        if one[3]:
            rows.setdefault(one[1].partition("@")[0], []).append(one)
    for row in rows.values():
        share, _, name, _, _ = row[0]
        alike = [one for one in row if one[2] == name]
        outside, made = sum(one[3] for one in alike), sum(one[4] for one in alike)
        yield share, sorted({one[1] for one in alike}), name, outside, made


def _missing(verdict: Verdict) -> Iterator[tuple[list[str], int, int]]:
    """The cases of each row that miss launches, how many these are, and of how many."""
    rows: dict[str, list[CaseResult]] = {}
    for result in verdict.cases:
        if result.num_planned > result.num_completed + result.num_decided:
            rows.setdefault(result.case.partition("@")[0], []).append(result)
    for several in rows.values():
        planned = sum(one.num_planned for one in several)
        made = sum(one.num_completed + one.num_decided for one in several)
        yield [one.case for one in several], planned - made, planned


def _slow(speeds: Sequence[Speed]) -> Iterator[tuple[float, str]]:
    """The worst ratio of each row, with what it is of; a row is named once."""
    rows: dict[str, list[tuple[float, str]]] = {}
    for one in speeds:
        for ratio, what in (
            (one.limit, f"of its limit ({one.limit_words})"),
            (None if one.baseline is None else one.baseline.ratio, "of the baseline's speed"),
            (one.reference, "of the reference rate, which is no limit"),
        ):
            if ratio is not None and math.isfinite(ratio):
                sentence = f"{one.case.id} reaches {ratio:.3f} {what}."
                rows.setdefault(one.row, []).append((ratio, sentence))
    for ratios in rows.values():
        yield min(ratios)


def _checks_by_use(verdict: Verdict) -> list[tuple[float, str, str, int, int]]:
    """Each check of a case once, over all its outputs, by what it used of its bound.

    Share of the bound (infinite of an exact one that differs), case, name, how many were outside,
    how many were made. What repeats differ in is no check's bound.
    """
    alike: dict[tuple[str, str], list[CheckResult]] = {}
    for result in verdict.cases:
        for check in result.checks:
            if check.phase != "repeatability" or check.worst.bound > 0:
                alike.setdefault((result.case, check.name), []).append(check)
    used = [
        (
            max(_share_of_bound(one) for one in several),
            case,
            name,
            sum(one.num_outside for one in several),
            sum(one.count for one in several),
        )
        for (case, name), several in alike.items()
    ]
    return sorted(used, key=lambda one: -one[0])


def _share_of_bound(check: CheckResult) -> float:
    error, bound = check.worst.error, check.worst.bound
    if math.isnan(error):
        return math.inf
    if bound > 0:
        return error / bound
    return math.inf if check.num_outside else 0.0


def _sources(bundle: Bundle, speeds: Sequence[Speed]) -> Iterator[str]:
    """Where the compared figures come from."""
    if any(one.baseline is not None for one in speeds):
        runs = sum(one.num_runs for one in bundle.baselines.baseline)
        yield (
            f"Baseline: {count(len(bundle.baselines.baseline), 'case')} of "
            f"{count(runs, 'run')} in baselines.json; the chapter on judging names its bundles."
        )
    sources = dict.fromkeys(
        peak.source for peak in bundle.peaks.peak if any(one.datasheet for one in speeds)
    )
    if sources:
        yield f"Datasheet: {'; '.join(list(sources)[:MOST_DIFFERENCES])}."
    known = [one.known for one in speeds if one.known is not None]
    if known:
        newest = max(one.recorded_utc for one in known)
        versions = words.listed(in_order(one.bench_version for one in known))
        disturbed = sum(bool(one.disturbed) for one in known)
        beside = f"; * {disturbed} of them not of a quiet machine" if disturbed else ""
        yield (
            f"Reference: rates of {count(len(known), 'qualified record')} of "
            f"{words.listed(sorted({one.model for one in known}))} by bench {versions}, the newest "
            f"of {newest[:10]} (qualified.json); for reference, and no limit{beside}."
        )


# ------------------------------------------------------------------ reference rates


class References:
    """The recorded rates of a model, with what its stack of libraries differs in."""

    def __init__(self, qualified: Qualified, system: System) -> None:
        self._rates = qualified.rate
        self._system = system
        self._devices: Mapping[str, Device] = {one.id: one for one in system.identity.devices}
        self._known: dict[tuple[object, ...], tuple[ReferenceRate | None, tuple[str, ...]]] = {}

    def last(self, case: Case) -> tuple[ReferenceRate | None, tuple[str, ...]]:
        """The last rate of this stack, else of another with its differences; None if none is."""
        device = self._devices.get(case.device)
        if device is None or not self._rates:
            return None, ()
        key = (suite_id(case), device.model, case.version, str(case.parameters))
        if key not in self._known:
            self._known[key] = self._found(case, device)
        return self._known[key]

    def _found(self, case: Case, device: Device) -> tuple[ReferenceRate | None, tuple[str, ...]]:
        alike = [
            (one, self._differences(one, case, device))
            for one in self._rates
            if is_same_work(one, case, device.model)
        ]
        own = [pair for pair in alike if not pair[1]]
        if not alike:
            return None, ()
        return max(own or alike, key=lambda pair: pair[0].recorded_utc)

    def _differences(self, one: ReferenceRate, case: Case, device: Device) -> tuple[str, ...]:
        """What the stacks differ in, torch first: its kernels do most of the work."""
        here = stack(self._system, device, case.libraries)
        differing = [item for item in pairs("", one.stack, here) if item[1] != item[2]]
        differing.sort(key=lambda item: item[0] != "torch")
        return tuple(
            f"{name.replace('_', ' ')} {worded(there)}, here {worded(now)}"
            for name, there, now in differing
        )


def reference_sentence(case: Case, finder: References) -> str:
    """The last rate of this stack, else of another and so marked; empty where none is recorded."""
    last, differences = finder.last(case)
    if last is None:
        return ""
    return " ".join((_recorded(last), _stack(differences), *_disturbance(last)))


def _recorded(one: ReferenceRate) -> str:
    rate = words.quantity(one.units_per_second, f"{one.unit}/s")
    return (
        f"{rate} on {count(one.num_devices, 'device')} of this model, {one.model}, recorded "
        f"by bench {one.bench_version} on {one.recorded_utc[:10]}."
    )


def _stack(differences: Sequence[str]) -> str:
    if not differences:
        return "The library stack was the same."
    left = len(differences) - MOST_DIFFERENCES
    more = [f"and {count(left, 'more difference')}"] if left > 0 else []
    return f"The library stack was another: {'; '.join([*differences[:MOST_DIFFERENCES], *more])}."


def _disturbance(one: ReferenceRate) -> tuple[str, ...]:
    return (f"It is not that of a quiet machine: {one.disturbed}.",) if one.disturbed else ()
