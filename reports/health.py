"""The health of the devices on paper: what grew, what slowed them down, what the kernel said.

Everything here is of the ledger, which the rulings use too. What could not be observed stands in
one list with the permission or option that would allow it, so that an empty table is never taken
for a healthy device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from appliance.evidence.device_health import (
    SHARE,
    Count,
    Ledger,
    Observed,
    of_devices,
)
from appliance.evidence.folding import Sampled, spread_of
from appliance.evidence.journal_index import JournalIndex
from appliance.records.criteria import Criteria
from appliance.records.journal import KernelLogged
from appliance.records.system import Device
from appliance.records.vocabulary import THROTTLES
from reports import plots, words
from reports.model import DeviceHealth, Grid, Group, HealthChapter
from reports.words import NOT_REPORTED, count, label, percent

TRACED = (
    ("Clock, GHz", ("graphics_clock_hertz", "frequency_hertz"), 1e-9),
    ("Power, W", ("power_watts",), 1.0),
    ("Temperature, °C", ("temperature_celsius",), 1.0),
)
"""What is drawn over the run: its heading, the readings that it may be, and its scale."""
LINKS = {"pcie_width": "PCIe lanes", "pcie_generation": "PCIe generation"}
TIME = "_ns"
"""How the name of a counter ends that counts nanoseconds."""
MOST_APART = 4  # devices, up to which each has tables and a drawing of its own
LARGEST = "the largest"
UNREAD = "No counter and no reading under load is reported of it."
UNDECIDED = "undecided"
_MOST_FAULTS = 20  # of the kernel's log; journal.jsonl has them all
_NONE = "—"


def chapter(criteria: Criteria, devices: Sequence[Device], index: JournalIndex) -> HealthChapter:
    """One part for each device of the plan, the kernel's messages, and what was not observed."""
    ledgers = of_devices(devices, tuple(index.cases.values()), "run")
    metrics = {one.metric for one in criteria.criterion if one.kind == "health"}
    is_large = len(ledgers) > MOST_APART
    return HealthChapter(
        devices=()
        if is_large
        else tuple(_device(one, metrics, index, is_alone=len(ledgers) == 1) for one in ledgers),
        together=_together(ledgers, index) if is_large else None,
        kernel=_kernel(ledgers),
        gaps=_gaps(ledgers),
    )


def _device(one: Ledger, metrics: set[str], index: JournalIndex, *, is_alone: bool) -> DeviceHealth:
    counters, load, notes = _counters(one, is_alone=is_alone), _load(one), _notes(one, metrics)
    drawn = plots.traces(f"Telemetry of {one.device.id}", tuple(_traces(one.device.id, index)))
    return DeviceHealth(
        title=f"{one.device.id}: {one.device.model}",
        counters=counters,
        load=load,
        plot=drawn,
        notes=tuple(notes) or (() if counters or load or drawn else (UNREAD,)),
    )


# ------------------------------------------------------------------ many devices


def _together(ledgers: Sequence[Ledger], index: JournalIndex) -> Grid:
    """A line for each of many devices: what grew, what slowed it down, and its readings."""
    known = [name for one in ledgers for name in one.counter_names if name not in one.absent]
    names = dict.fromkeys(known)
    quiet = [
        label(name.removesuffix(TIME))
        for name in names
        if all(_is_quiet(one, name) for one in ledgers)
    ]
    read = _readings_by_device(index)
    traced = [
        (heading, name, scale)
        for heading, alternatives, scale in TRACED
        for name in alternatives
        if any(spread_of(name, several) for several in read.values())
    ]
    notes = [f"Clock, power and temperature: median, and {LARGEST} of the temperature."]
    if quiet:
        notes.append(
            f"{count(len(quiet), 'counter')} neither grew nor is in a bad state on any device: "
            f"{', '.join(quiet)}."
        )
    return Grid(
        columns=("Device", "Counters that grew", "Slowed down", *(one for one, _, _ in traced)),
        rows=tuple(
            (
                one.device.id,
                ", ".join(_grown_counters(one)) or "none",
                _slowed(one),
                *(_middle(read.get(one.device.id, []), name, scale) for _, name, scale in traced),
            )
            for one in ledgers
        ),
        notes=tuple(notes),
    )


def _readings_by_device(index: JournalIndex) -> dict[str, list[Sampled]]:
    read: dict[str, list[Sampled]] = {}
    for _, reading in index.readings:
        read.setdefault(reading.device, []).append(reading)
    return read


def _middle(several: Sequence[Sampled], name: str, scale: float) -> str:
    spread = spread_of(name, several)
    if spread is None:
        return NOT_REPORTED
    middle = words.figure(spread.middle * scale)
    is_hot = name.startswith("temperature")
    return f"{middle}, {words.figure(spread.high * scale)}" if is_hot else middle


def _is_quiet(one: Ledger, name: str) -> bool:
    """Whether a counter was read, did not grow, and is no bad state."""
    row = _count(one.counter(name))
    return row[3] == "0" or (row[3] == _NONE and row[1:3] == ("0", "0"))


