"""What the pages say, as records of strings: rounded, labelled, cleaned; a template only lays out.

Nothing here holds a number. What a template cannot compute it cannot compute wrongly, and the
HTML and the PDF cannot differ in a figure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from markupsafe import Markup

from appliance.records.verdict import RulingWord, VerdictWord
from reports.words import NOT_REPORTED, clean

T = TypeVar("T")
LONGEST_PAIRED, SHORTEST_PAIRED = 64, 26  # characters of a value that shares its line


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One labelled value; `note` is where it was read, or what would let it be read."""

    label: str
    value: str
    note: str = ""
    is_known: bool = True


def labelled(label: str, value: str, note: str = "") -> Row:
    """A row that is grey where its value is not reported."""
    return Row(label=label, value=value, note=note, is_known=value != NOT_REPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table: `rows` are as wide as `columns`; `notes` stand below it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values under one heading: those shared by all, then what differs from one to the next."""

    title: str
    intro: str = ""
    rows: tuple[Row, ...] = ()
    grid: Grid | None = None
    notes: tuple[str, ...] = ()

    @property
    def beside(self) -> int:
        """How many values share a line: three where all are short, else two."""
        return 3 if all(len(row.value + row.note) <= SHORTEST_PAIRED for row in self.rows) else 2

    @property
    def lines(self) -> tuple[tuple[Row, ...], ...]:
        """The rows as they stand on a page: short ones side by side, a long one alone."""
        lines: list[tuple[Row, ...]] = []
        waiting: list[Row] = []
        for row in self.rows:
            if len(row.value) + len(row.note) > LONGEST_PAIRED:
                lines += [tuple(waiting)] if waiting else []
                lines.append((row,))
                waiting = []
                continue
            waiting.append(row)
            if len(waiting) == self.beside:
                lines.append(tuple(waiting))
                waiting = []
        return (*lines, *([tuple(waiting)] if waiting else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Page 1. `scoped` is the verdict with its scope, `place` the case that decided it, or "".

    `reservations` are what stands against the verdict.

    `digest` is the sha256 over the list of data files, which `code` holds as a QR code.
    """

    word: VerdictWord
    scoped: str
    place: str
    banners: tuple[str, ...]
    counts: str
    decided: str
    recommendation: str
    scope: str
    reservations: tuple[str, ...]
    digest: str
    code: Markup
    subject: tuple[Row, ...]
    devices: Grid
    run: tuple[Row, ...]
    interruptions: str
    signer: tuple[Row, ...]
    limits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformancePage:
    """Page 2: the table of all rows, their ratios drawn, and what to ask about first."""

    headline: str
    grid: Grid
    plot: Markup
    legend: str
    weakest: tuple[str, ...]
    withheld: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One chapter of the contents, with its number and where it begins."""

    number: str
    title: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One criterion with what came of it over all of its cases."""

    id: str
    title: str
    limit: str
    cases: str
    ruling: RulingWord
    counts: str
    reason: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRow:
    """One line of the order beside what was found."""

    number: str
    title: str
    field: str
    ordered: str
    actual: str
    ruling: RulingWord
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTable:
    """The order, line by line."""

    intro: str
    rows: tuple[OrderRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCase:
    """What is said of one case, or of several of which the same is said."""

    cases: str
    explanation: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRuling:
    """Rulings of one criterion that are not a pass, for one reason.

    `action` is what comes next for all of them; empty where each has its own.
    """

    ruling: RulingWord
    criterion: str
    precedence: str
    reason: str
    cases: tuple[OpenCase, ...]
    action: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """The worst comparison of one name and phase."""

    name: str
    phase: str
    count: str
    error: str
    bound: str
    margin: str
    detects: str
    is_within: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch; the times are empty where timing is not shown."""

    number: str
    mode: str
    outcome: str
    is_completed: bool
    memory: str
    steps: str
    median: str
    first_step: str
    series: str
    lag1: str
    effective: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What may be shown of a case whose checks are all within their bounds.

    `course` draws the blocks over the time of the run; empty where there is one moment only.
    `reference` is what the same work did on this model before, empty where nothing is recorded.
    """

    scenario: str
    estimates: Grid
    plot: Markup
    course: Markup
    caption: str
    roofline: str
    reference: str
    clocks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """How the sections of all cases are read, said once."""

    estimates: tuple[str, ...]
    launches: str
    plots: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSection:
    """One case. `timing` None means that none is shown, and `no_timing` says why."""

    number: str
    id: str
    workload: str
    summary: str
    scale: str
    ruling: RulingWord
    rulings: tuple[tuple[str, RulingWord], ...]
    parameters: tuple[Row, ...]
    checks: tuple[CheckRow, ...]
    launches: tuple[LaunchRow, ...]
    launch_counts: str
    timing: Timing | None
    no_timing: str
    readings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySection:
    """The cases of one row of the suite; `devices` is empty where there is one.

    `failed` are its rulings that are not a pass, `correct` says what was checked and what is
    tightest, `figures` are None and `no_timing` says why where no timing may be shown. `rulings`
    have the criterion, its worst ruling, and of how many cases. `notes` have a head and a text.
    """

    number: str
    id: str
    devices: str
    workload: str
    summary: str
    scale: str
    ruling: RulingWord
    rulings: tuple[tuple[str, RulingWord, str], ...]
    parameters: tuple[Row, ...]
    correct: str
    failed: tuple[str, ...]
    figures: Grid | None
    plot: Markup
    course: Markup
    caption: str
    notes: tuple[tuple[str, str], ...]
    no_timing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTable:
    """The checks of one row of the suite: a line for each that has a bound, and what was exact."""

    rows: tuple[tuple[str, ...], ...]
    exact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Appendix:
    """What was checked and measured of every case, a line each.

    `checks` are by row of the suite; `failures` are the launches that
    did not complete, None without any.
    """

    checks: tuple[tuple[str, CheckTable], ...]
    launches: Grid
    failures: Grid | None
    clocks: Grid | None
    readings: tuple[Grid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnInSection:
    """What one case of burn-in covered; `shown` is what follows from it, in a sentence.

    `plots` have power, temperature and clock over time, of the whole run and of one segment with
    its phases; `coverage` is what was under test, `stress` the load beside it, `events` what
    happened, by time.
    """

    id: str
    rows: tuple[Row, ...]
    shown: str
    plots: tuple[tuple[Markup, str], ...] = ()
    no_plot: str = ""
    coverage: Grid | None = None
    stress: Grid | None = None
    bounds: Grid | None = None
    events: Grid | None = None
    not_covered: Grid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """One device: its counters, what it did under load, and its telemetry drawn over the run."""

    title: str
    counters: Grid | None
    load: Grid | None
    plot: Markup
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChapter:
    """The health of the devices; `gaps` is what was not observed, None where all was.

    Of many devices `together` has a line for each, and `devices` is empty.
    """

    devices: tuple[DeviceHealth, ...]
    together: Grid | None
    kernel: Group
    gaps: Grid | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCell:
    """One field of a square; `shade` is "0" (as fast as any) to "4", "gap" or "self"."""

    text: str
    shade: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """What one device sends to each of the others."""

    name: str
    cells: tuple[PairCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSection:
    """A square of every two devices; `rows` are as wide as `columns`."""

    id: str
    summary: str
    columns: tuple[str, ...]
    rows: tuple[PairRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How the limits were judged: risks and bounds, then every comparison with its figures.

    `score` is None without a baseline, `stragglers` of one device alone.
    """

    risks: str
    bounds: Grid | None
    limits: tuple[Group, ...]
    baselines: Group | None
    score: Group | None
    stragglers: Group | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSection:
    """What the time of the run went to, in a sentence, a bar and a table."""

    sentence: str
    plot: Markup
    grid: Grid | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The whole report, ready to be laid out."""

    run_id: str
    subject: str
    generator: str
    created: datetime
    modified: datetime
    is_development: bool
    certificate: Certificate
    performance: PerformancePage
    chapters: tuple[Chapter, ...]
    requirements: tuple[Requirement, ...]
    order: OrderTable | None = None
    open_rulings: tuple[OpenRuling, ...]
    legend: Legend
    cases: tuple[CaseSection, ...]
    families: tuple[FamilySection, ...]
    heat_map: Markup
    appendix: Appendix
    not_planned: tuple[Row, ...] = ()
    burn_in: tuple[BurnInSection, ...] = ()
    pairs: tuple[PairSection, ...] = ()
    health: HealthChapter
    judging: Judging
    budget: BudgetSection
    system: tuple[Group, ...]
    environment: tuple[Group, ...]
    evidence: tuple[Row, ...]
    files: Grid


def cleaned(part: T) -> T:
    """The same record with every text in it cleaned; drawings are made of cleaned text already."""
    return _cleaned(part)  # type: ignore[no-any-return]


def _cleaned(part: Any) -> Any:
    if isinstance(part, Markup):
        return part
    if isinstance(part, str):
        return clean(part)
    if isinstance(part, tuple):
        return tuple(_cleaned(item) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {
            field.name: _cleaned(getattr(part, field.name)) for field in dataclasses.fields(part)
        }
        return dataclasses.replace(part, **fields)
    return part
