"""Cases of one row of the suite on paper, together: what failed, what is tightest, one plot.

A row that ran on one device shows its launches; one of several devices shows its devices side by
side on a common axis, with the slowest by name. All checks, launches, clocks and readings stand in
the appendix, a line each, in tables that all rows share.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from appliance.evidence.baseline_key import suite_id
from appliance.evidence.folding import Spread, spread_of
from appliance.evidence.journal_index import JournalIndex
from appliance.records.journal import NOT_JUDGED, UNJUDGED_FOR_MEMORY
from appliance.records.plan import Case
from appliance.records.verdict import (
    CaseClocks,
    CaseResult,
    CheckResult,
    Estimate,
    Ruling,
    RulingWord,
    Verdict,
)
from reports import cases, plots, words
from reports.model import Appendix, CaseSection, CheckTable, FamilySection, Grid
from reports.words import NOT_REPORTED, count, percent

MOST_FAILED = 4  # open rulings named in a section; the chapter on requirements has them all
MOST_READINGS = 6  # beside one another in a table
FEW_DEVICES = 4  # of a row, up to which the appendix has a line for each
NOTHING = "—"
WHOLE_RUN = "The whole run"
CLOCKS_NOTE = (
    "Of several devices: medians of the times, and the worst of the rest. The clocks that are "
    "compared are that of the samples, the raw clock, and the device's own where it has one. Where "
    "the steps lack more of their block's time than is allowed, the wall of the blocks is judged."
)
PHASES = {"sampled": "drawn", "repeatability": "twice", "repeated": "repeated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A case of a row with what came of it, and its page's section."""

    case: Case
    result: CaseResult
    section: CaseSection
    rulings: tuple[Ruling, ...]


def members(
    index: JournalIndex, verdict: Verdict, sections: Sequence[CaseSection]
) -> Mapping[str, tuple[Member, ...]]:
    """The cases by the row of the suite that they are of, in the plan's order."""
    results = {result.case: result for result in verdict.cases}
    rulings: dict[str, list[Ruling]] = {}
    for ruling in verdict.rulings:
        rulings.setdefault(ruling.case, []).append(ruling)
    rows: dict[str, list[Member]] = {}
    for section, evidence in zip(sections, index.cases.values(), strict=True):
        case = evidence.case
        one = Member(
            case=case,
            result=results.get(case.id) or cases.nothing(case),
            section=section,
            rulings=tuple(rulings.get(case.id, ())),
        )
        rows.setdefault(suite_id(case), []).append(one)
    return {name: tuple(own) for name, own in rows.items()}


def sections(rows: Mapping[str, Sequence[Member]]) -> tuple[FamilySection, ...]:
    """One section for each row of the suite."""
    return tuple(_section(number, name, own) for number, (name, own) in enumerate(rows.items(), 1))


def _section(number: int, name: str, own: Sequence[Member]) -> FamilySection:
    first = own[0].section
    is_single = len(own) == 1
    shown = [one for one in own if one.section.timing is not None]
    timing = first.timing
    return FamilySection(
        number=str(number),
        id=first.id if is_single else name,
        devices="" if is_single else count(len({one.case.place for one in own}), "device"),
        workload=first.workload,
        summary=first.summary,
        scale=first.scale,
        ruling=cases.worst_that_applies(
            [r.ruling for one in own for r in one.rulings if r.required]
        ),
        rulings=tuple(_rulings(own)),
        parameters=first.parameters,
        correct="" if [*_withheld(own)] == [cases.NO_CHECK] else _correct(own),
        failed=tuple(_failed(own)),
        figures=_figures(shown),
        plot=_plot(name, own, shown),
        course=timing.course if is_single and timing else Markup(),
        caption=timing.caption if is_single and timing else _caption(shown),
        notes=tuple(_notes(own)),
        no_timing=tuple(_withheld(own)),
    )


