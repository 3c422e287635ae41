"""The nouns of the project as frozen, slotted, keyword-only dataclasses, to and from JSON.

Every file of a bundle is one of these records in canonical JSON (RFC 8785), with a schema
id that carries its version. Reading is strict: an unknown key, a missing key or a wrong
type is an error. JSON has no NaN and no integers above 2**53, so a `Number` that is not
finite is written as "nan", "inf" or "-inf", and a `BigInt` (nanoseconds, seeds) as a
decimal string. pydantic reads and writes; it was chosen (2026-11) over a codec of our own
because it also writes the JSON Schemas in appliance/schemas.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import rfc8785
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from appliance.errors import ApplianceError, EvidenceError

# ------------------------------------------------------------------ scalars

BIG_INT = re.compile("0|-?[1-9][0-9]{0,18}")  # 10**19 ns are three centuries; a float holds all


def _read_number(value: object) -> object:
    return float(value) if value in ("nan", "inf", "-inf") else value


def _write_number(value: float) -> float | str:
    if math.isnan(value):
        return "nan"
    # a whole number beyond 2**53 must not reach JSON as one
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else float(value)


def _read_big_int(value: object) -> object:
    if isinstance(value, str) and BIG_INT.fullmatch(value):
        return int(value)
    message = "a whole number of at most 19 digits as a decimal string is wanted"
    raise ValueError(message)


Number = Annotated[
    float,
    BeforeValidator(_read_number),
    PlainSerializer(_write_number, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}),
]
BigInt = Annotated[
    int,
    BeforeValidator(_read_big_int),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^-?[0-9]+$"}),
]
SafeInt = Annotated[int, Field(gt=-(2**53), lt=2**53)]  # what JSON shows beyond was a float
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]  # the text "nan" is a text
Scalar = bool | SafeInt | FiniteFloat | str
Parameters = Mapping[str, Scalar]

OrderOperator = Literal["==", ">=", "<=", "in", "matches"]
Outcome = Literal["completed", "crashed", "timed_out", "interrupted", "unsupported", "not_run"]
RulingWord = Literal["pass", "fail", "inconclusive", "not_applicable"]
VerdictWord = Literal["ACCEPTED", "REJECTED", "INCONCLUSIVE"]
CriterionKind = Literal[
    "completion",
    "integrity",
    "numeric",
    "exact",
    "determinism",
    "trajectory",
    "collective",
    "health",
    "inventory",
    "perf",
    "tail",
    "drift",
]
CheckKind = Literal["numeric", "exact", "trajectory", "collective"]
Reason = Literal[
    "",  # a pass needs none
    "crashed",
    "timed_out",
    "check",
    "interrupted",
    "unsupported",
    "not_run",
    "coverage",
    "evidence_missing",
    "noise",
    "over_limit",
    "clock",
    "unstable",
    "environment",
    "budget",
    "baseline_missing",
    "baseline_mismatch",
    "peak_missing",
    "above_peak",
    "too_good",
    "injected",
    "rerun",
    "transient",
    "disagreement",
    "stalled",
    "health",
    "not_observed",
    "absent",
    "inventory",
]
Bound = Literal["compute", "memory", "latency", "input", "collective"]
Scenario = Literal["", "single_stream", "offline"]
SeriesClass = Literal["", "short", "steady", "warm_up", "slowdown", "no_steady_state"]
Phase = Literal["first", "last", "sampled", "repeatability", "repeated"]
LaunchMode = Literal["forked", "fresh"]
CaseScope = Literal["device", "node", "job", "pair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of all records: unknown keys and wrong types are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, ser_json_inf_nan="constants"
    )


# ------------------------------------------------------------------ the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Record):
    """One thing read of a machine; `value` None is shown as "not reported".

    `source` says where it was read; `hint` names the permission or flag that would allow a
    value that is missing.
    """

    value: Scalar | None
    unit: str = ""
    source: str = ""
    hint: str = ""


Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Record):
    """One physical unit. `id` is vendor:index; `serial` is its serial or UUID if it has one."""

    id: str
    vendor: str
    index: int
    model: str
    serial: str | None
    memory_bytes: int | None
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Record):
    """Another process that uses the machine: its name and shares, and nothing that names a user."""

    name: str
    cpu_share: Number
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(Record):
    """What does not change between a run and its resumption."""

    devices: tuple[Device, ...]
    host: Facts
    memory_modules: tuple[Facts, ...]
    disks: tuple[Facts, ...]
    interfaces: tuple[Facts, ...]
    software: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(Record):
    """What may change from minute to minute."""

    utc: str
    facts: Facts
    foreign_processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Record):
    """system.json: the node with all its devices."""

    schema: Literal["bench/system/1"] = "bench/system/1"
    identity: Identity
    conditions: Conditions


# ------------------------------------------------------------------ what is to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Record):
    """What one step does: `units` of `unit`, floating-point operations, bytes moved.

    None means that it is not counted; never a guess. `precision` is the number format of the
    operations as the device files name it ("bfloat16"); empty where they are of several, so that
    no one peak bounds them.
    """

    units: Number = 1.0
    unit: str = "steps"
    flops: Number | None = None
    bytes: Number | None = None
    precision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Record):
    """One parameter of a workload, as `worker describe` tells it."""

    name: str
    type: Literal["bool", "int", "float", "str"]
    default: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Description(Record):
    """What the plan needs to know of one workload, without importing it.

    `bound_by` is what limits its speed on a healthy device, which chooses its margin;
    `data_pattern` what its inputs are; `injector` the fault that it injects on purpose, empty
    for every workload that measures a device.
    """

    name: str
    version: int
    summary: str
    parameters: tuple[Parameter, ...]
    small: Parameters
    needs: tuple[str, ...]
    data: tuple[str, ...]
    steps: int | None
    alone: bool
    is_timed: bool
    is_repeatable: bool
    bound_by: Bound
    data_pattern: str
    injector: str
    domain: str = ""
    variants: Mapping[str, Parameters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(Record):
    """One case as the worker resolved it: complete parameters, its work, its size.

    `variant` names the change of parameters that was drawn; empty where none was.
    """

    parameters: Parameters
    work: Work
    num_parameters: int | None
    steps: int | None
    scenario: Scenario
    ranks: int
    variant: str = ""
    evaluate_every: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Record):
    """How the launches of a suite are made; printed on page 1.

    A launch compares its clocks over `calibration_seconds` of work, warms up for at least
    `warmup_steps` and `warmup_seconds`, then makes `blocks` blocks of at least `block_steps`
    steps and `block_seconds`. `looks` are the launch counts at which a case is judged; the last
    is the largest number of launches. `last_checks`: check the last timed output in every launch
    ("all") or in one launch of each case, drawn by the seed ("one").
    """

    mode: LaunchMode
    calibration_seconds: Number
    warmup_steps: int
    warmup_seconds: Number
    blocks: int
    block_steps: int
    block_seconds: Number
    looks: tuple[int, ...]
    last_checks: Literal["all", "one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryClass(Record):
    """What a case's parameters are on devices that have `gib` of memory or more."""

    gib: int
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase(Record):
    """One case as a suite file writes it.

    `scope`: "device", one process on each device; "node", the same with loader, decoding and
    storage in the loop; "job", one launch of many ranks over all devices of a maker; "pair", one
    launch for every ordered pair of a maker's devices, in which both are visible. It needs
    `num_devices` devices, `num_nodes` nodes and the features in `needs`, beside those of its
    workload. `agents` is how many torchrun agents start the ranks. `memory` has parameters by
    the device's memory, of which the largest class that fits is taken. `variants`: whether the
    seed may draw a variant of it; None means what the suite says. `alone`: whether no other device
    works meanwhile; None means what the workload says.

    `launches` None means those of the protocol's looks; `weight` is its part in the suite score.
    `expected_seconds` is of one timed launch, `reference_seconds` of the untimed one, both on a
    2-core CPU; they make the planned time and the expected time that progress shows.
    """

    id: str
    workload: str
    small: bool = False
    parameters: Parameters = field(default_factory=dict)
    launches: int | None = None
    weight: Number = 1.0
    expected_seconds: Number
    reference_seconds: Number
    time_limit_seconds: Number
    memory_limit_gib: Number
    scope: CaseScope = "device"
    num_devices: int = 1
    num_nodes: int = 1
    needs: tuple[str, ...] = ()
    agents: int = 1
    variants: bool | None = None
    alone: bool | None = None
    memory: tuple[MemoryClass, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(Record):
    """workloads/suites/NAME.toml: ordered cases and the protocol they are run by.

    With `variants`, one case of each workload is planned a second time with other parameters,
    which the run's seed draws among the variants of the workload.
    """

    schema: Literal["bench/suite/1"] = "bench/suite/1"
    name: str
    version: int
    summary: str
    time_limit_seconds: Number
    variants: bool = False
    protocol: Protocol
    case: tuple[SuiteCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion(Record):
    """One requirement, applied to every case that `cases` matches (a shell pattern).

    What it compares, by its kind:

    - perf: `metric` (step_seconds, first_step_seconds, seconds_to_target, steps_to_target,
      units_per_second, flops_per_second, bytes_per_second) with one limit: `at_most`, `at_least`,
      `fraction_of_peak`, or `within_of_baseline`, a margin like 0.03, or "class" for that of
      `Criteria.margins`. Metric throughput_ratio is the speed of a case over that of another one
      of the same run, which the pattern `against` names, with `at_least`; see ratios.py.
      `margin` is the practical margin that an absolute limit leaves, which sets the smallest
      spread that a pass is granted for (None: the class's).
    - tail: `metric` stall_rate, stall_share (of a step's time, for loading), slow_launch_rate (of
      all matching cases together), or latency_seconds at `quantile`; with `at_most`.
    - drift: `metric` drift_per_30_minutes, relative; with `at_most`.
    - health: `metric` a counter, a reading, or what the ledger makes of them (ledger.py), with
      `at_least` or `at_most`; one ruling over all devices of the matching cases. `if_absent` is
      what becomes of a device that cannot have it at all, as its vendor says; `if_not_observed` of
      one that may not be looked at, as a file may state openly of a second witness.
    - inventory: `metric` a fact of system.json ("devices.count", "devices.memory_bytes",
      "devices.FACT", "host.FACT"), with `equals`, `at_least` or `at_most`.

    `unit` is that of the limit (say "TFLOP/s"); empty means the metric's own SI unit.
    """

    id: str
    kind: CriterionKind
    title: str
    cases: str = "*"
    required: bool = True
    metric: str = ""
    unit: str = ""
    at_least: Number | None = None
    at_most: Number | None = None
    equals: Scalar | None = None
    fraction_of_peak: Number | None = None
    within_of_baseline: Number | Literal["class"] | None = None
    margin: Number | None = None
    quantile: Number | None = None
    against: str = ""
    if_absent: Literal["inconclusive", "not_applicable"] = "inconclusive"
    if_not_observed: Literal["inconclusive", "not_applicable"] = "inconclusive"


MARGINS: Mapping[str, float] = {
    "compute": 0.03,
    "memory": 0.03,
    "latency": 0.05,
    "input": 0.05,
    "collective": 0.05,
}
"""What a healthy device may lose, by what bounds the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria(Record):
    """criteria.toml: all requirements, fixed before anything runs.

    `alpha_pass` is the largest risk that a criterion at its limit is passed; `alpha_fail` that a
    run with everything at its limit is rejected, which all of its limits share. `may_lack` names,
    by pattern, the suite's cases that a node may be too small for; without it every case of the
    suite must be planned.
    """

    schema: Literal["bench/criteria/1"] = "bench/criteria/1"
    name: str
    version: int
    summary: str
    alpha_pass: Number = 0.01
    alpha_fail: Number = 0.008
    margins: Mapping[str, Number] = field(default_factory=lambda: dict(MARGINS))
    may_lack: tuple[str, ...] = ()
    criterion: tuple[Criterion, ...]


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
    `unsupported` is why it cannot run here, or empty.
    `injector` names the fault that its workload injects: a run that has one is never accepted.
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
    needs: tuple[str, ...] = ()
    scope: CaseScope = "device"
    devices: tuple[str, ...] = ()
    agents: int = 1
    memory_class_gib: int | None = None
    variant: str = ""
    variant_of: str = ""
    evaluate_every: int = 0

    @property
    def all_devices(self) -> tuple[str, ...]:
        """Every device that it works on."""
        return self.devices or (self.device,)


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

    A case's last timed output is checked in its launch `Case.checked_launch`; should that one be
    interrupted, the next launch of the case that starts takes the check over.
    """

    id: str
    case: str
    number: int
    is_timed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(Record):
    """Group-sequential bounds of one one-sided test of level `alpha`.

    `z[i]` is the bound on the standard-normal scale at `looks[i]` launches; Student's t is
    compared with the value of the same tail probability.
    """

    alpha: Number
    looks: tuple[int, ...]
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
class Plan(Record):
    """plan.json: everything that is fixed before the first launch.

    `seed` is 32 bytes in hexadecimal, from which all seeds derive. `groups` is the order: the
    launches of one group start together. `digests` holds the sha256 of the suite, criteria,
    baselines and peaks files and of the system's identity. A case's `checked_launch` None
    means that every launch checks its last output. `num_limits` is how many limits may each
    reject this run by chance; `bounds` are those that its tests use. `expected_seconds` is for a
    node that is decided at the first look, `longest_seconds` for all launches. `injectors` are
    the faults that the run injects; `rerun_of` is RUN/LAUNCH where it repeats a dispute, and
    `repeat` the steps that the timed launch of that dispute made, None where it was not timed.
    `not_planned` are the cases of the suite that this node is too small for. `redacted` is the
    sha256 of the salt by which the names and addresses of the host were replaced before anything
    was written, empty where nothing was.
    """

    schema: Literal["bench/plan/2"] = "bench/plan/2"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge(Record):
    """challenge.json: a buyer's nonce, from which all seeds of a run derive, and until when.

    `nonce` is 32 bytes in hexadecimal. `criteria` and `suite` are the sha256 of the files that
    the buyer asks for, empty where he leaves them to the node. `note` is his own reference.
    """

    schema: Literal["bench/challenge/1"] = "bench/challenge/1"
    nonce: str
    issued_utc: str
    not_after_utc: str
    criteria: str
    suite: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine(Record):
    """One thing that was bought: a field of system.json, and what is to be found there.

    `field` is a dotted path ("devices.count", "devices.memory_bytes", "host.memory"). Of several
    parts all must be so, or at least `count` of them. `value` is a list for the operator "in".
    `unit` is that of the value; ordering.py says what each operator compares.
    """

    title: str
    field: str
    op: OrderOperator
    value: Scalar | tuple[Scalar, ...]
    unit: str = ""
    count: int | None = None
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """order.toml: what the buyer bought, line by line."""

    schema: Literal["bench/order/1"] = "bench/order/1"
    name: str
    summary: str
    line: tuple[OrderLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest(Record):
    """What a suite asks the worker to resolve: a workload with some of its parameters.

    `num_devices` is that of a job with a rank on each of its devices, which becomes the parameter
    "ranks" of a workload that has it; 0 leaves the parameters as they are. `draw` is a number that
    draws one of the workload's variants, None for none.
    """

    workload: str
    small: bool
    parameters: Parameters
    num_devices: int = 0
    draw: BigInt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Record):
    """Why a request cannot be resolved: one sentence."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Record):
    """What `worker describe` prints: workloads, and the resolved requests in their order.

    `software` holds what only an import can tell: versions, BLAS, threads, torch's device name.
    """

    descriptions: tuple[Description, ...]
    resolved: tuple[Resolved | Refused, ...]
    software: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec(Record):
    """Everything that a child is told of its launch; read from its standard input or the server.

    `artifacts` are the digests that the case's untimed launch reported (empty in that launch).
    `data` and `artifacts_folder` are absolute paths.
    """

    launch: str
    case: Case
    vendor: str
    protocol: Protocol
    is_timed: bool
    check_last: bool
    seed: BigInt
    data: str | None
    artifacts_folder: str
    artifacts: Mapping[str, str]
    socket: str
    token: str
    num_threads: int | None
    repeat: Repeat | None = None

    @property
    def ranks(self) -> int:
        """Processes of the launch."""
        return self.case.ranks


# ------------------------------------------------------------------ what happened (journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Record):
    """A correctness comparison. It is within its bound or not; NaN is not.

    `detects` is the smallest error that this check would have caught at the parameters that
    ran, in the sense that `detects_what` names; None where the check is exact. `if_outside` is what
    it means not to be within: a mismatch that happened once and never again proves nothing.
    """

    name: str
    error: Number
    bound: Number
    kind: CheckKind = "numeric"
    if_outside: Literal["fail", "inconclusive"] = "fail"
    detects: Number | None = None
    detects_what: str = ""

    @property
    def is_within(self) -> bool:
        """True only for a finite error at or below a finite bound that is not negative."""
        return math.isfinite(self.bound) and 0.0 <= self.error <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Record):
    kind: Literal["run_started"] = "run_started"
    run_id: str
    plan: str
    system: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Record):
    """Written first by a resuming parent; `dropped` is the unfinished line the dead one left."""

    kind: Literal["run_resumed"] = "run_resumed"
    interruption: int
    interrupted: tuple[str, ...]
    dropped: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbed(Record):
    """Whether the fork server's watched probe fork came back right."""

    kind: Literal["server_probed"] = "server_probed"
    is_healthy: bool
    seconds: Number
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected(Record):
    """A fault that the run injects on purpose, said before the first launch; one line for each."""

    kind: Literal["injected"] = "injected"
    injector: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Record):
    """A device's error counters at one moment, read by the parent; None is not reported.

    Read when the run begins and ends (`launch` empty) and just before and after each launch on the
    device. `is_same`: they were read and equal the device's reading before this one, whose values
    are not written again, so `counters` is empty. When the run begins, or goes on, `hints` say of
    what is None why it is, and `absent` names the counters and readings that the vendor says this
    device cannot have.
    """

    kind: Literal["counted"] = "counted"
    device: str
    counters: Mapping[str, int | None]
    launch: str = ""
    moment: Literal["before", "after"] = "before"
    is_same: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogRead(Record):
    """The kernel's log was read up to record `sequence` of the boot of this id; -1: it is empty.

    Said when the run begins, goes on and ends: between two of them no record was missed.
    """

    kind: Literal["kernel_log_read"] = "kernel_log_read"
    boot: str
    sequence: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogged(Record):
    """A line of the kernel's log that is a fault of a device, in the words of its vendor.

    `launch` is the one after which it was read, empty where it belongs to none; `device` is empty
    where the line names none. `text` is cut to 300 characters.
    """

    kind: Literal["kernel_logged"] = "kernel_logged"
    launch: str
    device: str
    code: str
    is_fatal: bool
    meaning: str
    text: str
    sequence: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class NotObserved(Record):
    """Something that is watched in every run could not be, and what would allow it; said once."""

    kind: Literal["not_observed"] = "not_observed"
    what: Literal["kernel_log"]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStarted(Record):
    kind: Literal["launch_started"] = "launch_started"
    launch: str
    mode: LaunchMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Record):
    """What only the child can tell: library versions, threads, device as torch names it."""

    kind: Literal["environment"] = "environment"
    launch: str
    rank: int
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact(Record):
    """A file made once per run by an untimed launch (a reference, an exported model)."""

    kind: Literal["artifact"] = "artifact"
    launch: str
    rank: int
    name: str
    sha256: str
    size_bytes: int
    is_made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Record):
    kind: Literal["checked"] = "checked"
    launch: str
    rank: int
    phase: Phase
    step: int
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Digested(Record):
    """The bits of an output as a digest (hexadecimal), to be compared between launches and devices.

    Only of workloads whose operators give the same bits for the same inputs.
    """

    kind: Literal["digested"] = "digested"
    launch: str
    rank: int
    phase: Phase
    step: int
    what: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries(Record):
    """Files that the process has mapped to run, by path with their sha256; None: unreadable."""

    kind: Literal["libraries"] = "libraries"
    launch: str
    rank: int
    files: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Record):
    """Times before the steady state: build, and first step with its synchronise; kept apart."""

    kind: Literal["started"] = "started"
    launch: str
    rank: int
    build_ns: BigInt
    first_step_ns: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated(Record):
    """The same spans of work by the clocks that the launch uses, to compare them.

    `wall_ns` is the clock of the samples, `raw_ns` the one that no time service slews
    (CLOCK_MONOTONIC_RAW), `event_ns` the device's own; None where it has none.
    """

    kind: Literal["calibrated"] = "calibrated"
    launch: str
    rank: int
    wall_ns: tuple[BigInt, ...]
    raw_ns: tuple[BigInt, ...]
    event_ns: tuple[BigInt, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed(Record):
    kind: Literal["warmed"] = "warmed"
    launch: str
    rank: int
    wall_ns: tuple[BigInt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Record):
    """Consecutive samples inside a launch: wall time of each step, and device time if any.

    `block_wall_ns` and `block_raw_ns` are the same span, without what was done with the clock
    stopped, by the clock of the samples and by CLOCK_MONOTONIC_RAW. `load_ns` is the part of each
    step that loading its input took, None where the workload loads nothing. `reached_at` is the
    number of steps after which training had come to its target; None without a target, or missed.
    """

    kind: Literal["block"] = "block"
    launch: str
    rank: int
    index: int
    first_step: int
    wall_ns: tuple[BigInt, ...]
    event_ns: tuple[BigInt, ...] | None
    block_wall_ns: BigInt
    block_raw_ns: BigInt
    load_ns: tuple[BigInt, ...] | None = None
    reached_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Record):
    """Telemetry of one moment, read by the parent. None is not reported."""

    kind: Literal["reading"] = "reading"
    launch: str
    device: str
    values: Mapping[str, Number | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded(Record):
    """What happened. `reason` is the signal, exception, "out_of_memory" or "bad_parameters"."""

    kind: Literal["launch_ended"] = "launch_ended"
    launch: str
    outcome: Outcome
    reason: str
    detail: str
    exit_code: int | None
    wall_ns: BigInt
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked(Record):
    """The judge was asked about a case after so many timed launches."""

    kind: Literal["looked"] = "looked"
    case: str
    launches: int
    is_decided: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Record):
    kind: Literal["run_ended"] = "run_ended"
    launches: int


