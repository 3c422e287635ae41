"""Burn-in on paper: what was covered, what happened, and what a run of that length shows.

A run without an event of a kind bounds how often such events come, and no more: of a Poisson
process that fires at the rate r, T hours are clean with probability exp(-rT), which is 5 % where
r is 3.0/T. So a clean run shows a mean time between mismatches of T/3.0 at least, with 95 %
confidence, of the work and under the conditions that were run. With n events in T hours the lower
bound is 2T over the chi-squared quantile of 2n+2 degrees of freedom, of which that is the case of
none (a test that ends by time; MIL-HDBK-781A, IEC 60605-4).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from markupsafe import Markup
from scipy.special import chdtri

from appliance.evidence.folding import Sampled, spread_of
from appliance.evidence.journal_index import JournalIndex
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.planning.launch_constants import HOT, PLAIN, PROVEN
from appliance.records.journal import Check, Checked
from appliance.stress import kinds
from appliance.stress.aggregates import LASTING, SINGLE
from appliance.stress.table import KindTotal, aggregates_of, totals
from reports import plots, words
from reports.model import BurnInSection, Grid, Row

WORKLOAD = "burn_in"
COVERED = LASTING
"""The check whose `detects_what` says what was covered, in clauses "heading: value"."""
PRODUCTS = re.compile(r"digested blocks: ([\d,]+) products")
LINKS = re.compile(r"chained blocks: ([\d,]+) links")
BYTES = re.compile(r"([\d,]{5,}) bytes\b")
SEEN = re.compile(r"seen at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
FORMAT = re.compile(r"(\w+) ([\d,]+) exact ([\d,]+) random")
CONFIDENCES = (0.6, 0.9, 0.95)
TRACED = (
    ("Power, W", ("power_watts",), 1.0),
    ("Temperature, °C", ("temperature_celsius",), 1.0),
    ("Clock, GHz", ("graphics_clock_hertz", "frequency_hertz"), 1e-9),
)
"""What is drawn: heading, the readings that it may be, and scale."""
PHASES = (HOT, HOT, HOT, "cool", HOT, HOT, HOT, "jumps")
"""Phases of a segment in their order, each of the parameter `phase_seconds`."""
TABLED = frozenset({"Memory tests", "Products by format"})
"""Clauses of a segment whose numbers stand in the table of what was covered, summed over all."""
MOST_PHASES, MOST_SEGMENTS, MOST_EVENTS = 40, 30, 30
NOT_COVERED = (
    (
        "sparse products, convolutions and attention kernels of their own",
        "the rows of other suites",
    ),
    ("links between nodes", "nothing here: a run is of one node"),
    ("decoders, encoders and other fixed-function units", "nothing here"),
    ("other voltages, clocks and temperatures than those shown", "a run under them"),
)
"""What no burn-in of this suite puts under load, and what does."""
STRESS_NOTE = (
    "Bytes a second are those that were written, read or copied, rests included; proven are those "
    "that were read back and compared, every word. The load is shown and not required."
)
LOST_NOTE = "Ended before it was asked to, and fails"
LEFT_NOTE = "Ended without the segments of other devices, and shows nothing"
_FACTOR = 3.0  # -ln(1 - 0.95) is 2.996
_HOUR, _MINUTE = 3600.0, 60.0
_NONE = "—"


def sections(index: JournalIndex) -> tuple[BurnInSection, ...]:
    """One for each case of burn-in, in the plan's order."""
    every = index.cases.values()
    return tuple(
        _section(evidence, index) for evidence in every if evidence.case.workload == WORKLOAD
    )


