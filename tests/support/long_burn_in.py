"""A burn-in of hours on simulated devices, recorded by the code of production at its real cadence.

    python tests/support/long_burn_in.py HOURS DEVICES FOLDER

The suite, its plan, the journal, the folding of readings and steps and the judge are those of
production; only the clock, the readings (twice a second) and the times of steps (one a second) are
drawn, on devices whose facts are those of the recorded H100. What a segment covered is the
workload's own sentence of so many steps, formats and tests in their own turn. Every twentieth hour
of a device has a moment of heat, so that there is something to record in full. Writes a bundle to
FOLDER, signed with a development key, whose pages are the least that carry its files; `bench
report` and `bench sign` make real ones. Its days are before its release, which `facts` then finds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Literal

import torch
from support.bundles import seal
from support.large_nodes import COUNTERS, FEATURES, SEED, _answer, _system
from support.large_runs import without_journal
from support.recorded_runs import CRITERIA, CRITERIA_DATA
from support.report_samples import ORGANISATION

from appliance import extras
from appliance.evidence.folding import Values, fold_ns, fold_steps
from appliance.planning import library_ranges, workload_manifest
from appliance.planning.launch_constants import HOT, PLAIN, PROVEN
from appliance.planning.plan import Place, PlanInputs, make_plan
from appliance.records.baseline import Baselines
from appliance.records.journal import (
    END,
    Block,
    Check,
    Checked,
    Counted,
    Event,
    LaunchEnded,
    LaunchStarted,
    Line,
    PhaseBegan,
    RunEnded,
    RunStarted,
)
from appliance.records.json import sha256, to_json
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.vocabulary import THROTTLES
from appliance.runner.reading_log import ReadingLog
from appliance.scheduling.hours import with_hours
from appliance.selftest.simulation import VirtualClock, simulate
from appliance.selftest.time_model import Timing
from appliance.selftest.virtual_node import Node
from appliance.signing.keys import development_key, signer_record
from appliance.storage import bundle, device_file
from appliance.storage.journal import Journal
from appliance.storage.suite_file import load_suite
from appliance.stress.aggregates import Aggregate, Span, added
from appliance.stress.kinds import LAUNCHES, PARAMETER, kinds_of
from appliance.vendors.registry import libraries_of
from appliance.version import VERSION
from workloads.burn_in import COOL, FEWEST_TRIAL_ROUNDS
from workloads.parts.burning import coverage
from workloads.parts.burning.formats import FORMATS, OF_ACCELERATORS, Format
from workloads.parts.burning.lanes import Lane, Streams, Tally
from workloads.parts.burning.mismatches import Slot
from workloads.parts.burning.state import (
    KINDS,
    Burnt,
    Rotation,
    State,
    set_words,
    shapes_of,
)
from workloads.parts.memory.chain import Chain
from workloads.parts.memory.digests import NUM_DIGESTS, Scratch, Weights
from workloads.parts.memory.memory_tests import WORD_BYTES, Patterns, Wrong
from workloads.parts.stress.stressors import checks_of

SECOND = 10**9
READ_NS = SECOND // 2
PHASE_SECONDS = 300
WATTS = {HOT: 690.0, "cool": 260.0, PLAIN: 695.0, PROVEN: 692.0}
"""By phase; in all others a device draws less."""
HOT_WATTS = 600.0
SIDE, LANES, PARTS = 8192, 2, 3
ROUNDS = (30, 30, 15, 50, 2, 50)
"""Of each lane in a hot step of each format, of the size of what such a device would make."""
TOTAL_BYTES, FREE_BYTES, POOL_BYTES = 85 * 10**9, 84 * 10**9, 76 * 10**9
ASKED = (
    "1 thread 50 % of the time, copies, exchanges, gatherings and sums of blocks of 8,388,608 "
    "bytes among 8 devices by nccl"
)
"""Load that stress says it was asked for: the longest sentence of any kind."""
MEMORY_RATE, DRAW = 2e12, 7
"""Bytes a second, of the size of such a device's, and a seed."""


