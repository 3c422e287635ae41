"""First outputs that steps write over: copied where launches overlap, and checked after the blocks.

The rows are real ones at small size, on a processor that is treated as an accelerator is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty.vendor import Vendor
from support.launching import TESTS, Bench, case, plan

from appliance.errors import EvidenceError
from appliance.records.journal import (
    Block,
    Calibrated,
    Checked,
    Digested,
    Event,
    LaunchAhead,
    RunStarted,
)
from appliance.records.plan import Case
from appliance.verification.launch_checks import check_launches
from appliance.verification.run_checks import check_conduct
from appliance.worker.workload_loader import load_workload

LATER = ("memory_bandwidth", "digits_mlp")
"""Rows of which the first timed launch is right, and the second begins with a wrong output."""
DIES = "host_copy"
"""A row whose first timed launch is killed in its second step."""
BYTES = 2**20


class Overlapping(Vendor):
    overlaps = True


@pytest.fixture(scope="module", autouse=True)
def found_by_children() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def row(folder: Path, name: str, **fields: Any) -> Case:
    """A row; its first `healthy` launches have no fault."""
    kind = load_workload(name)
    own = kind(**kind.small)
    parameters = {"log": str(folder / f"log-{name}"), "row": name, **fields}
    if any(key.endswith("_bytes") for key in kind.small):
        parameters["num_bytes"] = BYTES
    return case(
        name,
        workload="faulty.overwriting",
        parameters=parameters,
        launches=1 if name == DIES else 2,
        steps=own.steps,
        evaluate_every=own.evaluate_every,
        checked_launch=1,
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, found_by_children: None) -> Bench:
    folder = tmp_path_factory.mktemp("copied")
    wrong = [row(folder, name, fault="element", healthy=2) for name in LATER]
    whole = plan(*wrong, row(folder, DIES, fault="killed"), interim_analyses=(2,))
    made = Bench(folder / "run", whole, vendor=Overlapping())
    made.journal.append(RunStarted(run_id=whole.run_id, plan="p", system="s", pid=1))
    made.run()
    return made


def order(bench: Bench, launch: str) -> list[str]:
    """What a launch said, each kind of record once, in the order of the first."""
    names: list[str] = []
    for event in bench.of(launch):
        if isinstance(event, Block | Calibrated | Checked | Digested):
            phase = f" {event.phase}" if isinstance(event, Checked | Digested) else ""
            names.append(f"{type(event).__name__}{phase}")
    return list(dict.fromkeys(names))


@pytest.mark.parametrize("name", LATER)
def test_the_copy_is_checked_when_nothing_is_timed_any_more(bench: Bench, name: str) -> None:
    untimed, timed = order(bench, f"{name}@cpu:0/0"), order(bench, f"{name}@cpu:0/1")
    assert {*untimed[1:3]} == {"Digested first", "Checked first"}
    assert timed[:3] == ["Calibrated", "Block", "Checked last"]
    assert {*timed[3:]} == {"Digested first", "Checked first"}
    digests = {bench.of(f"{name}@cpu:0/{n}", Digested)[0].digest for n in (0, 1)}
    assert len(digests) == 1
    assert all(one.check.is_within for one in bench.of(f"{name}@cpu:0/1", Checked))


def test_the_next_process_begins_beside_these_checks(bench: Bench) -> None:
    files = {"plan.json": "p", "system.json": "s"}
    check_conduct(bench.plan, bench.journal.lines, files, is_ended=False)
    check_launches(bench.plan, bench.journal.lines)
    ordered = [one for one in bench.events if isinstance(one, LaunchAhead)]
    beside = {name for one in ordered for name in one.beside}
    assert {f"{name}@cpu:0/1" for name in LATER} <= beside


@pytest.mark.parametrize("name", LATER)
def test_a_wrong_first_output_is_seen_after_it_was_written_over(bench: Bench, name: str) -> None:
    launch = f"{name}@cpu:0/2"
    assert bench.ended(launch).outcome == "completed"
    outside = {one.phase for one in bench.of(launch, Checked) if not one.check.is_within}
    assert outside == {"first"}
    (digested,) = bench.of(launch, Digested)
    assert digested.digest != bench.of(f"{name}@cpu:0/0", Digested)[0].digest


def test_a_launch_that_dies_in_its_steps_has_crashed_unchecked(bench: Bench) -> None:
    ended = bench.ended(f"{DIES}@cpu:0/1")
    assert (ended.outcome, ended.reason) == ("crashed", "SIGKILL")
    assert not bench.of(f"{DIES}@cpu:0/1", Checked)


def moved(events: list[Event], launch: str) -> list[Event]:
    """The checks of a launch's first output stand between its clocks and its blocks."""
    late = [
        event
        for event in events
        if isinstance(event, Checked | Digested)
        and (event.phase, event.launch) == ("first", launch)
    ]
    rest = [event for event in events if event not in late]
    place = next(n for n, e in enumerate(rest) if isinstance(e, Block) and e.launch == launch)
    return [*rest[:place], *late, *rest[place:]]


def test_first_checks_beside_what_is_timed_are_refused(bench: Bench) -> None:
    lines = bench.journal.lines
    forged = moved([line.event for line in lines], f"{LATER[0]}@cpu:0/1")
    again = [replace(line, event=event) for line, event in zip(lines, forged, strict=True)]
    with pytest.raises(EvidenceError, match="beside what it times"):
        check_launches(bench.plan, again)