def _section(evidence: CaseEvidence, index: JournalIndex) -> BurnInSection:
    case = evidence.case
    whole = [launch for launch in evidence.timed if not launch.was_interrupted]
    blocks = [block for launch in whole for block in launch.blocks]
    checks = [checked for launch in whole for checked in launch.checks]
    last = [checked for checked in checks if checked.phase == "last"]
    seconds = sum(event.block_wall_ns for event in blocks) * 1e-9
    rows = [
        Row(label="Device", value=case.device),
        Row(label="Time under test", value=words.span(math.floor(seconds))),
        Row(label="Steps", value=f"{sum(launch.num_steps for launch in whole):,}"),
        _segments(evidence),
    ]
    covered = [event for event in last if event.check.name == COVERED]
    if len(covered) > 1:
        rows.append(_proven(covered))
    for event in _shown_segments(covered):
        note = f"segment {event.launch.rpartition('/')[2]}" if len(covered) > 1 else ""
        rows += [
            Row(label=label, value=sized(value), note=note)
            for label, value in clauses(event.check)
            if event.check.error or label not in TABLED
        ]
    launches = {event.launch for event in blocks}
    is_checked = launches == {event.launch for event in covered} and bool(launches)
    is_clean = is_checked and all(event.check.is_within for event in last)
    drawn = tuple(_plots(evidence, index))
    stress = totals(
        one for launch in whole for one in aggregates_of(checked.check for checked in launch.checks)
    )
    return BurnInSection(
        id=case.id,
        rows=tuple(rows),
        shown=_shown(seconds, is_checked=is_checked, is_clean=is_clean),
        plots=drawn,
        no_plot="" if drawn else _no_plot(evidence),
        coverage=_coverage(covered, seconds),
        stress=_stress(stress),
        bounds=_bounds(evidence, last, seconds) if is_checked else None,
        events=_events(evidence, index, last),
        not_covered=_not_covered(evidence, index, stress),
    )


def _in_words(cause: str) -> str:
    """Why a reading stands out, with the reading's name as the other pages have it."""
    name, _, rest = cause.partition(" ")
    return f"{words.reading(name)[0]} {rest}" if "_" in name else cause


def _shown_segments(covered: Sequence[Checked]) -> list[Checked]:
    """Segments that saw a mismatch, and the last one, for what each covered."""
    return [*(event for event in covered[:-1] if event.check.error), *covered[-1:]]


def _proven(covered: Sequence[Checked]) -> Row:
    """Products of all segments, each of which says its number first."""
    matches = (PRODUCTS.search(event.check.detects_what) for event in covered)
    total = sum(int(match[1].replace(",", "")) for match in matches if match)
    return Row(label="Products proven", value=f"{total:,} in {len(covered):,} segments")


def _segments(evidence: CaseEvidence) -> Row:
    """How many segments were completed, and that what the others had covered is not counted."""
    every = evidence.timed
    completed = sum(launch.is_completed for launch in every)
    interrupted = sum(launch.was_interrupted for launch in every)
    note = "what interrupted ones had covered is not counted" if interrupted else ""
    value = f"{completed:,} of {len(every):,} completed"
    return Row(
        label="Segments",
        value=value + (f", {interrupted:,} interrupted" if interrupted else ""),
        note=note,
    )


def clauses(check: Check) -> list[tuple[str, str]]:
    """Heading and value of each clause of what a check of burn-in covered."""
    pairs = (clause.partition(": ") for clause in check.detects_what.split("; "))
    return [(words.label(head), value) for head, colon, value in pairs if colon]


def sized(text: str) -> str:
    """A clause of the journal with its long numbers of bytes as people write sizes."""
    return BYTES.sub(lambda match: words.size(_number(match[1])), text)


def _shown(seconds: float, *, is_checked: bool, is_clean: bool) -> str:
    if not is_checked:
        return "The last output was not checked, so no bound is claimed."
    if not is_clean:
        return "Not clean: a check of the last output is outside its bound; no bound is claimed."
    return (
        f"No mismatch in {_hours(seconds)} under test: a mismatch comes no more often than once "
        f"in {_hours(seconds / _FACTOR)} on average (MTBF at least T/3.0) with 95 % confidence; "
        "nothing is said of work and conditions that were not run."
    )


def _hours(seconds: float) -> str:
    """A length in hours; one of less in whole minutes and seconds, and never more than it is."""
    return f"{seconds / _HOUR:.3g} h" if seconds >= _HOUR else words.span(math.floor(seconds))


# ------------------------------------------------------------------ over time