def _grown_counters(one: Ledger) -> Iterator[str]:
    for name in one.counter_names:
        if name not in one.absent and not _is_quiet(one, name):
            heading, before, after, grown, _ = _count(one.counter(name))
            if before == after == grown == NOT_REPORTED:
                yield f"{heading}: {NOT_REPORTED}"
            else:
                yield f"{heading}: {grown if grown != _NONE else after}"


def _slowed(one: Ledger) -> str:
    """What slowed a device down under load; "never" only where a reading would have said so."""
    grid = _load(one)
    told = [row for row in (() if grid is None else grid.rows) if row[0].startswith("Slowed down")]
    active = [
        f"{what.removeprefix('Slowed down: ')} {share}" for what, share, _ in told if share != "0 %"
    ]
    return ", ".join(active) or ("never" if told else "not observed")


# ------------------------------------------------------------------ counters


def _counters(one: Ledger, *, is_alone: bool) -> Grid | None:
    """Every counter that the device was asked for, at the begin and the end of the run.

    What was not reported of the only device stands under what was not observed, and nowhere else.
    """
    rows = [_count(one.counter(name)) for name in one.counter_names if name not in one.absent]
    if not rows:
        return None
    columns = ("Counter", "Before", "After", "Grew by", "In")
    missing = [row[0] for row in rows if row[1:3] == (NOT_REPORTED,) * 2]
    zeros = [row[0] for row in rows if row[1:4] == ("0", "0", "0")]
    notes = []
    if missing and not is_alone:
        notes.append(f"{count(len(missing), 'counter')} {NOT_REPORTED}: {', '.join(missing)}.")
    if len(zeros) > 1:
        notes.append(f"{len(zeros)} counters 0 before, after and in growth: {', '.join(zeros)}.")
    noted = set(missing) | (set(zeros) if len(zeros) > 1 else set())
    left = tuple(row for row in rows if row[0] not in noted)
    if not left and not notes:
        return None
    return Grid(columns=columns, rows=left, notes=tuple(notes))


def _count(counter: Count) -> tuple[str, ...]:
    name = label(counter.name.removesuffix(TIME))
    before, after = (
        NOT_REPORTED if value is None else _written(counter, value)
        for value in (counter.before, counter.after)
    )
    where = ", ".join(counter.where[:2]) + (" and others" if len(counter.where) > 2 else "")  # noqa: PLR2004
    if counter.behaviour == "state":
        worst = "" if counter.worst is None else f"a state: at worst {counter.worst:,}"
        return name, before, after, _NONE, worst
    return name, before, after, _grown(counter), where


def _written(counter: Count, value: int) -> str:
    """A count, or a time that is counted in nanoseconds."""
    return words.duration(value * 1e-9) if counter.name.endswith(TIME) else f"{value:,}"


def _grown(counter: Count) -> str:
    if counter.gap.startswith("it went back"):
        return "was set back"
    if counter.growth:  # what grew did so, whatever else was not read
        return f"{'at least ' if counter.gap else ''}+{_written(counter, counter.growth)}"
    return NOT_REPORTED if counter.growth is None or counter.gap else "0"


# ------------------------------------------------------------------ under load


def _load(one: Ledger) -> Grid | None:
    """What slowed the device down, how much clock it kept, and how wide its slot was."""
    readings = one.loaded()
    shares = {name: one.observe(f"{SHARE}_{name}") for name in THROTTLES}
    seen = {name: share for name, share in shares.items() if share.high is not None}
    rows = [
        *_throttled(seen, sum(one.count for one in readings)),
        *_lost(one.observe("lost_clock")),
        *_power(one),
        *(row for name, text in LINKS.items() for row in _link(one, name, text)),
    ]
    return Grid(columns=("Under load", "Share or value", "Of"), rows=tuple(rows)) if rows else None


def _throttled(seen: Mapping[str, Observed], num_readings: int) -> Iterator[tuple[str, ...]]:
    """A row for each reason that was active or may have been, and one for all that never were."""
    shown = {name: one for name, one in seen.items() if one.high or one.gap}
    for name, one in shown.items():
        share = percent(one.high) if one.high else UNDECIDED
        what = f"of {one.where}" if one.high else one.gap
        yield f"Slowed down: {label(name).lower()}", share, what
    quiet = {name: one for name, one in seen.items() if name not in shown}
    counted = [one.count for one in quiet.values() if one.is_counted]
    parts = []
    if counted:
        of = f"of the time in {count(max(counted), 'launch', 'launches')}, by its counters"
        parts.append(f"{of}: {_names(quiet, is_counted=True)}")
    if len(counted) < len(quiet):
        of = f"of {count(num_readings, 'reading')}"
        parts.append(f"{of}: {_names(quiet, is_counted=False)}")
    if parts:
        yield (
            "Slowed down for other reasons" if shown else "Slowed down",
            "0 %",
            "; ".join(parts),
        )