def _rulings(own: Sequence[Member]) -> Iterator[tuple[str, RulingWord, str]]:
    """Each criterion with its worst ruling, and of how many cases."""
    by_criterion: dict[str, list[Ruling]] = {}
    for one in own:
        for ruling in one.rulings:
            by_criterion.setdefault(ruling.criterion, []).append(ruling)
    for name, rulings in by_criterion.items():
        word = cases.worst([one.ruling for one in rulings])
        number = sum(one.ruling == word for one in rulings)
        yield name, word, "" if number == len(rulings) else f"{number} of {len(rulings)}"


def _correct(own: Sequence[Member]) -> str:
    """How many comparisons were within their bounds, and which was the tightest of all."""
    every = [(check, one) for one in own for check in one.result.checks]
    checks = [(check, one) for check, one in every if check.name != UNJUDGED_FOR_MEMORY]
    if not every:
        return "No check was made."
    if not checks:
        return f"Nothing was compared: {NOT_JUDGED}."
    made = sum(check.count for check, _ in checks)
    outside = sum(check.num_outside for check, _ in checks)
    head = (
        f"{count(made, 'comparison')} of {count(len({c.name for c, _ in checks}), 'check')}, "
        f"{f'{outside} outside' if outside else 'all within'} their bounds."
    )
    used = [
        (check.worst.error / check.worst.bound, check, one)
        for check, one in checks
        if check.worst.bound > 0 and math.isfinite(check.worst.error)
    ]
    if not used:
        return f"{head} All are exact: any difference is found."
    share, check, one = max(used, key=lambda item: item[0])
    where = f" on {one.case.place}" if len(own) > 1 else ""
    return f"{head} Tightest{where}: “{check.name}” used {words.of_bound(share)}."


def _failed(own: Sequence[Member]) -> Iterator[str]:
    """What is not a pass, by criterion and reason, the worst first."""
    alike: dict[tuple[RulingWord, bool, str, str], list[Ruling]] = {}
    for one in own:
        for ruling in one.rulings:
            if ruling.ruling in ("fail", "inconclusive"):
                said = ruling.explanation if len(own) == 1 else ruling.criterion
                key = (ruling.ruling, ruling.required, ruling.reason, said)
                alike.setdefault(key, []).append(ruling)
    ordered = sorted(alike.items(), key=lambda item: (not item[0][1], item[0][0] != "fail"))
    for (word, required, reason, _), rulings in ordered[:MOST_FAILED]:
        criteria = words.listed(list(dict.fromkeys(one.criterion for one in rulings)))
        places = list(dict.fromkeys(one.case.partition("@")[2] for one in rulings))
        where = "" if len(own) == 1 else f" on {words.devices(places)}"
        advisory = "" if required else " (informative)"
        yield (
            f"{words.RULINGS[word]} {criteria}{advisory}{where}: "
            f"{_short(rulings[0].explanation or reason)}"
        )
    if len(ordered) > MOST_FAILED:
        yield f"and {len(ordered) - MOST_FAILED} more under requirements"


def _short(text: str, longest: int = 130) -> str:
    """The text, ended between two words where it is too long for a section."""
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0]} …"


