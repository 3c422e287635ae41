"""The machine on paper: facts of the node and its parts, what it ran, and how it was that day.

Last comes what the time of the run went to: one bar, and the seconds of each part below it.

A value that could not be read is "not reported", with the permission that would allow it,
beside those that could. Parts of one kind (memory modules, disks) share most of their values;
these are said once, and only what tells one part from the next becomes a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from appliance.evidence import budget
from appliance.evidence.budget import LABELS, PARTS, USEFUL, Budget
from appliance.evidence.determinism import files_run
from appliance.evidence.folding import Sampled, spread_of
from appliance.evidence.journal_index import JournalIndex
from appliance.records.baseline import Peaks
from appliance.records.json import sha256
from appliance.records.system import Device, Fact, Facts, Process, System
from reports import plots, words
from reports.model import BudgetSection, Grid, Group, Row
from reports.words import NOT_REPORTED, count, label

USEFUL_NOTE = (
    "Useful is what a run is made for: warm-up and timed steps, a burn-in's among them. Launches "
    "at once share the time that they took together; ranks of one launch count as their mean."
)
LACKING = (
    "Not measured are launches that did not report their stages: they were ended from outside, or "
    "an older version made them."
)
BOUNDS = "Bounds on rates"
BOUNDS_INTRO = (
    "Of a processor: no vendor's figures and no goals, but what no rate can exceed; one beyond "
    "them fails. peaks.json says how each was derived."
)
SAYINGS = ("differs between", "changed during", "imports and probe")
"""How the notes begin that say something of a value; the others name where it was read."""
SPELT = {
    "notsupported": "not supported",
    "notimplemented": "not implemented",
    "forceoff": "off, by force",
}
"""What the kernel writes of simultaneous multithreading, in words."""
MOST_APART = 2  # devices, up to which each has a table of its own
_SAME = 3  # parts above which equal values are worth saying once


def rows(facts: Facts) -> tuple[Row, ...]:
    """Facts in their order; a missing one with its hint, the others with their source."""
    return tuple(
        Row(
            label=_named(name, fact)[0],
            value=_named(name, fact)[1],
            note=_gap(fact) if fact.value is None else fact.source,
            is_known=fact.value is not None,
        )
        for name, fact in facts.items()
    )


def _named(name: str, fact: Fact) -> tuple[str, str]:
    """A fact's heading and value; a unit that ends its name stands with the value."""
    value = fact.value
    if not fact.unit and isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_ns"):
            return label(name.removesuffix("_ns")), words.duration(value * 1e-9)
        heading, write = words.reading(name)
        return heading, write(value) if heading != label(name) else words.fact(fact)
    written = words.fact(fact)
    return label(name), SPELT.get(written, written)


def collapsed(title: str, made: Sequence[Row], **more: Any) -> Group:
    """A group whose values that were not reported stand in one line, with what would allow them.

    Where the others were read is said once below them.
    """
    missing = [row for row in made if row.value == NOT_REPORTED]
    known = [row for row in made if row.value != NOT_REPORTED]
    sources: dict[str, int] = {}
    for row in known:
        if row.note and _is_source(row.note):
            name = _root(row.note)
            sources[name] = sources.get(name, 0) + 1
    notes = []
    if sources:
        listed = "; ".join(f"{name} ({number})" for name, number in sources.items())
        notes.append(f"Read from: {listed}; system.json has the source of each.")
    if missing:
        notes.append(_missing(missing))
    rows_shown = tuple(replace(row, note="") if _is_source(row.note) else row for row in known)
    return Group(title=title, rows=rows_shown, notes=(*notes, *more.pop("notes", ())), **more)


def _root(source: str) -> str:
    """Of a path its first part, of a library its name: there are many below /sys and in NVML."""
    if source.startswith("/"):
        return "/".join(source.split("/")[:2])
    library, _, call = source.partition(" ")
    return library if re.fullmatch(r"[A-Za-z]+[A-Z]\w*(\(.*\))?", call) else source


