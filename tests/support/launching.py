"""Runs of made-up plans for tests: a plan of given cases, the run, and what its journal says."""

# ruff: noqa: ARG002 - the protocol names the arguments

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty.vendor import Vendor
from support.builders import FUNCTIONAL
from support.bundles import NOTHING_KNOWN

from appliance.judging.limits import RulingInputs
from appliance.planning.plan import all_launches
from appliance.planning.sessions import rounds
from appliance.records.journal import Event, InterimAnalysis, LaunchEnded, ServerProbed
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case, Launch, Plan, ScheduledRow
from appliance.records.qualified import IdleNeighbour, ObservedCase
from appliance.records.suite import LaunchMode, Protocol
from appliance.records.workload import Work
from appliance.runner import execution
from appliance.scheduling.left_time import Given
from appliance.storage.journal import Clock, Journal

SEED = "5a" * 32
TESTS = Path(__file__).parents[1]
MIB = 2**20


def assumed_row(name: str, *, seconds: float, least: int, launches: int) -> ScheduledRow:
    """A row of a schedule whose step is assumed; a launch of it is planned for `seconds`."""
    return ScheduledRow(
        name=name,
        group=name,
        variant_of="",
        weight=1.0,
        fixed_seconds=1.0,
        launch_seconds=seconds,
        is_recorded=False,
        is_estimated=True,
        is_assumed=True,
        least=least,
        most=launches,
        launches=launches,
    )


def case(name: str, *, workload: str = "faulty.misbehaving", **fields: Any) -> Case:
    """A case of a misbehaving workload; parameters not given have the workload's defaults."""
    device = fields.pop("device", "cpu:0")
    given: dict[str, Any] = {
        "version": 1,
        "summary": "",
        "parameters": {},
        "small": True,
        "work": Work(),
        "num_parameters": None,
        "steps": None,
        "is_timed": True,
        "is_repeatable": True,
        "alone": False,
        "bound_by": "compute",
        "data_pattern": "random",
        "scenario": "",
        "weight": 1.0,
        "injector": "",
        "ranks": 1,
        "launches": 1,
        "checked_launch": None,
        "expected_seconds": 1.0,
        "reference_seconds": 1.0,
        "time_limit_seconds": 300.0,  # longer than the slowest machine needs
        "memory_limit_bytes": 4096 * MIB,
        **fields,
    }
    return Case(id=f"{name}@{device}", workload=workload, device=device, **given)


def plan(
    *cases: Case,
    mode: LaunchMode = "forked",
    interim_analyses: tuple[int, ...] = (1,),
    groups: Sequence[tuple[str, ...]] = (),
    warmup_steps: int = 1,
    warmup_seconds: float = 0.0,
    repeats: int = 0,
    sessions: int = 1,
) -> Plan:
    """All launches of the cases; in rounds, one by one, if no groups are given."""
    protocol = Protocol(
        mode=mode,
        calibration_seconds=0.03,
        warmup_steps=warmup_steps,
        warmup_seconds=warmup_seconds,
        blocks=2,
        block_steps=3,
        block_seconds=0.0,
        interim_analyses=interim_analyses,
        last_checks="one",
        repeats=repeats,
    )
    planned = all_launches(cases, protocol, sessions)
    places = rounds(planned)
    launches = tuple(sorted(planned, key=lambda launch: places[launch.id]))
    return Plan(
        run_id="test-run",
        created_utc="2026-01-01T00:00:00Z",
        bench_version="0",
        seed=SEED,
        suite="test",
        suite_version=1,
        suite_summary="",
        criteria="functional",
        digests={},
        protocol=protocol,
        cases=cases,
        launches=launches,
        groups=tuple(groups) or tuple((launch.id,) for launch in launches),
        num_limits=0,
        bounds=(),
        expected_seconds=1.0,
        longest_seconds=1.0,
        time_limit_seconds=100.0,
        injectors=(),
        rerun_of="",
        sessions=sessions,
    )


class Seen:
    """An observer that notes what it was told, and acts on it if a test says so."""

    def __init__(self, on_start: Callable[[Launch], None] | None = None) -> None:
        self.ended: list[str] = []
        self.given: list[Given] = []
        self.probed: list[ServerProbed] = []
        self.num_done = -1
        self.foretellings: tuple[str, ...] = ()
        self._on_start = on_start

    def suite_chosen(self, plan: Plan) -> None: ...

    def preflight_warnings(self, sentences: Sequence[str]) -> None:
        self.foretellings = tuple(sentences)

    def session_ended(self, plan: Plan, session: int) -> None: ...

    def run_begins(self, plan: Plan, num_done: int, session: int) -> None:
        self.num_done = num_done

    def server_probed(self, event: ServerProbed) -> None:
        self.probed.append(event)

    def launch_started(self, launch: Launch, mode: LaunchMode) -> None:
        if self._on_start is not None:
            self._on_start(launch)

    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None:
        self.ended.append(launch.id)

    def analysed(self, event: InterimAnalysis) -> None: ...

    def time_given(self, given: Given) -> None:
        self.given.append(given)


@dataclass
class Bench:
    """One bundle folder, and its journal as the run leaves it."""

    folder: Path
    plan: Plan
    interim_analysis: Callable[[str], tuple[bool, str]] = lambda _: (False, "open")
    vendor: Vendor = field(default_factory=Vendor)
    clock: Clock = field(default_factory=Clock)
    observed: tuple[ObservedCase, ...] = ()
    idle: tuple[IdleNeighbour, ...] = ()
    judged_first_steps: frozenset[str] = frozenset()
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        path, first = self.folder / "journal.jsonl", sha256(to_json(self.plan))
        exists = path.exists()
        self.journal = (
            Journal.reopen(path, first, self.clock)[0]
            if exists
            else Journal.create(path, first, self.clock)
        )

    @property
    def inputs(self) -> RulingInputs:
        """What its rulings stand on where nothing is known of the device."""
        return RulingInputs(plan=self.plan, criteria=FUNCTIONAL, **NOTHING_KNOWN)

    def run(self, observer: Seen | None = None) -> None:
        execution.run(
            plan=self.plan,
            vendors={self.vendor.name: self.vendor},
            devices={device.id: device for device in self.vendor.probe()},
            journal=self.journal,
            folder=self.folder,
            work=self.folder.parent / "work",
            data=None,
            interim_analysis=self.interim_analysis,
            observer=observer or Seen(),
            num_threads=1,
            observed=self.observed,
            idle=self.idle,
            judged_first_steps=self.judged_first_steps,
        )

    @property
    def events(self) -> list[Event]:
        return [line.event for line in self.journal.lines]

    def of(self, launch: str, kind: type | None = None) -> list[Any]:
        """Events of one launch, of one kind or all."""
        return [
            event
            for event in self.events
            if getattr(event, "launch", None) == launch and isinstance(event, kind or object)
        ]

    def ended(self, launch: str) -> LaunchEnded:
        (event,) = self.of(launch, LaunchEnded)
        result: LaunchEnded = event
        return result


def bearers(mark: str) -> list[int]:
    """Living processes, other than this one, that have a text in their environment."""
    result = []
    for name in Path("/proc").iterdir():
        if not name.name.isdecimal() or int(name.name) == os.getpid():
            continue
        try:
            is_zombie = b") Z" in (name / "stat").read_bytes()
            if mark.encode() in (name / "environ").read_bytes() and not is_zombie:
                result.append(int(name.name))
        except OSError:
            continue
    return result