def _withheld(own: Sequence[Member]) -> Iterator[str]:
    """Why no timing is shown, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in own:
        if one.section.no_timing:
            reasons.setdefault(one.section.no_timing, []).append(one.case.place)
    for reason, places in reasons.items():
        yield reason if len(own) == 1 else f"On {words.devices(places)}: {reason}"


def _notes(own: Sequence[Member]) -> Iterator[tuple[str, str]]:
    """Place under the roofline and reference; of several devices those of the first that has."""
    timing = next((one.section.timing for one in own if one.section.timing is not None), None)
    if timing is None:
        return
    if timing.scenario:
        yield "", timing.scenario
    if timing.roofline:
        yield "Roofline.", timing.roofline
    if timing.reference:
        yield "For reference, and no limit.", timing.reference


# ------------------------------------------------------------------ figures and plot


def _figures(shown: Sequence[Member]) -> Grid | None:
    if not shown:
        return None
    if len(shown) == 1:
        timing = shown[0].section.timing
        assert timing is not None  # noqa: S101 - what is shown has it
        return _with_one_level([row[:3] for row in timing.estimates.rows])
    names = dict.fromkeys(one.name for member in shown for one in member.result.estimates)
    return Grid(
        columns=("Quantity", "Median of devices", "Slowest to fastest"),
        rows=tuple(_spread(name, shown) for name in names),
    )


def _with_one_level(rows: Sequence[tuple[str, ...]]) -> Grid:
    """The table with the level of confidence in its head, where all intervals have the same."""
    levels = {match[0] for row in rows if (match := re.search(r" \([^()]*%\)$", row[2]))}
    if len(levels) != 1:
        return Grid(columns=("Quantity", "Estimate", "Interval"), rows=tuple(rows))
    (level,) = levels
    return Grid(
        columns=("Quantity", "Estimate", f"Interval{level}"),
        rows=tuple((name, value, ends.removesuffix(level)) for name, value, ends in rows),
    )


def _spread(name: str, shown: Sequence[Member]) -> tuple[str, str, str]:
    known = [
        (one, member)
        for member in shown
        for one in member.result.estimates
        if one.name == name and math.isfinite(one.value)
    ]
    if not known:
        return words.metric(name), NOT_REPORTED, ""
    is_rate = name.endswith("_per_second") or name == "window_throughput"
    ordered = sorted(known, key=lambda item: item[0].value, reverse=not is_rate)
    unit = ordered[0][0].unit
    middle = statistics.median(one.value for one, _ in known)
    (worst, where), (best, _) = ordered[0], ordered[-1]
    low, high = (words.in_unit_of(name, middle, one.value, unit) for one in (worst, best))
    shown_ends = f"{low} ({where.case.place}) to {high}" if low != high else low
    return words.metric(name), words.measured(name, middle, unit), shown_ends


def _plot(name: str, own: Sequence[Member], shown: Sequence[Member]) -> Markup:
    if len(own) == 1:
        timing = own[0].section.timing
        return Markup() if timing is None else timing.plot
    points = [_point(one) for one in shown]
    known = [one for one in points if one is not None]
    limits = [limit for one in shown if (limit := cases.step_limit(one.rulings)) is not None]
    return plots.devices(
        f"Step times of {name} by device", known, min(limits) * 1e3 if limits else None
    )


def _point(one: Member) -> plots.DevicePoint | None:
    step = _step(one.result)
    if step is None:
        return None
    return plots.DevicePoint(
        label=re.sub(r"^.*:", "", one.case.place) if one.case.ranks == 1 else one.case.place,
        value=step.value * 1e3,
        low=None if step.low is None else step.low * 1e3,
        high=None if step.high is None else step.high * 1e3,
        is_marked=any(r.required and r.ruling == "fail" for r in one.rulings),
    )


def _step(result: CaseResult) -> Estimate | None:
    return next((one for one in result.estimates if one.name == "step_seconds"), None)


def _caption(shown: Sequence[Member]) -> str:
    if not shown:
        return ""
    return f"{count(len(shown), 'device')} by number, each with its interval."


def heat_map(rows: Mapping[str, Sequence[Member]]) -> Markup:
    """Rows of the suite by devices: step time against the row's median; nothing for one device."""
    steps = {
        name: {
            one.case.place: step.value
            for one in own
            if one.section.timing is not None and (step := _step(one.result)) is not None
        }
        for name, own in rows.items()
        if len(own) > 1
    }
    steps = {name: own for name, own in steps.items() if len(own) > 1}
    places = list(dict.fromkeys(place for own in steps.values() for place in own))
    lines: list[tuple[str, list[float | None]]] = []
    for name, own in steps.items():
        middle = statistics.median(own.values())
        values = [None if place not in own else own[place] / middle - 1 for place in places]
        lines.append((name, values))
    short = [re.sub(r"^.*:", "", place) if "+" not in place else place for place in places]
    return plots.heat("Step time of each device against its row's median", short, lines)


# ------------------------------------------------------------------ the appendix


def appendix(rows: Mapping[str, Sequence[Member]], index: JournalIndex) -> Appendix:
    """All checks, launches, clocks and readings, in one table each."""
    return Appendix(
        checks=tuple((name, _checks(own, index)) for name, own in _titled(rows)),
        launches=_launches(rows, index),
        failures=_failures(rows),
        clocks=_clocks(rows, index),
        readings=_readings(rows, index),
    )