def _is_source(note: str) -> bool:
    """Whether a note names where a value was read, and says nothing of the value itself."""
    return not note.startswith(SAYINGS)


def _missing(missing: Sequence[Row]) -> str:
    by_hint: dict[str, list[str]] = {}
    for row in missing:
        by_hint.setdefault(row.note, []).append(row.label)
    listed = "; ".join(
        f"{', '.join(labels)}{f' ({hint})' if hint else ''}" for hint, labels in by_hint.items()
    )
    return f"{len(missing)} {NOT_REPORTED}: {listed}."


def _gap(fact: Fact) -> str:
    return fact.hint or (f"{fact.source} does not report it" if fact.source else "")


def system_groups(system: System, peaks: Peaks) -> tuple[Group, ...]:
    """Devices, host, and the node's parts."""
    identity = system.identity
    devices = tuple(
        collapsed(
            f"Device {device.id}: {device.model}",
            (
                _plain("Serial", device.serial),
                *_memory(device),
                *rows(device.facts),
            ),
        )
        for device in identity.devices
    )
    if len(identity.devices) > MOST_APART:
        devices = (_devices(identity.devices),)
    return (
        *devices,
        collapsed("Host", rows(identity.host)),
        parts("Memory modules", identity.memory_modules, identity.host.get("memory_modules")),
        parts("Disks", identity.disks, identity.host.get("disks")),
        parts("Network interfaces", identity.interfaces, identity.host.get("network_interfaces")),
        *_peaks(peaks, system),
    )


def _devices(devices: Sequence[Device]) -> Group:
    """Many devices together: what all share once, and a table of what tells them apart."""
    items = [
        {
            "device": Fact(value=device.id),
            "model": Fact(value=device.model),
            "serial": Fact(value=device.serial),
            "memory": Fact(value=device.memory_bytes, unit="bytes"),
            **device.facts,
        }
        for device in devices
    ]
    return parts("Devices", items)


def _memory(device: Device) -> tuple[Row, ...]:
    """The device's memory, where its facts do not tell it already."""
    size = None if device.memory_bytes is None else words.size(device.memory_bytes)
    return () if "memory" in device.facts else (_plain("Memory", size),)


def _plain(name: str, value: str | None) -> Row:
    return Row(label=name, value=value or NOT_REPORTED, is_known=bool(value))


def _peaks(peaks: Peaks, system: System) -> tuple[Group, ...]:
    if not peaks.peak:
        return ()
    sources = list(dict.fromkeys(peak.source for peak in peaks.peak))
    grid = Grid(
        columns=("Model", "Quantity", "Figure", "Published in"),
        rows=tuple(
            (
                peak.model,
                _quantity(peak.quantity),
                f"{_published(peak.value, peak.unit)} per {peak.per}",
                f"[{sources.index(peak.source) + 1}]"
                + ("" if peak.is_confirmed else ", one second-hand source only"),
            )
            for peak in peaks.peak
        ),
        notes=tuple(f"[{number}] {source}" for number, source in enumerate(sources, 1)),
    )
    is_processor = all(one.vendor == "cpu" for one in system.identity.devices)
    if is_processor:
        bounds = Grid(columns=grid.columns[:3], rows=tuple(row[:3] for row in grid.rows))
        return (Group(title=BOUNDS, intro=BOUNDS_INTRO, grid=bounds),)
    models = {peak.model for peak in peaks.peak}
    if len(models) > 1:
        return (Group(title="Vendor's figures", grid=grid),)
    short = replace(grid, columns=grid.columns[1:], rows=tuple(row[1:] for row in grid.rows))
    return (Group(title=f"Vendor's figures of the {models.pop()}", grid=short),)


def _published(value: float, unit: str) -> str:
    """A figure as vendors write it: sizes of memory in units of a thousand."""
    return words.scaled(value, unit) if unit == "B" else words.quantity(value, unit)


def _quantity(name: str) -> str:
    """What a figure is of: `float64_flops_per_second` is "Float64 arithmetic"."""
    for suffix, what in _QUANTITIES:
        if name.endswith(f"_{suffix}"):
            return label(f"{name.removesuffix(suffix)}{what}")
    return label(name)


