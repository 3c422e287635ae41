"""A burn-in on paper: over time, what it covered, what happened, what it bounds and leaves out."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from support.long_burn_in import long_burn_in

from appliance.evidence.folding import in_detail
from appliance.evidence.journal_index import index_of
from appliance.records.journal import (
    Checked,
    Event,
    KernelLogged,
    LaunchEnded,
    Line,
    ReadingsFolded,
    RunResumed,
)
from appliance.storage.bundle import Bundle
from appliance.stress.aggregates import COMPLETED, Aggregate, Span
from reports import burn_in
from reports.model import BurnInSection, Grid
from reports.words import figure
from workloads.parts.burning.formats import OF_ACCELERATORS
from workloads.parts.memory.memory_tests import TESTS
from workloads.parts.stress.stressors import checks_of

HOURS = 6


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return long_burn_in(HOURS, 1, tmp_path_factory.mktemp("burn-in"))


def section(bundle: Bundle, lines: list[Line] | None = None) -> BurnInSection:
    (one,) = burn_in.sections(index_of(bundle.plan, lines or bundle.lines))
    return one


def rows(grid: Grid | None) -> dict[str, tuple[str, ...]]:
    assert grid is not None
    return {row[0]: row[1:] for row in grid.rows}


def test_power_temperature_and_clock_stand_over_the_run_and_over_a_segment(
    recorded: Bundle,
) -> None:
    (whole, caption), (one, phases) = section(recorded).plots
    for drawn in (whole, one):
        assert all(heading in drawn for heading in ("Power, W", "Temperature, °C", "Clock, GHz"))
    assert "segments" in caption
    assert ">cool</text>" in one
    assert ">jumps</text>" in one
    assert "cool" in phases
    assert "begin and end as the launch recorded it" in phases
    assert re.search(r"At \d+ s a plain loop of \d+\.\d s", phases)


def test_coverage_adds_up_all_segments(recorded: Bundle) -> None:
    made = section(recorded)
    covered = rows(made.coverage)
    (proven,) = [row.value for row in made.rows if row.label == "Products proven"]
    by_format = [row for name, row in covered.items() if name.startswith("products in ")]
    assert len(by_format) == len(OF_ACCELERATORS)
    total = sum(int(one.replace(",", "")) for row in by_format for one in row[:2])
    assert proven == f"{total:,} in {HOURS} segments"


def test_coverage_shows_every_test_of_memory_with_its_bytes(recorded: Bundle) -> None:
    covered = rows(section(recorded).coverage)
    tested = {name.partition(", ")[2]: row for name, row in covered.items() if "memory, " in name}
    assert list(tested) == list(TESTS)
    assert all(row[0].endswith("iB") and row[2].endswith(" a second") for row in tested.values())


def stressed(bundle: Bundle, mismatches: int, ending: str) -> list[Line]:
    """The lines, with stress of the disk in each segment, of which the last ended in a way."""
    last = [one.event.launch for one in bundle.lines if isinstance(one.event, LaunchEnded)][-1]
    lines = []
    for line in bundle.lines:
        lines.append(line)
        event = line.event
        if isinstance(event, Checked) and event.check.name == burn_in.COVERED:
            span = Span(60_000, 6_000, 2**30, 2**31, 8, mismatches)
            own = Aggregate(
                kind="disk",
                asked="1 thread",
                spans=(span,),
                ending=ending if event.launch == last else COMPLETED,
                places=("byte 8",) * mismatches,
            )
            lines += [
                replace(line, event=replace(event, check=one))
                for one in checks_of(own, is_again=False)
                if event.phase == "last"
            ]
    return lines


def test_stress_beside_the_products_is_one_table(recorded: Bundle) -> None:
    assert section(recorded).stress is None
    assert "beside the device: memory and cores of the host" in rows(section(recorded).not_covered)
    made = section(recorded, stressed(recorded, 1, "killed by signal 9"))
    (row,) = rows(made.stress).values()
    assert row == (
        "1 thread",
        "34.13 MiB a second, 10 % of the time",
        "6 GiB, 48 products",
        "6",
    )
    assert made.stress is not None
    assert "Ended before it was asked to, and fails: disk in 1 segment." in made.stress.notes
    assert "disk: byte 8." in made.stress.notes
    left = rows(made.not_covered)
    assert "beside the device: writes and reads of a file, past the page cache" not in left
    assert left["beside the device: copies to the device and back"] == ("--stress copies",)
    assert made.shown.startswith("Not clean: ")


def test_products_of_several_formats_stand_apart() -> None:
    text = (
        "wrong; digested blocks: 360 products in 30 rounds; products by format: bfloat16 120 exact "
        "120 random | float32 60 exact 60 random; memory tests: address 12,345 words 395,040 "
        "bytes | march C- 10 words 800 bytes | none yet: retention; mismatches: 0"
    )
    assert burn_in._products([text, text]) == {"bfloat16": (240, 240), "float32": (120, 120)}
    assert burn_in._bytes([text, text]) == {"address": 790_080, "march C-": 1600}


@pytest.mark.parametrize(
    ("events", "confidence", "factor"),
    [(0, 0.95, math.log(20)), (0, 0.6, math.log(2.5)), (1, 0.95, 4.7439), (3, 0.9, 6.6808)],
)
def test_bounds_are_those_of_the_tables(events: int, confidence: float, factor: float) -> None:
    """Of events at a constant rate: T over half the chi-squared quantile of 2n + 2 degrees."""
    assert burn_in.mtbf(100.0, events, confidence) == pytest.approx(100.0 / factor, rel=1e-4)


def altered(bundle: Bundle, change: dict[int, Event], extra: list[Event] = []) -> list[Line]:  # noqa: B006 - read alone
    lines = [
        replace(line, event=change.get(number, line.event))
        for number, line in enumerate(bundle.lines)
    ]
    return [*lines, *(replace(lines[-1], event=event) for event in extra)]


def test_a_mismatch_stands_with_place_temperature_and_clock(recorded: Bundle) -> None:
    number, event = next(
        (n, line.event)
        for n, line in enumerate(recorded.lines)
        if isinstance(line.event, Checked) and line.event.phase == "last"
    )
    text = event.check.detects_what.replace("mismatches: 0", "mismatches: 2: product 3, tile 4")
    check = replace(event.check, error=2, detects_what=text)
    made = section(recorded, altered(recorded, {number: replace(event, check=check)}))
    ((_, what, where),) = [row for row in made.events.rows if "mismatch" in row[1]]  # type: ignore[union-attr]
    assert what == "2 mismatches"
    assert "segment 1; product 3, tile 4; power " in where
    assert re.search(r"temperature 5\d\.00 to 84\.00 °C", where)
    assert "clock 1." in where
    assert rows(made.bounds)["wrong product or word"][0] == "2"
    assert "no bound is claimed" in made.shown


def test_a_mismatch_stands_with_what_the_device_was_at_when_it_was_seen(recorded: Bundle) -> None:
    number, line = next(
        (n, line)
        for n, line in enumerate(recorded.lines)
        if isinstance(line.event, Checked) and line.event.phase == "last"
    )
    event = line.event
    assert isinstance(event, Checked)
    last = next(
        one.event
        for one in reversed(recorded.lines[:number])
        if isinstance(one.event, ReadingsFolded)
    )
    watts = list(in_detail(last))[-1].values["power_watts"]
    moment = datetime.fromisoformat(line.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = f"product 3, step 7, seen at {moment} | product 4, step 7"
    text = event.check.detects_what.replace("mismatches: 0", f"mismatches: 2: {where}")
    check = replace(event.check, error=2, detects_what=text)
    made = section(recorded, altered(recorded, {number: replace(event, check=check)}))
    ((_, _, shown),) = [row for row in made.events.rows if "mismatch" in row[1]]  # type: ignore[union-attr]
    first, second = shown.split(" | ")
    assert f"(power {figure(watts or 0.0)} W, temperature " in first
    assert "then: the reading, 0 s apart)" in first
    assert "then" not in second


def test_excursions_interruptions_and_kernel_messages_stand_with_their_times(
    recorded: Bundle,
) -> None:
    launch = recorded.plan.launches[-1].id
    fault = KernelLogged(
        launch=launch,
        device="cuda:0",
        code="Xid 79",
        is_fatal=True,
        meaning="the device fell off the bus",
        text="",
        sequence=1,
    )
    resumed = RunResumed(interruption=1, interrupted=(launch,), dropped="", pid=1)
    made = section(recorded, altered(recorded, {}, [fault, resumed]))
    assert made.events is not None
    happened = {what: (time, where) for time, what, where in made.events.rows}
    assert happened["throttled: thermal"][1] == "cuda:0"
    assert happened["throttled: thermal"][0].startswith("2026-01-0")
    assert happened["kernel log: Xid 79"][1] == "the device fell off the bus"
    assert launch in happened["interruption"][1]


def test_what_was_not_covered_stands_too(recorded: Bundle) -> None:
    number, event = next(
        (n, line.event)
        for n, line in reversed(list(enumerate(recorded.lines)))
        if isinstance(line.event, LaunchEnded) and line.event.launch.endswith("/6")
    )
    crashed = replace(event, outcome="crashed", reason="SIGSEGV")
    made = section(recorded, altered(recorded, {number: crashed}))
    left = rows(made.not_covered)
    assert "segments that did not complete: 6" in left
    assert "links between nodes" in left
    assert rows(made.bounds)["segment that crashed or hung"][0] == "1"


def test_a_device_without_readings_says_so(recorded: Bundle, tmp_path: Path) -> None:
    del tmp_path
    quiet = [
        line for line in recorded.lines if line.event.kind not in ("readings_folded", "reading")
    ]
    made = section(recorded, quiet)
    assert made.plots == ()
    assert "not drawn" in made.no_plot
    assert any("readings of power" in row[0] for row in made.not_covered.rows)  # type: ignore[union-attr]


def test_a_segment_that_was_cut_costs_its_time_and_no_bound(recorded: Bundle) -> None:
    number, event = next(
        (n, line.event)
        for n, line in reversed(list(enumerate(recorded.lines)))
        if isinstance(line.event, LaunchEnded) and line.event.launch.endswith("/6")
    )
    cut = replace(event, outcome="interrupted", reason="the appliance was stopped")
    made = section(recorded, altered(recorded, {number: cut}))
    values = {row.label: row.value for row in made.rows}
    assert values["Products proven"].endswith(f"in {HOURS - 1} segments")
    assert made.shown.startswith(f"No mismatch in {HOURS - 1} h under test")


def test_long_numbers_of_bytes_in_a_clause_are_written_as_sizes() -> None:
    said = burn_in.sized(
        "1 thread, 33,554,432 bytes a second at most, over 268,435,456 bytes on ext4"
    )
    assert said == "1 thread, 32 MiB a second at most, over 256 MiB on ext4"
    assert burn_in.sized("blocks of 64 bytes") == "blocks of 64 bytes"