Event = Annotated[
    RunStarted
    | RunResumed
    | Injected
    | Counted
    | KernelLogRead
    | KernelLogged
    | NotObserved
    | ServerProbed
    | LaunchStarted
    | Environment
    | Artifact
    | Checked
    | Digested
    | Libraries
    | Started
    | Calibrated
    | Warmed
    | Block
    | Reading
    | LaunchEnded
    | Looked
    | RunEnded,
    Field(discriminator="kind"),
]
WorkerEvent = (
    Environment | Artifact | Checked | Digested | Libraries | Started | Calibrated | Warmed | Block
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Record):
    """One line of journal.jsonl; `prev` is the sha256 of the line before (first: of plan.json)."""

    seq: int
    utc: str
    monotonic_ns: BigInt
    prev: str
    event: Event


# ------------------------------------------------------------------ what was decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Record):
    """A statistic with its interval; `low` and `high` are None when there are too few launches."""

    name: str
    value: Number
    unit: str
    low: Number | None
    high: Number | None
    confidence: Number | None
    method: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult(Record):
    """One launch as it ended, with its statistic (mean of block medians of ln seconds).

    `series` is what its timed steps look like over time, `cut` the number of steps before the
    steady part, `num_changes` the level changes found, `lag1` their first autocorrelation and
    `effective_samples` what they are worth as independent ones (None below 20 steps, and where
    all are equal or one is no number).
    """

    launch: str
    outcome: Outcome
    reason: str
    mode: LaunchMode | None
    num_steps: int
    log_seconds: Number | None
    first_step_seconds: Number | None
    series: SeriesClass
    cut: int
    num_changes: int
    lag1: Number | None
    effective_samples: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Record):
    """All comparisons of one name and phase in a case: the worst one, and how many."""

    name: str
    phase: Phase
    count: int
    num_outside: int
    worst: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult(Record):
    """One case: launches, checks, and estimates (none while a check is not within)."""

    case: str
    num_planned: int
    num_completed: int
    num_decided: int
    launches: tuple[LaunchResult, ...]
    checks: tuple[CheckResult, ...]
    estimates: tuple[Estimate, ...]
    withheld: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(Record):
    """The figures behind a ruling, in the unit of its metric, and how they were compared.

    `count` are launches, steps or readings. The `log_` fields and the t statistics are of ln of
    seconds: `log_sd_used` is the spread that the test for a pass took, at least a third of the
    margin; a ruling is pass where `t_pass` reaches `critical_pass`, fail where `t_fail` reaches
    `critical_fail`. None where the kind of criterion has no such figure.
    """

    metric: str
    unit: str
    value: Number
    low: Number | None
    high: Number | None
    confidence: Number | None
    limit: Number | None
    limit_source: str
    count: int
    log_mean: Number | None = None
    log_sd: Number | None = None
    log_sd_used: Number | None = None
    log_limit: Number | None = None
    t_pass: Number | None = None
    critical_pass: Number | None = None
    t_fail: Number | None = None
    critical_fail: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling(Record):
    """The answer to one criterion for one case, with its reason and one next action.

    `case` is empty where the criterion is of all its cases together, or of the node.
    """

    criterion: str
    case: str
    required: bool
    ruling: RulingWord
    reason: Reason
    explanation: str
    action: str
    statistic: Statistic | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(Record):
    """Speed of one case against its baseline: above 1 is faster."""

    case: str
    weight: Number
    ratio: Number
    low: Number | None
    high: Number | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Record):
    """Suite score: weighted geometric mean of speeds against the baseline, with its interval.

    It never offsets a criterion. `left_out` are timed cases without a comparable baseline, or
    without timing.
    """

    value: Number
    low: Number | None
    high: Number | None
    confidence: Number
    ratios: tuple[Ratio, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Record):
    """One device against the others of its node, over all workloads that all of them ran.

    `effect` is relative step time (0.03: three percent slower). A device `is_flagged` where `t`
    reaches `critical`, the effect is large enough, and both halves of the run show it.
    """

    device: str
    effect: Number
    t: Number
    critical: Number
    first_half: Number
    second_half: Number
    num_workloads: int
    is_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Record):
    """verdict.json: what the rulings come to. `scope` says what was judged and what was not.

    `decided_by` names the criterion of the highest precedence among those that kept the run
    from a better word; empty for ACCEPTED. `num_failed` of `num_made` launches crashed, did not
    end in time, or had a check outside its bound: the failure rate.
    """

    schema: Literal["bench/verdict/2"] = "bench/verdict/2"
    run_id: str
    verdict: VerdictWord
    decided_by: str
    scope: str
    num_interruptions: int
    num_made: int
    num_failed: int
    rulings: tuple[Ruling, ...]
    cases: tuple[CaseResult, ...]
    score: Score | None
    stragglers: tuple[Straggler, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak(Record):
    """The maker's figure for a device, with where it was published.

    `quantity` is FORMAT_flops_per_second or memory_bytes_per_second; `per` says whether the
    figure is of the device or of each of its cores. `is_confirmed` False: read in one second-hand
    source only.
    """

    model: str
    quantity: str
    value: Number
    unit: str
    per: Literal["device", "core"]
    is_confirmed: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks(Record):
    """peaks.json: the maker's figures for the devices found; empty where none is known."""

    schema: Literal["bench/peaks/2"] = "bench/peaks/2"
    peak: tuple[Peak, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Record):
    """One figure of a device file."""

    quantity: str
    value: Number
    unit: str
    per: Literal["device", "core"] = "device"
    is_confirmed: bool = True
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile(Record):
    """appliance/devices/NAME.toml: a device's figures; `models` as the makers' tools name it."""

    schema: Literal["bench/device/1"] = "bench/device/1"
    name: str
    maker: str
    models: tuple[str, ...]
    figure: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKey(Record):
    """What must be the same for a measured figure to be comparable.

    `software` are versions and settings that change speed, by name (see comparable.py); `image`
    is the digest of the container image, None outside of one; `power_limit_watts` is None where
    the device tells none.
    """

    model: str
    case: str
    workload: str
    version: int
    parameters: Parameters
    data_pattern: str
    mode: LaunchMode
    software: Mapping[str, str]
    image: str | None
    power_limit_watts: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance(Record):
    """One-sided normal tolerance limit over devices: mean + k sd covers the part `p` of them.

    With confidence `gamma`; `log_limit` is that limit in ln(seconds).
    """

    p: Number
    gamma: Number
    k: Number
    log_limit: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Record):
    """Our measured figure for one case, from signed bundles.

    "same_device" is for checking one machine again: `devices` names it. "population" is of a
    reference population of a model. `log_seconds` is the mean of ln(step seconds); `launch_sd`
    the spread between launches (of several runs: within and between them); `device_sd` between
    devices, None for one. `smallest_margin` is the smallest at which a healthy run passes.
    `bundles` are the sha256 of the statements of the bundles that it came from.
    """

    key: BaselineKey
    kind: Literal["same_device", "population"]
    devices: tuple[str, ...]
    log_seconds: Number
    launch_sd: Number
    device_sd: Number | None
    num_launches: int
    num_runs: int
    tolerance: Tolerance | None
    smallest_margin: Number
    bundles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines(Record):
    """baselines.json: what a ruling may compare with; empty where none exists for the device."""

    schema: Literal["bench/baselines/2"] = "bench/baselines/2"
    baseline: tuple[Baseline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(Record):
    """One file of a data set, pinned; `urls` are tried in their order."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet(Record):
    """One data set. `package` names the Python package that holds it, if there is no file."""

    name: str
    summary: str
    licence: str
    source: str
    used_by: tuple[str, ...]
    package: str = ""
    file: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(Record):
    """workloads/datasets.toml: every data set that a workload may name."""

    schema: Literal["bench/datasets/1"] = "bench/datasets/1"
    dataset: tuple[DataSet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer(Record):
    """signer.json: who will sign, fixed before the report is rendered."""

    schema: Literal["bench/signer/1"] = "bench/signer/1"
    certificate_pem: str
    subject: str
    sha256: str
    not_after_utc: str
    role: Literal["tester", "vendor", "buyer", "witness"]
    is_development: bool


# ------------------------------------------------------------------ reading and writing

R = TypeVar("R")


_ADAPTERS: dict[object, TypeAdapter[Any]] = {}


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Reader and writer of one record type; made once, because making one is slow."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_data(record: object, kind: Any = None) -> Any:
    """Plain JSON values of a record."""
    return adapter(kind or type(record)).dump_python(record, mode="json")


def to_json(record: object, kind: Any = None) -> bytes:
    """Canonical JSON (RFC 8785) of a record: the bytes that are digested and signed.

    Raises ApplianceError where JSON has no such value: a Scalar that is not finite or a whole
    number beyond 2**53, or text that is not Unicode.
    """
    try:
        return rfc8785.dumps(to_data(record, kind))
    except rfc8785.CanonicalizationError as error:
        what = type(record).__name__
        message = f"a record {what} cannot be written, and must be mended where it is made: {error}"
        raise ApplianceError(message) from None


def from_json(kind: type[R], text: bytes, *, name: str) -> R:
    """Read canonical JSON strictly; `name` is the file named in the error.

    Raises EvidenceError if a key is unknown or missing, a type is wrong, or the bytes are not
    the canonical form (which also refuses duplicate keys).
    """
    try:
        record: R = adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        message = f"{name}: {where}: {first['msg'].replace('Input should be', 'must be')}"
        raise EvidenceError(message) from None
    try:
        is_canonical = to_json(record, kind) == text
    except ApplianceError:  # a whole number beyond 2**53: JSON that this program cannot have made
        is_canonical = False
    if not is_canonical:
        message = f"{name} is not in canonical form (RFC 8785), so it is not what was written"
        raise EvidenceError(message)
    return record


def sha256(data: bytes) -> str:
    """Digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