_QUANTITIES = (
    ("flops_per_second", "arithmetic"),
    ("operations_per_second", "operations"),
    ("bytes_per_second", "rate"),
)


def parts(title: str, items: Sequence[Facts], declared: Fact | None = None) -> Group:
    """Parts of one kind: shared values once, what differs as a table, gaps as notes.

    `declared` is how many the host says that there are; where none is listed, its hint says why.
    """
    heading = f"{title} ({len(items)})"
    if not items:
        return Group(title=title, notes=(_none(declared),))
    if len(items) == 1:
        return collapsed(heading, rows(items[0]))
    keys = list(dict.fromkeys(key for item in items for key in item))
    shared = [key for key in keys if _is_shared(key, items)] if len(items) > _SAME else []
    own = [key for key in keys if key not in shared]
    gaps = {key: _gap(fact) for item in items for key, fact in item.items() if _is_gap(fact)}
    return collapsed(
        heading,
        tuple(
            Row(label=f"{row.label}, all", value=row.value, note=row.note, is_known=row.is_known)
            for row in rows({key: items[0][key] for key in shared})
        ),
        grid=_grid(own, items),
        notes=tuple(f"{label(key)} {NOT_REPORTED}: {gaps[key]}" for key in own if gaps.get(key)),
    )


def _none(declared: Fact | None) -> str:
    if declared is not None and declared.value == 0:
        return "none"
    hint = "" if declared is None else declared.hint
    return f"{NOT_REPORTED}: {hint or 'there is none, or none could be read'}"


def _is_gap(fact: Fact) -> bool:
    return fact.value is None


def _is_shared(key: str, items: Sequence[Facts]) -> bool:
    return all(key in item and item[key] == items[0].get(key) for item in items)


def _grid(keys: Sequence[str], items: Sequence[Facts]) -> Grid:
    missing = Fact(value=None)
    return Grid(
        columns=("", *(label(key) for key in keys)),
        rows=tuple(
            (str(number), *(words.fact(item.get(key, missing)) for key in keys))
            for number, item in enumerate(items, 1)
        ),
    )


# ------------------------------------------------------------------ environment


def environment_groups(system: System, index: JournalIndex) -> tuple[Group, ...]:
    """Software, what the launches ran in, conditions before the run, and other processes."""
    conditions = system.conditions
    groups = [
        collapsed("Software", rows(system.identity.software)),
        _children(index),
        collapsed(
            "Conditions before the run",
            (Row(label="Read at", value=words.utc(conditions.utc)), *rows(conditions.facts)),
        ),
        _processes(conditions.foreign_processes),
    ]
    return tuple(group for group in groups if group is not None)


def _children(index: JournalIndex) -> Group:
    """What the launches themselves reported; where they differ, every value is shown."""
    values_by_name: dict[str, list[Fact]] = {}
    for environment in index.environments:
        for name, value in environment.facts.items():
            seen = values_by_name.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    reported = tuple(
        Row(
            label=label(name),
            value="; ".join(words.fact(value) for value in values),
            note="differs between launches" if len(values) > 1 else values[0].source,
            is_known=all(value.value is not None for value in values),
        )
        for name, values in values_by_name.items()
    )
    return collapsed(
        "As the launches reported it",
        (*reported, *_libraries(index), *_server(index)),
        notes=() if reported else (f"{NOT_REPORTED}: no launch reported its environment",),
    )


def _libraries(index: JournalIndex) -> Iterable[Row]:
    """How many files the launches ran, and one digest over all of their paths and digests."""
    digests_by_path: dict[str, set[str | None]] = {}
    for libraries in index.libraries:
        for path, digest in files_run(libraries, index.digests).items():
            digests_by_path.setdefault(path, set()).add(digest)
    if not digests_by_path:
        return
    changed = [path for path, digests in digests_by_path.items() if len(digests) > 1]
    unread = sum(digests == {None} for digests in digests_by_path.values())
    listed = "".join(
        f"{digest or 'unreadable'}  {path}\n"
        for path in sorted(digests_by_path)
        for digest in sorted(digests_by_path[path], key=str)
    )
    files, digest = count(len(digests_by_path), "file"), sha256(listed.encode())[:16]
    summary = f"{files}, digest over the list {digest}"
    summary += f"; {unread} could not be read" if unread else ""
    yield Row(
        label="Libraries that ran",
        value=summary,
        note=f"changed during the run: {changed[0]}" if changed else "/proc/self/maps",
        is_known=not unread and not changed,
    )