def _titled(rows: Mapping[str, Sequence[Member]]) -> Iterator[tuple[str, Sequence[Member]]]:
    for name, own in rows.items():
        yield (own[0].case.id if len(own) == 1 else f"{name} x {len(own)}"), own


def _checks(own: Sequence[Member], index: JournalIndex) -> CheckTable:
    """The worst of each check over all outputs and cases of a row; the exact ones in a sentence."""
    alike: dict[tuple[str, bool], list[CheckResult]] = {}
    for one in own:
        for check in one.result.checks:
            key = (check.name, _is_equal(check))
            alike.setdefault(key, []).append(check)
    rows = [_check_line(several) for (_, is_equal), several in alike.items() if not is_equal]
    exact = [f"{name} ({_made(several)})" for (name, equal), several in alike.items() if equal]
    for one in own:
        for row in cases.repeats(index.cases[one.case.id]):
            if row.is_within:
                exact.append(f"{row.name} ({row.count})")
            else:
                rows.append((f"✗ {row.name}", row.count, row.error, row.bound, row.margin, ""))
    return CheckTable(rows=tuple(rows), exact=", ".join(dict.fromkeys(exact)))


def _is_equal(check: CheckResult) -> bool:
    """Whether any difference would have been found, and none was."""
    return check.worst.bound == 0 and check.worst.is_within and not check.num_outside


def _made(several: Sequence[CheckResult]) -> str:
    """How often it was made, by the output that it looked at."""
    counts: dict[str, int] = {}
    for one in several:
        counts[one.phase] = counts.get(one.phase, 0) + one.count
    return ", ".join(f"{number} {PHASES.get(phase, phase)}" for phase, number in counts.items())


def _check_line(several: Sequence[CheckResult]) -> tuple[str, ...]:
    worst = max(several, key=_badness)
    outside = sum(one.num_outside for one in several)
    row = cases.check_row(replace(worst, num_outside=outside))
    return (
        row.name if row.is_within else f"✗ {row.name}",
        _made(several) + (f"; {outside} outside" if outside else ""),
        row.error,
        row.bound,
        row.margin,
        row.detects,
    )


def _badness(one: CheckResult) -> tuple[bool, float]:
    check = one.worst
    share = check.error / check.bound if check.bound > 0 else check.error
    return bool(one.num_outside), math.inf if math.isnan(share) else share


def _launches(rows: Mapping[str, Sequence[Member]], index: JournalIndex) -> Grid:
    """A line for each case; of rows with many devices a line for all of them."""
    lines = [line for name, own in rows.items() for line in _lines_of(name, own, index)]
    return Grid(
        columns=(
            "Case",
            "Launches completed",
            "Peak memory",
            "Steps",
            "Medians of the launches, ms",
            "First step, ms",
            "Series of steps",
            "Autocorrelation",
        ),
        rows=tuple(lines),
    )


def _lines_of(name: str, own: Sequence[Member], index: JournalIndex) -> Iterator[tuple[str, ...]]:
    if len(own) > FEW_DEVICES:
        yield _launch_line(f"{name}, {len(own)} cases", own, index)
    else:
        yield from (_launch_line(one.case.id, [one], index) for one in own)


def _launch_line(label: str, own: Sequence[Member], index: JournalIndex) -> tuple[str, ...]:
    made = [row for one in own for row in one.section.launches]
    timed = [row for row in made if row.steps]
    medians = [row.median for row in timed]
    series = [row.series for row in timed]
    lags = sorted(float(row.lag1) for row in timed if row.lag1 not in ("", NOTHING))
    return (
        label,
        _counts(own),
        _largest_memory(own, index),
        f"{sum(int(row.steps) for row in timed):,}" if timed else NOTHING,
        ", ".join(medians) if len(own) == 1 and len(medians) <= 10 else _ends(medians),  # noqa: PLR2004
        _ends([row.first_step for row in timed]),
        "; ".join(_counted(series)),
        NOTHING
        if not lags
        else (f"{lags[0]:.2f} to {lags[-1]:.2f}" if len(lags) > 1 else f"{lags[0]:.2f}"),
    )