@dataclass(kw_only=True)
class Hour:
    """Keeps the lines of a simulated run, with the hour of each segment played out."""

    plan: Plan
    clock: VirtualClock
    journal: Journal
    block_seconds: float
    random: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - no secret
    open: dict[str, int] = field(default_factory=dict)
    steps: dict[str, list[int]] = field(default_factory=dict)
    phase_of: dict[str, str] = field(default_factory=dict)
    at_once: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cases = {case.id: case for case in self.plan.cases}
        self.case_of = {one.id: self.cases[one.case] for one in self.plan.launches}
        self.number_of = {one.id: one.number for one in self.plan.launches}
        self.readings = ReadingLog(
            record=self.journal.append,
            now_ns=lambda: self.clock.nanoseconds,
            case_of=self.case_of.get,
            fold_ns=fold_ns(self.plan),
        )

    def append(self, event: Event, *, sync: bool = False) -> Line:
        """Record an event of the simulation, as a burn-in has it."""
        del sync
        if isinstance(event, Block):
            if event.launch not in self.steps:
                self._play()
            event = self._block(event)
        elif isinstance(event, Checked) and event.phase == "last":
            event = self._checked(event)
        elif isinstance(event, LaunchStarted):
            self.open[event.launch] = self.clock.nanoseconds
        elif isinstance(event, LaunchEnded) and event.outcome == "completed":
            self.steps.pop(event.launch, None)
            event = replace(event, wall_ns=self.clock.nanoseconds - self.open.pop(event.launch))
        if isinstance(event, RunEnded):
            self._count("after")
        if isinstance(event, LaunchStarted):
            self._count_before(event.launch)
        self.readings.before(event)
        line = self.journal.append(event)
        self._stress(event)
        self.readings.after(event)
        if isinstance(event, RunStarted):
            self._count("before")
        if isinstance(event, LaunchEnded) and event.outcome == "completed":
            self._count_after(event.launch)
        return line

    def _count(self, moment: Literal["before", "after"]) -> None:
        for device in dict.fromkeys(case.device for case in self.plan.cases):
            counters = dict.fromkeys(COUNTERS, 0)
            self.journal.append(Counted(device=device, counters=counters, moment=moment))

    def _count_before(self, launch: str) -> None:
        """Counters of the devices of all launches that start together, before the first."""
        if not self.at_once:
            number = self.number_of[launch]
            self.at_once = {one for one, other in self.number_of.items() if other == number}
            self._count_beside("before")

    def _count_after(self, launch: str) -> None:
        """The same when all of them have ended."""
        self.ended.add(launch)
        if self.ended >= self.at_once:
            self._count_beside("after")
            self.at_once = set()

    def _count_beside(self, moment: Literal["before", "after"]) -> None:
        for launch in sorted(self.at_once):
            for device in self.case_of[launch].all_devices:
                same = Counted(
                    device=device, counters={}, launch=launch, moment=moment, is_same=True
                )
                self.journal.append(same)

    def _play(self) -> None:
        """The steps of all launches under way, with two readings of each device a second."""
        launches = [launch for launch in self.open if launch not in self.steps]
        begin, number = self.clock.nanoseconds, len(self.journal.lines)
        for launch in launches:
            self.steps[launch] = list(self._step_times())
        longest = max(sum(self.steps[launch]) for launch in launches)
        phases = [self._phases(launch) for launch in launches]
        for tick in range(longest // READ_NS):
            self.clock.advance_to(begin + (tick + 1) * READ_NS)
            for one in phases:
                while one and one[0].passed_ns <= tick * READ_NS:
                    self._record(one.pop(0))
            is_hot_moment = number // 40 % 20 == 0 and 4000 < tick < 4020
            for index, launch in enumerate(launches):
                watts = WATTS.get(self.phase_of.get(launch, ""), 480.0)
                values = self._values(tick // 2, index, watts, is_hot=is_hot_moment)
                self.readings.read(launch, self.case_of[launch].device, values)
        self.clock.advance_to(begin + longest + SECOND // 100)
        for one in phases:
            for phase in one:
                self._record(phase)

    def _record(self, event: PhaseBegan) -> None:
        self.phase_of[event.launch] = event.phase
        self.readings.before(event)
        self.journal.append(event)

    def _phases(self, launch: str) -> list[PhaseBegan]:
        """The phases of the steps of a launch, as the workload has them."""
        passed = [0, *accumulate(self.steps[launch])]
        return [
            PhaseBegan(
                launch=launch,
                rank=0,
                index=0,
                phase=name,
                step=step,
                passed_ns=passed[step],
                units=units,
                processor_ns=passed[step],
                threads=1,
            )
            for step, name, units in schedule(len(passed) - 1)
        ]

    def _step_times(self) -> Iterator[int]:
        passed = 0
        while passed < self.block_seconds * SECOND:
            step = round(SECOND * self.random.gauss(1.0, 0.01))
            passed += step
            yield step

    def _values(self, second: int, index: int, watts: float, *, is_hot: bool) -> Values:
        """What a device reports: 24 values, as the recorded H100 does."""
        power = watts + self.random.gauss(0, 4)
        return {
            **{f"throttled_{name}": 0.0 for name in THROTTLES},
            "throttled_power_cap": float(watts > HOT_WATTS and self.random.random() < 0.5),
            "throttled_thermal": float(is_hot),
            "energy_joules": 1e6 + 690.0 * second,
            "fan_fraction": None,
            "graphics_clock_hertz": 1e6 * round(1755 + self.random.gauss(0, 20)),
            "memory_clock_hertz": 2.619e9,
            "memory_temperature_celsius": float(70 + round(self.random.gauss(0, 1))),
            "memory_used_bytes": 76517539840.0,
            "memory_utilisation_fraction": 0.4,
            "pcie_generation": 5.0,
            "pcie_width": 16.0,
            "power_watts": round(power, 3),
            "temperature_celsius": float(62 + index % 4 + round(self.random.gauss(0, 1)))
            + (20.0 if is_hot else 0.0),
            "throttle_mask": 0.0,
            "utilisation_fraction": 1.0,
        }

    def _stress(self, event: Event) -> None:
        """Behind a launch's last check those of each kind of stress, of minute after minute."""
        if not isinstance(event, Checked) or event.phase != "last":
            return
        case = self.case_of[event.launch]
        minutes = round(self.block_seconds / 60)
        for kind in kinds_of(case.workload, case.parameters):
            span = Span(60_000, 30_000 + self.random.randrange(999), 2**33 + 7, 2**34 + 9, 8_000)
            spans = added([span] * minutes)
            own = Aggregate(kind=kind, asked=ASKED, spans=spans)
            for check in checks_of(own, is_again=False):
                self.journal.append(replace(event, check=check))

    def _block(self, event: Block) -> Block:
        times = self.steps[event.launch]
        events = [time - time // 10_000 for time in times]
        folded = fold_steps(times, events, self.readings.fold_ns)
        whole = sum(times) + 1000 * len(times)
        return replace(
            event,
            wall_ns=folded.wall_ns,
            event_ns=folded.event_ns,
            folded=folded.folded,
            block_wall_ns=whole,
            block_raw_ns=whole,
        )

    def _checked(self, event: Checked) -> Checked:
        num_steps = len(self.steps[event.launch])
        check = Check(
            name="mismatches, repeated or lasting",
            error=0,
            bound=0,
            kind="exact",
            detects=1,
            detects_what=covered(num_steps),
        )
        return replace(event, step=num_steps, check=check)


@cache
def covered(num_steps: int) -> str:
    """What a segment of so many steps says that it covered: the workload's own sentence of it."""
    return _played(num_steps)[0]


def schedule(num_steps: int) -> list[tuple[int, str, int]]:
    """Steps that begin a phase of load, with its name and the products that were made by then."""
    return _played(num_steps)[1]


@cache
def _played(num_steps: int) -> tuple[str, list[tuple[int, str, int]]]:
    state = _burnt_state()
    begun: list[tuple[int, str, int]] = []
    for number in range(num_steps):
        if not begun or begun[-1][1] != state.load:
            begun.append((number, state.load, state.num_products))
        burnt, phase = number % len(state.formats), state.phase
        share = {"cool": COOL, "load in jumps": 2, PLAIN: 2, PROVEN: 2}.get(phase, 1)
        rounds = max(FEWEST_TRIAL_ROUNDS if share == 2 else 1, ROUNDS[burnt] // share)
        rounds = rounds if number >= len(state.formats) else 1
        num_bare = rounds - 1 if phase == PLAIN else 0
        state.phases[phase] += rounds * LANES
        state.num_products += rounds * LANES * len(state.formats[burnt].slots)
        state.num_bare += num_bare * LANES * len(state.formats[burnt].slots)
        for lane in state.lanes:
            lane.tallies[burnt].num_rounds += rounds - num_bare
        if number >= len(state.formats) and phase not in (PLAIN, PROVEN):
            visit = state.rotation.next(is_cool=phase == "cool")
            for lane in state.lanes:
                lane.tested_words[visit.test] += visit.stop - visit.start
        state.num_operand_readings += 4
        state.num_steps += 1
    return coverage.covered(state, 0, [], 4), [*begun, (num_steps, END, state.num_products)]


def _burnt_state() -> State:
    """A burn-in's counts before its first step, on an H100-class device that is not there."""
    words, host = POOL_BYTES // WORD_BYTES // LANES, torch.device("cpu")
    made = [FORMATS[name] for name in OF_ACCELERATORS]
    return State(
        formats=[_burnt(form, words) for form in made],
        lanes=[_lane(words, len(made)) for _ in range(LANES)],
        patterns=Patterns.make(host, DRAW),
        rotation=Rotation(words=words, parts=PARTS),
        free_bytes=FREE_BYTES,
        total_bytes=TOTAL_BYTES,
        chain=Chain.make(16, "bfloat16", DRAW, host),
        key=torch.zeros(1, dtype=torch.int64),
        keys=torch.zeros(1, dtype=torch.int64),
        signs=torch.zeros(SIDE),
        rows=torch.zeros(1),
        draw=DRAW,
        phase_steps=PHASE_SECONDS,
        trial_steps=len(made),
        memory_rate=MEMORY_RATE,
    )


def _burnt(form: Format, words: int) -> Burnt:
    weights = Weights(rows=torch.zeros(0), columns=torch.zeros(0), digits=torch.zeros(0))
    slots = [
        Slot(format=form, kind=kind, m=m, n=n, k=k, weights=weights)
        for m, n, k in shapes_of(form, SIDE)
        for kind in KINDS
    ]
    sets = words // set_words(form, SIDE)
    return Burnt(format=form, operands={}, slots=slots, num_sets=sets)


def _lane(words: int, num_formats: int) -> Lane:
    """A lane without memory: it has a size and counts."""
    host = torch.device("cpu")
    expected = torch.zeros(1, NUM_DIGESTS, dtype=torch.int64)
    return Lane(
        streams=Streams(),
        pool=torch.empty(words, dtype=torch.int64, device="meta"),
        scratch=Scratch.make(1, host),
        tallies=[Tally.make(expected, host) for _ in range(num_formats)],
        memory_wrong=Wrong.make(host),
        memory_wrong_on_host=torch.zeros(1, dtype=torch.int64),
    )


def long_burn_in(
    hours: float, num_devices: int, folder: Path, *, stress: str = ""
) -> bundle.Bundle:
    """A run of so many hours on so many devices, with stress beside it, written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    system = _allowed(_system(num_devices))
    plan = _plan(system, hours, stress)
    files = _files(system)
    names = {
        "criteria": bundle.CRITERIA,
        "baselines": bundle.BASELINES,
        "peaks": bundle.PEAKS,
        "qualified": bundle.QUALIFIED,
    }
    digests = {name: sha256(files[file]) for name, file in names.items()}
    suite = {"suite": sha256(b"soak"), "identity": sha256(to_json(system.identity))}
    plan = replace(plan, digests={**digests, **suite})
    files[bundle.PLAN] = to_json(plan)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    clock = VirtualClock()
    journal = Journal.create(folder / bundle.JOURNAL, sha256(files[bundle.PLAN]), clock.of_journal)
    node = Node(
        plan=plan,
        system=system,
        criteria=CRITERIA,
        baselines=Baselines(baseline=()),
        peaks=device_file.load_peaks([one.model for one in system.identity.devices]),
        timings={case.id: Timing(step_seconds=0.5, has_events=True) for case in plan.cases},
        digests={name: sha256(files[name]) for name in (bundle.PLAN, bundle.SYSTEM)},
    )
    keeper = Hour(
        plan=plan, clock=clock, journal=journal, block_seconds=plan.protocol.block_seconds
    )
    simulate(node, seed=1, keeper=keeper, clock=clock)
    verdict = node.judge(journal.lines).verdict()
    journal.close()
    (folder / bundle.VERDICT).write_bytes(to_json(verdict))
    names_of = [*files, bundle.JOURNAL, bundle.VERDICT]
    return bundle.read_files(
        {name: (folder / name).read_bytes() for name in names_of}, complete=False
    )


def sealed_long(hours: float, num_devices: int, folder: Path, *, stress: str = "") -> Path:
    """The same, signed with a development key; its pages do not carry the journal."""
    key = development_key()
    files = dict(long_burn_in(hours, num_devices, folder, stress=stress).files)
    files[bundle.SIGNER] = to_json(signer_record(key, "tester"))
    return seal(folder, files, key, carried=without_journal)


def _allowed(system: System) -> System:
    """The recorded node with a version of torch that this release allows."""
    torch = replace(system.identity.software["torch"], value="2.13.0")
    software = {**system.identity.software, "torch": torch}
    return replace(system, identity=replace(system.identity, software=software))


def _plan(system: System, hours: float, stress: str) -> Plan:
    suite = with_hours(load_suite("soak-168h")[0], hours)
    suite = replace(suite, protocol=replace(suite.protocol, repeats=0, last_checks="all"))
    manifest = workload_manifest.load()
    plan = make_plan(
        PlanInputs(
            suite=suite,
            answer=_answer(suite, system),
            places=[
                Place(device=device, features=FEATURES, available_datasets=frozenset())
                for device in system.identity.devices
            ],
            criteria=CRITERIA,
            digests={},
            seed=SEED,
            run_id="20260101T000000Z-5e5e5e",
            created_utc="2026-01-01T00:00:00Z",
            bench_version=VERSION,
            manifest=manifest,
            ranges=library_ranges.allowed(extras.ranges(), libraries_of("cuda").ranges),
        )
    )
    asked = {PARAMETER: stress, LAUNCHES: len(system.identity.devices)} if stress else {}
    cases = (replace(case, parameters={**case.parameters, **asked}) for case in plan.cases)
    return replace(plan, cases=tuple(cases), hours=hours, stress=stress)


def _files(system: System) -> dict[str, bytes]:
    peaks = device_file.load_peaks([one.model for one in system.identity.devices])
    return {
        bundle.SYSTEM: to_json(system),
        bundle.CRITERIA: CRITERIA_DATA,
        bundle.BASELINES: to_json(Baselines(baseline=())),
        bundle.PEAKS: to_json(peaks),
        bundle.QUALIFIED: to_json(Qualified(record=())),
        bundle.SIGNER: to_json(ORGANISATION),
    }


def main() -> None:
    """Write a run, and say how large its journal is."""
    hours, num_devices, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    size = (sealed_long(hours, num_devices, folder) / bundle.JOURNAL).stat().st_size
    sys.stdout.write(f"{hours:g} h, {num_devices} devices: journal of {size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