def _plots(evidence: CaseEvidence, index: JournalIndex) -> Iterator[tuple[Markup, str]]:
    """The whole run by its segments, and one segment by its phases."""
    begin = words.moment(index.begin_utc)
    if begin is None:
        return
    device = evidence.case.device
    taken = [(utc, one) for utc, one in index.readings if one.device == device]
    segments = [
        plots.Stretch(label=str(launch.number), begin=first, end=last)
        for launch, first, last in _spans(evidence, begin)
    ]
    whole = plots.traces(
        f"Burn-in of {device}: power, temperature and clock",
        tuple(_traces(taken, begin)),
        segments if len(segments) <= MOST_SEGMENTS else (),
    )
    if whole:
        marks = " Lines and numbers mark the segments." if len(segments) <= MOST_SEGMENTS else ""
        yield whole, f"Readings of {device} over the run; what never varied is left out.{marks}"
    yield from _segment_plot(evidence, taken, begin)


def _segment_plot(
    evidence: CaseEvidence, taken: Sequence[tuple[str, Sampled]], begin: datetime
) -> Iterator[tuple[Markup, str]]:
    """The first segment that was completed, with its phases."""
    done = [one for one in _spans(evidence, begin) if one[0].is_completed]
    phase = evidence.case.parameters.get("phase_seconds")
    if not done or not isinstance(phase, int | float):
        return
    launch, first, last = done[0]
    stretches = tuple(
        _recorded_phases(launch, first)
        if launch.phases
        else _phases(first, last, float(phase) / _MINUTE)
    )
    own = [(utc, one) for utc, one in taken if one.launch == launch.id]
    series = tuple(_traces(own, begin, first, last))
    title = f"Segment {launch.number} of {evidence.case.device}, by phases"
    drawn = plots.traces(title, series, stretches)
    if drawn:
        caption = (
            f"Segment {launch.number} with its phases: hot; shaded, cool (a quarter of the time "
            "at work); striped, load in jumps."
        )
        if launch.phases:
            caption += f" They begin and end as the launch recorded it. {_loop_sentence(launch)}"
        else:
            caption += (
                " Phases count steps of about a second, so that their edges are as planned, to a "
                "few seconds."
            )
        yield drawn, caption


def _loop_sentence(launch: LaunchEvidence) -> str:
    """When the plain loop ran, which is too short for a mark of its own."""
    for begin, end in pairwise(launch.phases):
        if begin.phase == PLAIN:
            since, took = begin.passed_ns * 1e-9, (end.passed_ns - begin.passed_ns) * 1e-9
            return (
                f"At {since:.0f} s a plain loop of {took:.1f} s and the same products digested "
                "stand beside each other. "
            )
    return ""


def _recorded_phases(launch: LaunchEvidence, first: float) -> Iterator[plots.Stretch]:
    """Phases as the launch recorded them; the loops are part of the hot one before them."""
    begins: list[tuple[str, float]] = []
    for one in launch.phases:
        kind = {"load in jumps": "jumps", PLAIN: HOT, PROVEN: HOT}.get(one.phase, one.phase)
        kind = HOT if kind == "first products" else kind
        if not begins or begins[-1][0] != kind:
            begins.append((kind, first + one.passed_ns * 1e-9 / _MINUTE))
    if len(begins) > MOST_PHASES:
        return
    for (kind, begin), (_, end) in pairwise(begins):
        yield plots.Stretch(
            label=kind,
            begin=begin,
            end=end,
            is_shaded=kind == "cool",
            is_striped=kind == "jumps",
        )


def _phases(first: float, last: float, length: float) -> Iterator[plots.Stretch]:
    """Phases from the begin of a segment's steps, neighbours of one kind together."""
    if length <= 0 or (last - first) / length > MOST_PHASES:
        return
    begin, number = first, 0
    while begin < last:
        kind, end = PHASES[number % len(PHASES)], begin
        while PHASES[number % len(PHASES)] == kind and end < last:
            end, number = end + length, number + 1
        yield plots.Stretch(
            label=kind,
            begin=begin,
            end=min(end, last),
            is_shaded=kind == "cool",
            is_striped=kind == "jumps",
        )
        begin = end


