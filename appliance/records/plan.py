"""The plan: cases, launches, their order and bounds, written before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.records.json import Number, Parameters, Record
from appliance.records.suite import CaseScope, Protocol, Scenario
from appliance.records.workload import Bound, Work, asks_for_tf32


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Record):
    """Workload, parameters and device: one planned thing.

    `ranks` is the number of processes of a launch, which so many `agents` of torchrun start.
    `devices` are all of a job's, of which rank i takes the i-th, or the two of a pair in the
    order of the copy; `device` is the first of them,
    and `devices` is empty where it is the only one. `memory_class_gib` is the class of the suite's
    table by which the parameters were chosen, None where there is no table. `variant` names the
    change that the seed drew to the parameters of the suite's case `variant_of`; both are empty
    for a case of the suite itself. `evaluate_every`: steps between two questions whether the
    target is reached, 0 without one. `needs` are the features that it needs, and
    `unsupported` is why it cannot run here, or empty. `software` is what of its libraries is
    missing, out of range or without its model, with the fix, or empty: it is not started then.
    `libraries` are the distributions that it needs, as far as is known of its workload.
    `injector` names the fault that its workload injects: a run that has one is never accepted.
    `fresh_because` is why its launches are fresh processes where others are forked, or empty.
    `assured` are the timed launches that a run within so many minutes has time for whatever others
    take, None where that is all of them; those after them are made where time is left. A case that
    has no such time is the `waits`-th to be made, whole, of the time that is left; 0 for others.
    """

    id: str
    workload: str
    version: int
    summary: str
    parameters: Parameters
    small: bool
    work: Work
    num_parameters: int | None
    steps: int | None
    is_timed: bool
    is_repeatable: bool
    alone: bool
    bound_by: Bound
    data_pattern: str
    scenario: Scenario
    weight: Number
    injector: str
    ranks: int
    device: str
    launches: int
    checked_launch: int | None
    expected_seconds: Number
    reference_seconds: Number
    time_limit_seconds: Number
    memory_limit_bytes: int
    unsupported: str = ""
    software: str = ""
    libraries: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    scope: CaseScope = "device"
    devices: tuple[str, ...] = ()
    agents: int = 1
    memory_class_gib: int | None = None
    variant: str = ""
    variant_of: str = ""
    evaluate_every: int = 0
    fresh_because: str = ""
    assured: int | None = None
    waits: int = 0

    @property
    def num_assured(self) -> int:
        """Timed launches that are made as a whole: at once, or once there is time for them."""
        return self.launches if self.assured is None else self.assured

    @property
    def all_devices(self) -> tuple[str, ...]:
        """Every device that it works on."""
        return self.devices or (self.device,)

    @property
    def is_of_one_process(self) -> bool:
        """Whether its launches are one process on one device."""
        return self.ranks == 1 and len(self.all_devices) == 1

    @property
    def place(self) -> str:
        """Names of all of its devices, in one word."""
        return "+".join(self.all_devices)

    @property
    def in_tf32(self) -> bool:
        """Whether its float32 products are to be made in TF32, and not in full."""
        return asks_for_tf32(self.parameters, self.work)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPlanned(Record):
    """A case of the suite that this node is too small for, with the reason in one sentence.

    `device` is empty where it is no matter of one device.
    """

    case: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Record):
    """One planned process run of one case. Number 0 is the untimed reference launch.

    Negative numbers are repeats in the deterministic phase, -1 the first; of that one the id ends
    in "r1". They are not timed.

    A case's last timed output is checked in its launch `Case.checked_launch`; should that one be
    interrupted, the next launch of the case that starts takes the check over. `session` is the
    part of the run that it is made in, from 1 on. `wave` is 0 of what has its own time; launches of
    wave 1 and on follow one wave after another, and are made where the minutes of the run are left.
    """

    id: str
    case: str
    number: int
    is_timed: bool
    session: int = 1
    wave: int = 0

    @property
    def is_repeat(self) -> bool:
        """Whether it is a repeat in the deterministic phase."""
        return self.number < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(Record):
    """Group-sequential bounds of one one-sided test of level `alpha`.

    `z[i]` is the bound on the standard-normal scale at `interim_analyses[i]` launches; Student's t
    is compared with the value of the same tail probability.
    """

    alpha: Number
    interim_analyses: tuple[int, ...]
    z: tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Record):
    """How many steps a disputed launch made: `warmup` untimed ones, then those of each block.

    A block ends by time, and a step takes its input by its number, so a repetition that made
    another number of steps would check another output.
    """

    warmup: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRow(Record):
    """A row of the suite, which is one case on all of its devices, and the time that it was given.

    `fixed_seconds` are of its untimed launch and its repeats, `launch_seconds` of one timed launch
    on all of its devices. `is_recorded`: both are of a qualified record; `is_estimated`: they are
    added up from what is known of its work, and if `is_assumed` also how long its step takes; else
    they are the suite's allowance. It makes `least`
    to `most` timed launches, or is left out (`launches` None). `variant_of` is the row that it is a
    drawn variant of; rows with the same `group` stand or fall together, because a criterion
    compares their speeds. `weight` is its part in the score. A row that is left out, and that the
    minutes could hold, is the `waits`-th to be made of the time that is left; 0 for others.
    """

    name: str
    group: str
    variant_of: str
    weight: Number
    fixed_seconds: Number
    launch_seconds: Number
    is_recorded: bool
    least: int
    most: int
    launches: int | None
    is_estimated: bool = False
    is_assumed: bool = False
    waits: int = 0

    @property
    def times(self) -> str:
        """What its seconds are: recorded, estimated of a step timed or assumed, an allowance."""
        if self.is_recorded:
            return "recorded"
        if not self.is_estimated:
            return "allowance"
        return "step assumed" if self.is_assumed else "estimated"

    @property
    def whole(self) -> int:
        """The timed launches that are made as a whole: those assured, or the fewest."""
        return self.least if self.launches is None else self.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Record):
    """What of a suite was planned within so many minutes: its rows in the suite's order.

    The launches of the rows follow from the rest of them, from `minutes` and from the protocol.
    """

    minutes: int
    rows: tuple[ScheduledRow, ...]

    @property
    def left_out(self) -> frozenset[str]:
        """Names of the rows that are not planned for want of time."""
        return frozenset(row.name for row in self.rows if row.launches is None and not row.waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """plan.json: everything that is fixed before the first launch.

    `seed` is 32 bytes in hexadecimal, from which all seeds derive. `groups` is the order: the
    launches of one group start together. `digests` holds the sha256 of the suite, criteria,
    baselines and peaks files and of the system's identity. A case's `checked_launch` None
    means that every launch checks its last output. `num_limits` is how many limits may each
    reject this run by chance; `bounds` are those that its tests use. `expected_seconds` is for a
    node that is decided at the first interim analysis, `longest_seconds` for all launches.
    `injectors` are the faults that the run injects; `rerun_of` is RUN/LAUNCH where it repeats a
    dispute, and `repeat` the steps that the timed launch of that dispute made, None where it was
    not timed. `not_planned` are the cases of the suite that this node is too small for. `redacted`
    is the sha256 of the salt by which the names and addresses of the host were replaced before
    anything was written, empty where nothing was. `converted_from` is the version of bench whose
    journal a test's records were made of, empty for every run: no run is planned with it, and what
    has it is no evidence. `sessions` are the parts of the run, each made by processes of its own;
    the next begins `pause_seconds` after the end of the one before, None whenever it is gone on
    with. `num_attempts` is how many attempts of its challenge have their pass bounds in `bounds`,
    0 where attempts are not counted. `schedule` is how the suite was fitted into the minutes that
    the run was given, None where none were: what was left out of it is `not_planned`.
    `hours` are those that a suite of burn-in was given in place of its own, None where none were;
    `stress` are the kinds that it was given beside its products, empty where none were.
    """

    schema: Literal["bench/plan/5"] = "bench/plan/5"
    run_id: str
    created_utc: str
    bench_version: str
    seed: str
    suite: str
    suite_version: int
    suite_summary: str
    criteria: str
    digests: Mapping[str, str]
    protocol: Protocol
    cases: tuple[Case, ...]
    launches: tuple[Launch, ...]
    groups: tuple[tuple[str, ...], ...]
    num_limits: int
    bounds: tuple[Bounds, ...]
    expected_seconds: Number
    longest_seconds: Number
    time_limit_seconds: Number
    injectors: tuple[str, ...]
    rerun_of: str
    repeat: Repeat | None = None
    not_planned: tuple[NotPlanned, ...] = ()
    redacted: str = ""
    ranges: Mapping[str, str] = field(default_factory=dict)
    converted_from: str = ""
    sessions: int = 1
    pause_seconds: Number | None = None
    num_attempts: int = 0
    hours: Number | None = None
    stress: str = ""
    schedule: Schedule | None = None
    is_time_limited: bool = False
