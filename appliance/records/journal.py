"""The journal's events and lines: the only raw evidence of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import (
    Field,
)

from appliance.records.json import KEPT_ONCE, BigInt, Nanoseconds, Number, Record, Values
from appliance.records.suite import Framework, LaunchMode, LibraryMode
from appliance.records.system import Facts

Outcome = Literal[
    "completed", "crashed", "timed_out", "interrupted", "unsupported", "not_run", "software"
]
UNJUDGED_FOR_MEMORY = "steps that lacked the memory to be run again"
"""Name of the check that stands for those which run a step again, where a device had no room."""
NOT_JUDGED = "the inside of its steps was not judged, as memory lacked to run them again"
"""What that check says of a case."""
CheckKind = Literal["numeric", "exact", "trajectory", "collective"]
Phase = Literal["first", "last", "sampled", "repeatability", "repeated"]
Stage = Literal["", "load", "build", "first_step", "later"]
"""How far a launch had come: its imports and device, its build, its first step, or beyond it."""
TimedStage = Literal[
    "start",
    "import",
    "device",
    "build",
    "first_step",
    "digest",
    "check",
    "calibrate",
    "warm_up",
    "wait",
    "timed",
    "untimed",
    "evaluate",
    "second_build",
    "end",
    "other",
]
"""What a launch spends its time on, in the order in which it comes to them.