def _spans(
    evidence: CaseEvidence, begin: datetime
) -> Iterator[tuple[LaunchEvidence, float, float]]:
    """The steps of each segment, in minutes since the run began."""
    for launch in evidence.timed:
        if not launch.blocks or (end := words.moment(launch.moments[-1])) is None:
            continue
        last = (end - begin).total_seconds() / _MINUTE
        held = sum(block.block_wall_ns for block in launch.blocks) * 1e-9 / _MINUTE
        yield launch, last - held, last


def _traces(
    taken: Iterable[tuple[str, Sampled]],
    begin: datetime,
    first: float = float("-inf"),
    last: float = float("inf"),
) -> Iterator[plots.Trace]:
    """Readings that are drawn, in minutes since the run began; of a minute its mean."""
    timed = []
    for utc, one in taken:
        moment = words.moment(utc)
        minutes = None if moment is None else (moment - begin).total_seconds() / _MINUTE
        if minutes is not None and first <= minutes <= last:
            timed.append((minutes, one.values))
    timed.sort(key=lambda item: item[0])
    for heading, names, scale in TRACED:
        for name in names:
            points = tuple(
                (minutes, value * scale)
                for minutes, values in timed
                if (value := values.get(name)) is not None
            )
            if points:
                yield plots.Trace(label=heading, points=points)
                break


def _no_plot(evidence: CaseEvidence) -> str:
    return (
        f"Power, temperature and clock of {evidence.case.device} are not drawn: none was "
        "reported, or none varied."
    )


# ------------------------------------------------------------------ what was covered


def _coverage(covered: Sequence[Checked], seconds: float) -> Grid | None:
    """Formats with their products, memory tests with their bytes, over all ended segments."""
    if not covered:
        return None
    texts = [event.check.detects_what for event in covered]
    hours = seconds / _HOUR
    rows = [
        (f"products in {name}", f"{exact:,}", f"{random:,}", _rate(exact + random, hours))
        for name, (exact, random) in _products(texts).items()
    ]
    links = sum(_number(match[1]) for text in texts if (match := LINKS.search(text)))
    rows.append(("links of the chain", f"{links:,}", _NONE, _rate(links, hours)))
    moved = _bytes(texts)
    rows += [
        (f"memory, {name}", words.size(number), _NONE, f"{words.size(number / seconds)} a second")
        for name, number in moved.items()
        if seconds > 0
    ]
    return Grid(
        columns=("Under test", "Held to exact numbers", "Held to float64 and the first", "Rate"),
        rows=tuple(rows),
        notes=(f"Over {_hours(seconds)} of steps in {words.count(len(covered), 'segment')}.",),
    )


