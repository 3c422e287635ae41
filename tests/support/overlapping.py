"""Runs whose launches overlap, for tests: their vendor, their case, and what is asked of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from faulty.vendor import Vendor
from support.launching import Bench, case

from appliance.records.journal import AheadEnded, LaunchAhead, LaunchEnded, RunStarted
from appliance.records.plan import Case, Plan
from appliance.records.system import Device
from appliance.verification.launch_checks import check_launches
from appliance.verification.run_checks import check_conduct

FILES = {"plan.json": "p", "system.json": "s"}
GIB = 2**30


class Overlapping(Vendor):
    """Its device tells how much of its memory is used, as an accelerator does."""

    overlaps = True
    used_bytes: float | None = GIB

    def probe(self) -> tuple[Device, ...]:
        return tuple(replace(device, memory_bytes=8 * GIB) for device in super().probe())

    def read(self, device: Device) -> Mapping[str, float | None]:
        return {**super().read(device), "memory_used_bytes": self.used_bytes}


class Done(NamedTuple):
    """A line of the workload's log."""

    what: str
    pid: int
    begin: int
    end: int


def hasty(tmp_path: Path, *, launches: int = 2, **parameters: Any) -> Case:
    """A case whose first builds are healthy; the others are as it is told."""
    given = {"log": str(tmp_path / "log"), **parameters}
    return case("one", workload="faulty.hasty", launches=launches, parameters=given)


def made(tmp_path: Path, whole: Plan, vendor: Overlapping | None = None, **fields: Any) -> Bench:
    """The bench of a run that was begun as a run is."""
    bench = Bench(tmp_path / "run", whole, vendor=vendor or Overlapping(), **fields)
    begun = RunStarted(run_id=whole.run_id, plan="p", system="s", pid=1)
    bench.journal.append(begun)
    return bench


def sound(bench: Bench, *, is_ended: bool = False) -> None:
    """The journal is one that an auditor lets through."""
    check_conduct(bench.plan, bench.journal.lines, FILES, is_ended=is_ended)
    check_launches(bench.plan, bench.journal.lines)


def done(tmp_path: Path) -> list[Done]:
    lines = (line.split() for line in (tmp_path / "log").read_text().splitlines())
    return [Done(what, *map(int, numbers)) for what, *numbers in lines]


def ended(bench: Bench) -> list[tuple[str, str]]:
    """How each launch ended, in their order."""
    return [
        (event.outcome, event.reason) for event in bench.events if isinstance(event, LaunchEnded)
    ]


def ahead(bench: Bench) -> list[tuple[str, str]]:
    """Which launches were ordered ahead and how far, and which of those were ended and why."""
    return [
        (
            event.launch.rpartition("/")[2],
            event.through if isinstance(event, LaunchAhead) else event.reason,
        )
        for event in bench.events
        if isinstance(event, LaunchAhead | AheadEnded)
    ]