def _counts(own: Sequence[Member]) -> str:
    results = [one.result for one in own]
    planned, done, decided = (
        sum(getattr(one, name) for one in results)
        for name in ("num_planned", "num_completed", "num_decided")
    )
    left = f"; {decided} not needed" if decided else ""
    missing = planned - done - decided
    lacking = f"; {missing} missing" if missing else ""
    return f"{done} of {planned}{left}{lacking}"


def _largest_memory(own: Sequence[Member], index: JournalIndex) -> str:
    sizes = [
        launch.ends[-1].peak_memory_bytes
        for one in own
        for launch in index.cases[one.case.id].launches
        if launch.ends and launch.ends[-1].peak_memory_bytes
    ]
    return words.size(max(sizes)) if sizes else NOTHING


def _ends(texts: Sequence[str]) -> str:
    """The smallest and largest of written numbers, with how many there are."""
    known = sorted(
        (float(text.replace(",", "")), text) for text in texts if text not in ("", NOTHING)
    )
    if not known:
        return NOTHING
    if len(known) == 1 or known[0][1] == known[-1][1]:
        return known[0][1]
    return f"{known[0][1]} to {known[-1][1]}"


def _counted(texts: Iterable[str]) -> list[str]:
    """What is said of launches, with how many it is said of; details of single ones left out."""
    heads = [text.partition(",")[0] for text in texts]
    return [
        head if heads.count(head) == len(heads) else f"{heads.count(head)} {head}"
        for head in dict.fromkeys(heads)
    ]


def _failures(rows: Mapping[str, Sequence[Member]]) -> Grid | None:
    """Every launch that was neither completed nor left out because its case was decided."""
    lines = [
        (one.case.id, row.number, row.outcome)
        for own in rows.values()
        for one in own
        for row in one.section.launches
        if not row.is_completed
    ]
    if not lines:
        return None
    rest = len(lines) - 40
    notes = (f"and {rest} more in verdict.json",) if rest > 0 else ()
    return Grid(columns=("Case", "Launch", "Outcome"), rows=tuple(lines[:40]), notes=notes)


def _clocks(rows: Mapping[str, Sequence[Member]], index: JournalIndex) -> Grid | None:
    """Which clock each case is judged by, and how far its clocks disagree."""
    lines = []
    for label, own in _titled(rows):
        clocks = [one.result.clocks for one in own if one.result.clocks is not None]
        timed = [one for one in own if one.section.timing is not None]
        if not clocks or not timed:
            continue
        judged = dict.fromkeys(
            ("device's events" if c.has_events else "host's steps")
            if c.judged == "steps"
            else "wall of blocks"
            for c in clocks
        )
        costs = [c.overhead_seconds for c in clocks if c.overhead_seconds is not None]
        apart = [cases.clocks_apart(index.cases[one.case.id]) for one in timed]
        known = [one for one in apart if one is not None]
        lines.append(
            (
                label,
                ", ".join(judged),
                words.duration(statistics.median(c.step_seconds for c in clocks)),
                words.duration(statistics.median(c.wall_seconds for c in clocks)),
                words.duration(max(costs)) if costs else "not measured",
                f"{min(c.least_ratio for c in clocks):.4f}",
                _of_allowed(clocks),
                percent(max(known)) if known else "not compared",
            )
        )
    if not lines:
        return None
    return Grid(
        columns=(
            "Case",
            "Judged by",
            "Step by it",
            "Step by the wall",
            "Timing a step costs",
            "Least share of a block in steps",
            "Missing of allowed",
            "Clocks differ at most",
        ),
        rows=tuple(lines),
        notes=(CLOCKS_NOTE,),
    )


def _of_allowed(clocks: Sequence[CaseClocks]) -> str:
    missing, allowed = max(c.missing for c in clocks), min(c.allowed for c in clocks)
    return f"{percent(missing)} of {percent(allowed)}"