`start` is from the order to the process's first instruction, `import` is its own imports, `device`
its settings, its device and the meeting of its ranks, `calibrate` the comparison of clocks and the
looks for other users, `wait` the wait for other launches of the group, `untimed` the further steps
of an untimed launch, `evaluate` the questions to the device whether a target is reached,
`second_build` what is built and stepped again to compare outputs.
"""


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
class RunPlanned(Record):
    """How long the node was probed and the run planned before its journal began."""

    kind: Literal["run_planned"] = "run_planned"
    wall_ns: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Record):
    """A session but the last has ended: each launch that was planned in it is settled.

    `boot` is the id of the kernel's boot, empty where it cannot be read, and `since_boot_ns` the
    time since then, suspended time included (CLOCK_BOOTTIME).
    """

    kind: Literal["session_ended"] = "session_ended"
    session: int
    boot: str
    since_boot_ns: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBegan(Record):
    """The next session begins, on the machine of the one before; no interruption.

    `identity` is the digest of the machine's identity, probed anew; `dropped` is the unfinished
    line that a parent left which ended in the pause.
    """

    kind: Literal["session_began"] = "session_began"
    session: int
    boot: str
    since_boot_ns: BigInt
    identity: str
    dropped: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBegun(Record):
    """The buyer's receipt for this plan is bound, before the first launch.

    `receipt` is the sha256 of receipt.dsse.json, `attempt` and `nonce` are what it says. All inputs
    derive from the nonce, which nobody knew when the plan was made.
    """

    kind: Literal["attempt_begun"] = "attempt_begun"
    attempt: int
    receipt: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbed(Record):
    """Whether a fork server may be forked: nothing was started in it, and its probe fork was right.

    There is one for each device, framework and library mode that a launch asks for, and others for
    launches of several `ranks`; `device` then names all of theirs (`Case.place`). `reason` is one
    sentence, empty for a healthy server; `last_words` is the end of what the probe fork or the
    server wrote to its stderr, empty for a healthy one. `seconds` is what the run waited for it.
    `without` are the workloads whose import is why it is not healthy: the next server of its kind
    does not import them, and their launches are fresh processes.
    """

    kind: Literal["server_probed"] = "server_probed"
    device: str
    framework: Framework
    library_mode: LibraryMode
    is_healthy: bool
    seconds: Number
    reason: str
    last_words: str = ""
    ranks: int = 1
    without: tuple[str, ...] = ()


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
    counters: Annotated[Mapping[str, int | None], KEPT_ONCE]
    launch: str = ""
    moment: Literal["before", "after"] = "before"
    is_same: bool = False
    hints: Annotated[Mapping[str, str], KEPT_ONCE] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersCounted(Record):
    """How many compute processes an accelerator has, ours included, and what is read beside that.

    Counted when the run begins and ends (`launch` empty), just before a launch starts on the device
    (`moment` "before"), and while the launch prepares, never while its steps are timed ("inside").
    `count` None: they cannot be seen, and `hint` says why. `memory_bytes` is what they hold, and
    `values` are readings of the same moment, of a launch under way none: it has its own.
    `num_waiting` processes of coming launches were there too, and did nothing (`ahead_idle`).
    """

    kind: Literal["users_counted"] = "users_counted"
    device: str
    count: int | None
    memory_bytes: int | None
    hint: str
    launch: str = ""
    moment: Literal["before", "inside"] = "before"
    values: Values = field(default_factory=dict)
    num_waiting: int = 0


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


AheadThrough = Literal["device", "build", "first_step"]
"""How far a process goes before its launch begins: its device is set up, its state is built, or its
first step is made, which of a repeat is digested too."""
AheadReason = Literal[
    "earlier_failed",
    "not_wanted",
    "other_orders",
    "out_of_memory",
    "server_lost",
    "interrupted",
    "begins_alone",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAhead(Record):
    """The process of the next launch was started beside the end of those that run (`beside`).

    They time nothing any more. It goes as far as `through` says and waits there: its launch begins
    with a `launch_started` that says `is_ahead`, once they have ended, and nothing that it reports
    is recorded before. `recorded_bytes` is what records of the model say that launches of its case
    hold of the device, where none of this run has shown it and the build goes by that.

    `idle_beside` are the launches between, which are timed while it waits with its device set up.
    Then a second order follows, beside the end of these, and says how far it goes on.
    """

    kind: Literal["launch_ahead"] = "launch_ahead"
    launch: str
    beside: tuple[str, ...]
    through: AheadThrough
    recorded_bytes: int | None = None
    idle_beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadIdle(Record):
    """A process that waits beside launches between has set its device up, or has ended.

    It does nothing from here on until it is ordered to go on.
    """

    kind: Literal["ahead_idle"] = "ahead_idle"
    launch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadEnded(Record):
    """A process that was started ahead was ended before its launch began.

    `reason`: a launch that it was started beside did not complete ("earlier_failed"), its own is
    not made next ("not_wanted") or otherwise than it was ordered ("other_orders"), memory for both
    was lacking ("out_of_memory"), the server that had forked it ended ("server_lost"), or the run
    was ("interrupted"). One that waited beside launches between is ended, too, where its launch
    "begins_alone" after all. Another process makes the launch, if it is made.
    """

    kind: Literal["ahead_ended"] = "ahead_ended"
    launch: str
    reason: AheadReason


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStarted(Record):
    """A launch begins; `framework` names the server that forks it, None for a fresh process.

    `is_ahead`: its process was started before, by the `launch_ahead` of the launch.
    """

    kind: Literal["launch_started"] = "launch_started"
    launch: str
    mode: LaunchMode
    library_mode: LibraryMode = "default"
    framework: Framework | None = None
    is_ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Record):
    """What only the child can tell: library versions, threads, device as torch names it."""

    kind: Literal["environment"] = "environment"
    launch: str
    rank: int
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32Products(Record):
    """The formats in which this process makes float32 products, by kind of product.

    Read back from torch's own settings, before the workload is built and after its last step:
    "ieee" for full float32, "tf32", "bf16", or "mixed" where the settings contradict one another.
    """

    kind: Literal["float32_products"] = "float32_products"
    launch: str
    rank: int
    moment: Literal["before", "after"]
    formats: Annotated[Mapping[str, str], KEPT_ONCE]


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
    """The bits of a first output, in the library's default mode, as a digest (hexadecimal).

    Launches of one digest must have checked it alike; that digests differ proves nothing in this
    mode, in which kernels may add up in any order.
    """

    kind: Literal["digested"] = "digested"
    launch: str
    rank: int
    phase: Phase
    step: int
    what: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnInput(Record):
    """A tensor that a launch drew: all that the generator needs to draw it again but the seed.

    `values` is the map from bits to values, `dtype` the number format, `checksum` what sums up the
    tensor as it lay on the device (`appliance.generator.drawing`).
    """

    name: str
    values: str
    dtype: str
    shape: tuple[int, ...]
    checksum: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsDrawn(Record):
    """The tensors that the build of a launch drew from its seed, in their order."""

    kind: Literal["inputs_drawn"] = "inputs_drawn"
    launch: str
    rank: int
    inputs: tuple[DrawnInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(Record):
    """What one rank of a launch in the deterministic phase gave: its first step, bit by bit.

    `digests` are the sha256 of each tensor of the output, by path, number format and shape, in the
    output's order. `operators` are those that the library said have no deterministic form, and
    `settings` what the phase set, each as the library reads it back.
    """

    kind: Literal["repeated"] = "repeated"
    launch: str
    rank: int
    digests: Mapping[str, str]
    operators: tuple[str, ...]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """How two outputs of the same operands differ.

    `tensors` are the first few that differ, in the output's order, `num_tensors` is how many do.
    `num_bytes` differ of `total_bytes`, over all tensors. The rest is of the first tensor that
    differs: `num_elements` of `total_elements`, `first_indices` the first few of them (flat),
    `xor_bits` how many numbers differ in each bit, from the lowest, and `largest_ulp` the largest
    distance in units in the last place, None where numbers are not floating-point.
    """

    tensors: tuple[str, ...]
    num_tensors: int
    num_bytes: BigInt
    total_bytes: BigInt
    num_elements: BigInt
    total_elements: BigInt
    first_indices: tuple[BigInt, ...]
    xor_bits: tuple[int, ...]
    largest_ulp: BigInt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchExamined(Record):
    """A repeat gave other bits than an earlier one, and the same operands were repeated.

    `answers` are the digests of all tensors of each repeat that followed, in their order, of
    `num_wanted`: fewer where the launch's time limit left no room for more. `tensors` are those
    whose digest is not that of the earlier launch. `difference` is that of the first repeat which
    differs from this launch's own first output; None where all gave its bits again, so that the
    earlier launch stands alone, whose output is gone.
    """

    kind: Literal["mismatch_examined"] = "mismatch_examined"
    launch: str
    rank: int
    tensors: tuple[str, ...]
    num_wanted: int
    answers: tuple[str, ...]
    difference: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries(Record):
    """Files that the process has mapped to run, by path with their sha256; None: unreadable.

    Launches up to version 0.12 hashed them themselves.
    """

    kind: Literal["libraries"] = "libraries"
    launch: str
    rank: int
    files: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrariesMapped(Record):
    """Files that the process has mapped to run, by path with their identity; None: it is gone.

    The identity is the file's device, inode, size, and times of its last changes in nanoseconds.
    """

    kind: Literal["libraries_mapped"] = "libraries_mapped"
    launch: str
    rank: int
    files: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrariesHashed(Record):
    """The sha256 of files that launches have mapped, by identity, each once in a run.

    None: when it was to be hashed, no file of that identity was there, or it could not be read.
    """

    kind: Literal["libraries_hashed"] = "libraries_hashed"
    digests: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Record):
    """Times before the steady state: build, and first step with its synchronise; kept apart.

    `is_beside`: the first step was ordered to be made beside the end of another launch, so that
    nothing is said by how long it took.
    """

    kind: Literal["started"] = "started"
    launch: str
    rank: int
    build_ns: BigInt
    first_step_ns: BigInt
    is_beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated(Record):
    """The same spans of work by the clocks that the launch uses, to compare them.

    `wall_ns` is the clock of the samples, `raw_ns` the one that no time service slews
    (CLOCK_MONOTONIC_RAW), `event_ns` the device's own; None where it has none. A device may begin
    later what it was given, so its span lies between two of its host's: `wall_ns`, and `inner_ns`
    from the device's first mark having been reached to its last one being given. None without a
    device's clock, and where a converted journal did not record it.

    `empty_ns` are times of a step that does nothing, timed as every step is: the wall of each of a
    few blocks over its steps. It is what timing costs; None where a converted journal has none.
    """

    kind: Literal["calibrated"] = "calibrated"
    launch: str
    rank: int
    wall_ns: Nanoseconds
    raw_ns: Nanoseconds
    event_ns: Nanoseconds | None
    inner_ns: Nanoseconds | None = None
    empty_ns: Nanoseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed(Record):
    """A train of equal pieces of work by the device's clock, to see others' time slices in it.

    `piece_ns` are the times of the pieces, `issue_ns` what the host took to hand over all of them,
    from before the first mark on: only a piece that begins later shows nothing of the host. Looked
    at once the clocks are compared, and after each block of a launch of one rank. `index` counts.
    """

    kind: Literal["witnessed"] = "witnessed"
    launch: str
    rank: int
    index: int
    piece_ns: Nanoseconds
    issue_ns: BigInt


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed(Record):
    kind: Literal["warmed"] = "warmed"
    launch: str
    rank: int
    wall_ns: Nanoseconds


END = "end"
"""The phase that ends the last one of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBegan(Record):
    """From its next step on a launch loads its device otherwise; END ends a block's last phase.

    `step` is the number of that step in the block, `passed_ns` the block's own time before it.
    `units` are the units of work that all steps of the launch have made so far, `processor_ns` the
    time that its process has had of all processors, `threads` the threads that compute on them.
    """

    kind: Literal["phase_began"] = "phase_began"
    launch: str
    rank: int
    index: int
    phase: str
    step: int
    passed_ns: BigInt
    units: int
    processor_ns: BigInt
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsFolded(Record):
    """Consecutive steps of a block as smallest, largest and sum of their times; at least two.

    `first` is the place in the block of the first of them, `count` how many they are.
    """

    first: int
    count: int
    wall_ns: tuple[BigInt, BigInt, BigInt]
    event_ns: tuple[BigInt, BigInt, BigInt] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Record):
    """Consecutive samples inside a launch: wall time of each step, and device time if any.

    `block_wall_ns` and `block_raw_ns` are the same span, without what was done with the clock
    stopped, by the clock of the samples and by CLOCK_MONOTONIC_RAW. `load_ns` is the part of each
    step that loading its input took, None where the workload loads nothing. `reached_at` is the
    number of steps after which training had come to its target; None without a target, or missed.
    `folded` are stretches of steps whose times do not stand in full, of a segment alone
    (`evidence.folding`): the times that do are those of all other steps, in their order.
    """

    kind: Literal["block"] = "block"
    launch: str
    rank: int
    index: int
    first_step: int
    wall_ns: Nanoseconds
    event_ns: Nanoseconds | None
    block_wall_ns: BigInt
    block_raw_ns: BigInt
    load_ns: Nanoseconds | None = None
    reached_at: int | None = None
    folded: tuple[StepsFolded, ...] = ()

    @property
    def num_steps(self) -> int:
        """All of its steps, those that do not stand in full among them."""
        return len(self.wall_ns) + sum(one.count for one in self.folded)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes(Record):
    """What a rank's time went to, from the order to this record, which is its last; no gaps.

    A stage that it did not come to is left out. Of a launch that was forked the imports are those
    that its server had not made. Of one whose process was started ahead, `wall_ns` counts from the
    begin of the launch, and `ahead_ns` is what the process did before that, without its waiting.
    """

    kind: Literal["stage_times"] = "stage_times"
    launch: str
    rank: int
    wall_ns: Mapping[TimedStage, BigInt]
    ahead_ns: Mapping[TimedStage, BigInt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Record):
    """Telemetry of one moment, read by the parent. None is not reported."""

    kind: Literal["reading"] = "reading"
    launch: str
    device: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedValues(Record):
    """Telemetry of the moment `at_ns` by the journal's clock."""

    at_ns: BigInt
    values: Mapping[str, Number | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingGroup(Record):
    """`count` readings that are alike: values that all share, and of others their extremes and sum.

    `ranged` has (smallest, largest, sum) of each value that differs.
    """

    count: int
    common: Mapping[str, Number | None]
    ranged: Mapping[str, tuple[Number, Number, Number]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingsFolded(Record):
    """About a minute of readings of a device while a segment's steps run; in long runs up to ten.

    `index` counts the minutes of a launch and device from 0; each begins where the one before it
    ended, by the journal's clock. Readings in `detail` stand in full, for the reasons in `causes`
    or because they are among the first or last of the steps, but for the values that all of these
    share, `detail_common`; all others are in `groups`.
    `longest_gap_ns` is the longest time without a reading.
    """

    kind: Literal["readings_folded"] = "readings_folded"
    launch: str
    device: str
    index: int
    begin_ns: BigInt
    end_ns: BigInt
    longest_gap_ns: BigInt
    groups: tuple[ReadingGroup, ...]
    detail: tuple[TimedValues, ...]
    causes: tuple[str, ...] = ()
    detail_common: Mapping[str, Number | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded(Record):
    """What happened. `reason` is the signal, exception, "out_of_memory" or "bad_parameters".

    Of one that an exception ended, `exceptions` are the names of its classes, its own first and
    Exception left out, and `stage` is how far the rank had come that raised it.
    """

    kind: Literal["launch_ended"] = "launch_ended"
    launch: str
    outcome: Outcome
    reason: str
    detail: str
    exit_code: int | None
    wall_ns: BigInt
    peak_memory_bytes: int | None
    exceptions: tuple[str, ...] = ()
    stage: Stage = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalysis(Record):
    """The judge was asked about a case after so many timed launches."""

    kind: Literal["interim_analysis"] = "interim_analysis"
    case: str
    launches: int
    is_decided: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Record):
    kind: Literal["run_ended"] = "run_ended"
    launches: int


WorkerEvent = (
    Environment
    | Float32Products
    | Artifact
    | Checked
    | Digested
    | InputsDrawn
    | Repeated
    | MismatchExamined
    | Libraries
    | LibrariesMapped
    | Started
    | Calibrated
    | Witnessed
    | Warmed
    | PhaseBegan
    | Block
    | StageTimes
)
"""What the processes of a launch report: messages of theirs, and events of the journal."""
Event = Annotated[
    RunStarted
    | RunPlanned
    | RunResumed
    | AttemptBegun
    | Injected
    | Counted
    | UsersCounted
    | KernelLogRead
    | KernelLogged
    | NotObserved
    | ServerProbed
    | LaunchAhead
    | AheadIdle
    | AheadEnded
    | LaunchStarted
    | WorkerEvent
    | LibrariesHashed
    | Reading
    | ReadingsFolded
    | LaunchEnded
    | InterimAnalysis
    | SessionEnded
    | SessionBegan
    | RunEnded,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Record):
    """One line of journal.jsonl; `prev` is the sha256 of the line before (first: of plan.json)."""

    seq: int
    utc: str
    monotonic_ns: BigInt
    prev: str
    event: Event