def _server(index: JournalIndex) -> Iterable[Row]:
    for probe in index.probes:
        healthy = "healthy" if probe.is_healthy else f"not used: {probe.reason}"
        mode = "" if probe.library_mode == "default" else f", {probe.library_mode}"
        ranks = "" if probe.ranks == 1 else f", {probe.ranks} ranks"
        took = words.duration(probe.seconds)
        yield Row(
            label=f"Fork server of {probe.device}, {probe.framework}{mode}{ranks}",
            value=healthy,
            note=f"imports and probe fork took {took}",
        )


def _processes(processes: Sequence[Process]) -> Group:
    title = "Other processes using the machine"
    if not processes:
        return Group(title=title, notes=("none was seen",))
    grid = Grid(
        columns=("Name", "Share of processor", "Memory"),
        rows=tuple(
            (one.name, words.quantity(one.cpu_share, "share"), words.size(one.memory_bytes))
            for one in processes
        ),
    )
    return Group(title=title, grid=grid)


def telemetry(readings: Sequence[Sampled]) -> Grid | None:
    """Smallest, median and largest of each value, and how often it was read; None without any."""
    names = dict.fromkeys(name for one in readings for name in one.values)
    if not names:
        return None
    return Grid(
        columns=("Reading", "Smallest", "Median", "Largest", "Read"),
        rows=tuple(_telemetry(name, readings) for name in names),
    )


def _telemetry(name: str, readings: Sequence[Sampled]) -> tuple[str, ...]:
    heading, write = words.reading(name)
    spread = spread_of(name, readings)
    if spread is None:
        asked = sum(one.count for one in readings if name in one.values)
        return heading, NOT_REPORTED, "", "", f"0 of {asked}"
    ends = (spread.low, spread.middle, spread.high)
    is_whole = spread.num_read == spread.num_readings
    how_often = str(spread.num_read) if is_whole else f"{spread.num_read} of {spread.num_readings}"
    return (heading, *(write(value) for value in ends), how_often)


def first_known(facts: Mapping[str, Fact], names: Sequence[str]) -> str:
    """The value of the first of `names` that was read, or "not reported"."""
    values = [words.fact(facts[name]) for name in names if name in facts]
    return next((value for value in values if value != NOT_REPORTED), NOT_REPORTED)


# ------------------------------------------------------------------ its time


def budget_section(spent: Budget) -> BudgetSection:
    """The bar and its table, in the order of PARTS with what is useful first."""
    whole = spent.whole
    order = sorted(spent.seconds, key=lambda part: (part not in USEFUL, PARTS.index(part)))
    bars = [
        plots.Part(
            label=LABELS[part],
            share=spent.seconds[part] / whole,
            is_marked=part in USEFUL,
        )
        for part in order
    ]
    said = budget.sentence(spent)
    if not spent.is_measured:
        return BudgetSection(sentence=f"{said[0].upper()}{said[1:]}.", plot=Markup(), grid=None)
    return BudgetSection(
        sentence=f"{said[0].upper()}{said[1:]}.",
        plot=plots.parts("What the time of the run went to", bars),
        grid=Grid(
            columns=("Part", "Time", "Share"),
            rows=tuple(
                (
                    LABELS[part] + (" (useful)" if part in USEFUL else ""),
                    budget.duration(spent.seconds[part]),
                    f"{100 * spent.seconds[part] / whole:.1f} %",
                )
                for part in order
            ),
            notes=(USEFUL_NOTE, *([LACKING] if budget.NOT_MEASURED in spent.seconds else [])),
        ),
    )