def _readings(rows: Mapping[str, Sequence[Member]], index: JournalIndex) -> tuple[Grid, ...]:
    """Smallest, median and largest of each reading while a row's launches ran, some at a time."""
    values = _read(rows, index)
    keys = list(dict.fromkeys(key for seen in values.values() for key in seen))
    spreads = {key: [one for seen in values.values() if (one := seen.get(key))] for key in keys}
    known = [key for key in keys if spreads[key]]
    idle = [key for key in known if not any(one.low or one.high for one in spreads[key])]
    same = {key: text for key in known if key not in idle and (text := _always(key, values))}
    shown = [key for key in known if key not in idle and key not in same]
    missing = [words.reading(key)[0] for key in keys if key not in known]
    if not keys:
        return ()
    notes = []
    if same:
        listed = ", ".join(f"{words.reading(key)[0]} {text}" for key, text in same.items())
        notes.append(f"The same in every reading: {listed}.")
    if idle:
        notes.append(f"0 in every reading: {', '.join(words.reading(key)[0] for key in idle)}.")
    if missing:
        notes.append(f"{count(len(missing), 'reading')} {NOT_REPORTED}: {', '.join(missing)}.")
    labels = [*(label for label, _ in _titled(rows)), WHOLE_RUN]
    columns = {
        key: _column(
            words.reading(key)[0], [_reading(key, seen.get(key)) for seen in values.values()]
        )
        for key in shown
    }
    parts = [shown[i : i + MOST_READINGS] for i in range(0, len(shown), MOST_READINGS)] or [[]]
    return tuple(
        Grid(
            columns=("Case", "Readings", *(columns[key][0] for key in part)),
            rows=tuple(
                (
                    label,
                    str(max((one.num_readings for one in seen.values() if one), default=0)),
                    *(columns[key][1][place] for key in part),
                )
                for place, (label, seen) in enumerate(zip(labels, values.values(), strict=True))
            ),
            notes=tuple(notes) if part is parts[-1] else (),
        )
        for part in parts
    )


def _column(name: str, cells: Sequence[str]) -> tuple[str, Sequence[str]]:
    """A column's head and cells, with the unit in the head where all cells have the same one."""
    ends = [cell.rpartition(" ") for cell in cells if cell != NOT_REPORTED]
    units = {unit for _, _, unit in ends}
    if len(units) != 1 or any(re.search("[^0-9.,/ -]", numbers) for numbers, _, _ in ends):
        return name, cells
    (unit,) = units
    if re.fullmatch("[0-9.,-]*", unit):
        return name, cells
    return f"{name}, {unit}", [cell.removesuffix(f" {unit}") for cell in cells]


def _read(
    rows: Mapping[str, Sequence[Member]], index: JournalIndex
) -> dict[str, dict[str, Spread | None]]:
    """How each reading was spread by row of the suite, and last over the whole run."""
    by_row = {
        name: [
            reading
            for one in own
            for launch in index.cases[one.case.id].launches
            for reading in launch.readings
        ]
        for name, own in rows.items()
    }
    by_row[WHOLE_RUN] = [reading for _, reading in index.readings]
    return {
        name: {
            key: spread_of(key, several)
            for key in dict.fromkeys(key for one in several for key in one.values)
        }
        for name, several in by_row.items()
    }


def _always(key: str, values: Mapping[str, Mapping[str, Spread | None]]) -> str:
    """A reading that was one and the same throughout, as it is written; else nothing."""
    spreads = [seen[key] for seen in values.values() if key in seen]
    read = {end for one in spreads if one is not None for end in (one.low, one.high)}
    (one, *others) = read
    return "" if others or None in spreads else words.reading(key)[1](one)


def _reading(key: str, spread: Spread | None) -> str:
    write = words.reading(key)[1]
    if spread is None:
        return NOT_REPORTED
    if spread.low == spread.high:
        return write(spread.low)
    texts = [write(value) for value in (spread.low, spread.middle, spread.high)]
    units = {text.partition(" ")[2] for text in texts}
    if len(units) == 1 and "" not in units:
        texts = [text.partition(" ")[0] for text in texts[:2]] + texts[2:]
    return " / ".join(texts)