def _names(seen: Mapping[str, Observed], *, is_counted: bool) -> str:
    """Reasons whose share is of that kind."""
    names = [name for name, one in seen.items() if one.is_counted == is_counted]
    return ", ".join(label(name).lower() for name in names)


def _lost(seen: Observed) -> Iterator[tuple[str, ...]]:
    if seen.high is not None:
        yield "Clock below the highest", percent(seen.high), f"on average, {seen.where}"


def _power(one: Ledger) -> Iterator[tuple[str, ...]]:
    """What it drew while its power limit held it back, and a limit that is not the part's own."""
    used, lowered = one.observe("unused_power"), one.observe("power_limit_lowered")
    limit = one.device.facts.get("power_limit")
    named = "" if limit is None or limit.value is None else f" of {words.fact(limit)}"
    if used.high and not used.gap:
        of = f"its limit{named}, the mean of {count(used.count, 'reading')}"
        yield "Power drawn while its limit held it back", percent(1.0 - used.high), f"of {of}"
    if lowered.high:
        yield "Power limit below the part's default", percent(lowered.high), lowered.where


def _link(one: Ledger, name: str, text: str) -> Iterator[tuple[str, ...]]:
    """How far the link came, and what the part has."""
    fact = one.device.facts.get(f"{name}_highest")
    known = [value for some in one.loaded() if (value := some.highs.get(name)) is not None]
    if known and fact is not None and fact.value is not None:
        yield text, f"{max(known):g}", f"the part has {words.scalar(fact.value)}"


def _traces(device: str, index: JournalIndex) -> Iterator[plots.Trace]:
    """Readings over the time of the run, in minutes since its first line."""
    begin = words.moment(index.begin_utc)
    taken = [
        (_minutes(utc, begin), reading.values)
        for utc, reading in index.readings
        if reading.device == device
    ]
    for heading, names, scale in TRACED:
        for name in names:
            points = tuple(
                (minutes, value * scale)
                for minutes, values in taken
                if minutes is not None and (value := values.get(name)) is not None
            )
            if points:
                yield plots.Trace(label=heading, points=points)
                break


def _minutes(utc: str, begin: datetime | None) -> float | None:
    now = words.moment(utc)
    return None if now is None or begin is None else (now - begin).total_seconds() / 60


# ------------------------------------------------------------------ what was said and what not


def _notes(one: Ledger, metrics: set[str]) -> Iterable[str]:
    lacking = [name for name in metrics if one.observe(name).is_absent]
    if lacking:
        names = ", ".join(label(name) for name in sorted(lacking))
        reason = "because the part has none or its vendor has no count of it"
        yield f"Not applicable, {reason}: {names}."


def _kernel(ledgers: Sequence[Ledger]) -> Group:
    """Faults that the kernel logged; those of one device and code in a row."""
    title = "Faults in the kernel's log"
    alike: dict[tuple[str, str], list[KernelLogged]] = {}
    seen = {(fault.sequence, fault.text): fault for one in ledgers for fault in one.logged()}
    for fault in seen.values():
        alike.setdefault((fault.device, fault.code), []).append(fault)
    if not alike:
        gap = ledgers[0].run.log_gap if ledgers else ""
        run = ledgers[0].run if ledgers else None
        is_read = run is not None and run.num_log_marks > 1 and run.is_log_read and not gap
        note = "none was logged" if is_read else f"not observed: {gap or 'the log was not read'}"
        return Group(title=title, notes=(note,))
    rows = [
        (
            faults[0].device or "not named",
            faults[0].code + (" (fatal)" if faults[0].is_fatal else ""),
            str(len(faults)),
            faults[0].launch or "between launches",
            f"{faults[0].meaning}: {faults[0].text}",
        )
        for faults in alike.values()
    ]
    rest = len(rows) - _MOST_FAULTS
    return Group(
        title=title,
        grid=Grid(
            columns=("Device", "Fault", "Lines", "First in", "Meaning and text"),
            rows=tuple(rows[:_MOST_FAULTS]),
        ),
        notes=(f"and {count(rest, 'more kind')}, see journal.jsonl",) if rest > 0 else (),
    )


def _gaps(ledgers: Sequence[Ledger]) -> Grid | None:
    """What was not observed, by what would allow it."""
    alike: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    by_name: dict[tuple[str, str], list[str]] = {}
    for one in ledgers:
        for gap in one.gaps():
            by_name.setdefault((gap.what, gap.hint), []).append(one.device.id)
    for (what, hint), devices in by_name.items():
        alike.setdefault((hint, tuple(devices)), {})[_named(what)] = None
    if not alike:
        return None
    return Grid(
        columns=("Not observed", "Of", "What would allow it"),
        rows=tuple(
            (", ".join(names), _all(devices, len(ledgers)), hint)
            for (hint, devices), names in alike.items()
        ),
    )


def _named(what: str) -> str:
    """A counter or a reading as the other tables head it, without the unit in its key."""
    return words.reading(what.removesuffix(TIME))[0]


def _all(devices: Sequence[str], num_devices: int) -> str:
    return "all devices" if len(devices) == num_devices > 1 else ", ".join(devices)