def _products(texts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Products by number format: held to exact ones, and to the first round's."""
    sums: dict[str, tuple[int, int]] = {}
    for text in texts:
        named = FORMAT.findall(_clause(text, "products by format"))
        if not named and (match := PRODUCTS.search(text)):
            half = _number(match[1]) // 2
            named = [(_clause(text, "number format") or "all formats", str(half), str(half))]
        for name, exact, random in named:
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + _number(exact), before[1] + _number(random)
    return sums


def _bytes(texts: Sequence[str]) -> dict[str, int]:
    """Bytes that each memory test wrote and read back, or the patterns together."""
    sums: Counter[str] = Counter()
    for text in texts:
        for part in _clause(text, "memory tests").split(" | "):
            if match := re.fullmatch(r"(.+) [\d,]+ words ([\d,]+) bytes", part):
                sums[match[1]] += _number(match[2])
        if match := re.search(r"read back, ([\d,]+) bytes", _clause(text, "memory patterns")):
            sums["patterns"] += _number(match[1])
    return dict(sums)


def _clause(text: str, heading: str) -> str:
    pairs = (clause.partition(": ") for clause in text.split("; "))
    return next((value for head, _, value in pairs if head == heading), "")


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _rate(number: int, hours: float) -> str:
    return f"{number / hours:,.0f} an hour" if hours > 0 else _NONE


def _stress(stress: Sequence[KindTotal]) -> Grid | None:
    """The load beside the products by kind: what was asked for, reached and proven."""
    if not stress:
        return None
    rows = [
        (
            f"{one.kind}: {kinds.KINDS[one.kind]}",
            sized(one.asked),
            f"{words.size(one.bytes_a_second)} a second, {100 * one.share:.0f} % of the time",
            words.size(one.total.proven)
            + (f", {one.total.products:,} products" if one.total.products else ""),
            f"{one.total.mismatches:,}",
        )
        for one in stress
    ]
    lost = [(one.kind, one.lost - one.left) for one in stress]
    left = [(one.kind, one.left) for one in stress]
    notes = [STRESS_NOTE]
    notes += [
        f"{what}: {words.listed(named)}."
        for what, counted in ((LOST_NOTE, lost), (LEFT_NOTE, left))
        if (
            named := [
                f"{kind} in {words.count(number, 'segment')}" for kind, number in counted if number
            ]
        )
    ]
    notes += [f"{one.kind}: {place}." for one in stress for place in one.places[:MOST_EVENTS]]
    return Grid(
        columns=("Kind", "Load asked for", "Load reached", "Proven", "Mismatches"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _not_covered(evidence: CaseEvidence, index: JournalIndex, stress: Sequence[KindTotal]) -> Grid:
    """What this burn-in says nothing of: by its kind, and what of it did not come to its end."""
    rows = list(NOT_COVERED)
    proven = {one.kind for one in stress if one.total.proven}
    burnt = {one.case.device for one in index.cases.values() if one.case.workload == WORKLOAD}
    rows += [
        (
            f"beside the device: {what}",
            kinds.NO_LINKS if kind == kinds.LINKS and len(burnt) == 1 else f"--stress {kind}",
        )
        for kind, what in kinds.KINDS.items()
        if kind not in proven
    ]
    left = [one for one in evidence.timed if not one.is_completed]
    if left:
        names = ", ".join(str(one.number) for one in left[:MOST_EVENTS])
        rows.insert(0, (f"segments that did not complete: {names}", "resume, or run them again"))
    own = [one for _, one in index.readings if one.device == evidence.case.device]
    silent = [
        heading.partition(",")[0].lower()
        for heading, names, _ in TRACED
        if all(spread_of(name, own) is None for name in names)
    ]
    if silent:
        why = "the device, or who runs it, does not report them"
        rows.append((f"readings of {words.listed(silent)}", why))
    return Grid(columns=("Not covered", "What covers it, or why"), rows=tuple(rows))


# ------------------------------------------------------------------ what happened


def _events(evidence: CaseEvidence, index: JournalIndex, last: Sequence[Checked]) -> Grid | None:
    """Interruptions, failures, mismatches, faults of the kernel's log and excursions, by time."""
    launches = {launch.id: launch for launch in evidence.timed}
    events: list[tuple[str, str, str]] = [
        (utc, "interruption", f"{', '.join(one.interrupted) or 'between launches'} cut short")
        for utc, one in index.resumptions
    ]
    for checked in last:
        if checked.check.error and checked.check.name in (COVERED, SINGLE):
            launch = launches[checked.launch]
            events.append(
                (
                    launch.moments[-1] if launch.moments else "",
                    *_mismatch(launch, checked, _own_readings(evidence, launch, index)),
                )
            )
    for launch in evidence.timed:
        if launch.ended is not None and launch.ended.outcome not in ("completed", "interrupted"):
            events.append(
                ("", f"segment {launch.number}", f"{launch.ended.outcome}, {launch.ended.reason}")
            )
        events += [(utc, _in_words(cause), device) for utc, device, cause in launch.excursions]
    events += [
        ("", f"kernel log: {one.code}", one.meaning)
        for one in index.run.logged.values()
        if one.device in (evidence.case.device, "")
    ]
    if not events:
        return None
    events.sort(key=lambda item: item[0])
    more = len(events) - MOST_EVENTS
    return Grid(
        columns=("Time", "What", "Where"),
        rows=tuple(
            (words.utc(utc) if utc else _NONE, what, where)
            for utc, what, where in events[:MOST_EVENTS]
        ),
        notes=(f"{more:,} more are in journal.jsonl.",) if more > 0 else (),
    )


def _own_readings(
    evidence: CaseEvidence, launch: LaunchEvidence, index: JournalIndex
) -> list[tuple[datetime, Sampled]]:
    """A segment's readings of its device, each with its time."""
    device = evidence.case.device
    own = [
        (words.moment(utc), one)
        for utc, one in index.readings
        if one.launch == launch.id and one.device == device
    ]
    return [(moment, one) for moment, one in own if moment is not None]


def _at_that_time(where: str, timed: Sequence[tuple[datetime, Sampled]]) -> str:
    """What the device was at when a mismatch was seen, by the nearest reading."""
    match = SEEN.search(where)
    seen = words.moment(match[1]) if match else None
    if seen is None or not timed:
        return ""
    moment, one = min(timed, key=lambda item: abs(item[0] - seen))
    read = [
        f"{heading.partition(',')[0].lower()} {words.figure(value * scale)}"
        f"{heading.partition(',')[2]}"
        for heading, names, scale in TRACED
        if (value := next((v for n in names if (v := one.values.get(n)) is not None), None))
        is not None
    ]
    seconds = abs((moment - seen).total_seconds())
    what = f"the mean of {one.count:,} readings around it" if one.count > 1 else "the reading"
    return f" ({', '.join(read)} then: {what}, {seconds:.0f} s apart)" if read else ""


def _mismatch(
    launch: LaunchEvidence, checked: Checked, timed: Sequence[tuple[datetime, Sampled]]
) -> tuple[str, str]:
    """A segment's mismatches: how many, where, and what the device was at then and in its steps."""
    number = int(checked.check.error)
    places = _clause(checked.check.detects_what, "mismatches").partition(": ")[2].split(" | ")
    where = " | ".join(place + _at_that_time(place, timed) for place in places)
    read = []
    for heading, names, scale in TRACED:
        spread = next((one for name in names if (one := spread_of(name, launch.readings))), None)
        if spread is not None:
            low, high = (words.figure(value * scale) for value in (spread.low, spread.high))
            read.append(
                f"{heading.partition(',')[0].lower()} {low} to {high}{heading.partition(',')[2]}"
            )
    parts = [f"segment {launch.number}", where or "gone in every repeat", *read]
    return words.count(number, "mismatch", "mismatches"), "; ".join(part for part in parts if part)


def _bounds(evidence: CaseEvidence, last: Sequence[Checked], seconds: float) -> Grid:
    """Lower bounds of the mean time between events of each kind, by chi-squared."""
    mismatches = sum(
        int(one.check.error)
        for one in last
        if one.check.name in (COVERED, SINGLE) and one.check.error > 0
    )
    outside = sum(not one.check.is_within for one in last)
    failed = sum(
        launch.ended is not None and launch.ended.outcome in ("crashed", "timed_out")
        for launch in evidence.timed
    )
    rows = [
        ("wrong product or word", mismatches or outside),
        ("segment that crashed or hung", failed),
    ]
    hours = seconds / _HOUR
    formula = (
        f"T = {_hours(seconds)} under test, n events: MTBF at least 2T / χ²(c; 2n + 2), the "
        "quantile c of chi-squared with 2n + 2 degrees of freedom, which is T / ln(1 / (1 - c)) "
        "without an event; of events at a constant rate, of this work and under these conditions. "
        "Of interrupted segments nothing is counted that was not checked."
    )
    return Grid(
        columns=("Event", "Seen", *(f"MTBF at least, {100 * one:.0f} %" for one in CONFIDENCES)),
        rows=tuple(
            (name, str(number), *(_bound(hours, number, one) for one in CONFIDENCES))
            for name, number in rows
        ),
        notes=(formula,),
    )


def mtbf(hours: float, events: int, confidence: float) -> float:
    """Hours that the mean time between events is at least, with this confidence."""
    return float(2 * hours / chdtri(2 * events + 2, 1 - confidence))


def _bound(hours: float, events: int, confidence: float) -> str:
    return _hours(mtbf(hours, events, confidence) * _HOUR)
