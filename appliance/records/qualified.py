"""What was seen of a device model with a library stack: the qualified records of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from appliance.records.json import Number, Parameters, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedLoad(Record):
    """What the least loaded device of a record reached in a burn-in, as the ledger measures it.

    `power_fraction` of the power limit in hot phases, `core_use` of a processor's cores there, and
    of a plain loop beside it `loop_power` and `loop_speed`. None is not reported.
    """

    power_fraction: Number | None = None
    core_use: Number | None = None
    loop_power: Number | None = None
    loop_speed: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifiedRecord(Record):
    """What repeats of one workload have shown on healthy devices of a model with a library stack.

    `num_clean` repeats, each in a process of its own in the deterministic phase, gave the bits that
    the first of their run had given, over all `devices`, which are named by digests; none differed.
    `form` says whether the workload has a deterministic form there; without one nothing is ruled,
    and `operators` names what lacks it. `stack` holds versions and settings by name (see
    `qualification.stack`). `sources` are what was repeated and where it is shown, "SUITE/CASE,
    journal SHA256"; `recorded_utc` and `bench_version` say when and by what. `load` is what a
    burn-in at full size reached on devices that nobody else used; None where none was made.
    """

    workload: str
    version: int
    model: str
    stack: Mapping[str, str]
    form: Literal["deterministic", "no_deterministic_form"]
    num_clean: int
    devices: tuple[str, ...]
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    recorded_utc: str
    bench_version: str
    load: ReachedLoad | None = None

    @model_serializer(mode="wrap")
    def _as_it_was(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a load where none is known: a record keeps its bytes."""
        data: dict[str, Any] = write(self)
        return {key: value for key, value in data.items() if key != "load" or value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCheck(Record):
    """What one check of a case gave over all launches: the comparison nearest to its bound.

    `phases` are the steps that it was made after; `num_outside` of `num_made` were not within.
    """

    name: str
    error: Number
    bound: Number
    phases: tuple[str, ...]
    num_made: int
    num_outside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPair(Record):
    """Seconds of a step of two launches, of which one was made right after the other."""

    forked: Number
    fresh: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshControl(Record):
    """Pairs of launches, in turn the forked and the fresh one first.

    `vendor` is the device's. What the pairs show is `scheduling.launch_kinds`.
    """

    vendor: str
    pairs: tuple[LaunchPair, ...]

    @property
    def seconds(self) -> tuple[tuple[float, float], ...]:
        """Seconds of each pair: forked, fresh."""
        return tuple((pair.forked, pair.fresh) for pair in self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCase(Record):
    """What was seen of one workload with these parameters on devices of a model with a stack.

    `outcomes` counts the ends of launches, and `fault` is one sentence of the last that did not
    complete. `same_by_default` and `same_when_deterministic` say whether `num_default` and
    `num_deterministic` processes gave the same bits from one seed; None where no two did report.
    `step_seconds` is the median of the launches' median steps, of which there were `num_steps`;
    `disturbed` is why it is not that of a quiet machine, empty where it is. `fresh_ratio` is the
    step time of fresh processes over that of forked ones. `launch_seconds` and `repeat_seconds` are
    how long a whole launch took. None is not measured, or not reported by this device.
    `stage_seconds` is what the time of all launches went to (`evidence.budget.PARTS`); empty in
    records that were made before it was measured, which are written without it. `fresh_control` are
    the pairs by which forked launches were compared with fresh ones, None of most rows.
    """

    case: str
    workload: str
    version: int
    size: Literal["small", "full"]
    parameters: Parameters
    model: str
    stack: Mapping[str, str]
    devices: tuple[str, ...]
    num_seeds: int
    outcomes: Mapping[str, int]
    fault: str
    checks: tuple[ObservedCheck, ...]
    same_by_default: bool | None
    num_default: int
    same_when_deterministic: bool | None
    num_deterministic: int
    step_seconds: Number | None
    num_steps: int
    units_per_second: Number | None
    unit: str
    flops_per_second: Number | None
    host_memory_bytes: int | None
    device_memory_bytes: int | None
    power_watts: Number | None
    fresh_ratio: Number | None
    launch_seconds: Number | None
    repeat_seconds: Number | None
    disturbed: str
    sources: tuple[str, ...]
    recorded_utc: str
    bench_version: str
    stage_seconds: Mapping[str, Number] = field(default_factory=dict)
    fresh_control: FreshControl | None = None

    @model_serializer(mode="wrap")
    def _as_it_was(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without stages or pairs where none are known: a record keeps its bytes."""
        data: dict[str, Any] = write(self)
        later = ("stage_seconds", "fresh_control")
        return {key: value for key, value in data.items() if value or key not in later}

    @property
    def worst_share(self) -> float | None:
        """The largest error over its bound; None without a check that has a bound above zero."""
        shares = [one.error / one.bound for one in self.checks if one.bound > 0.0]
        return max(shares, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePair(Record):
    """Seconds of a step of two blocks, of which one was made right after the other.

    `beside` one process that held a context of the device and waited, and `alone` on it.
    """

    alone: Number
    beside: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNeighbour(Record):
    """Whether a process that waits on a device slows the steps of another, by pairs of blocks.

    `pairs` are by the kind of step; in turn the block alone and the one beside came first. `device`
    is named by a digest, `source` says by which file of which measurement. `disturbed` is why the
    steps are not those of a quiet machine, empty where they are. What the pairs show is
    `scheduling.idle_neighbours`.
    """

    model: str
    stack: Mapping[str, str]
    device: str
    pairs: Mapping[str, tuple[IdlePair, ...]]
    disturbed: str
    source: str
    recorded_utc: str
    bench_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRate(Record):
    """How fast the same work was before on devices of a model with a stack: no limit of anything.

    It is taken of an `ObservedCase`, whose terms it has; `num_devices` counts its devices.
    """

    workload: str
    version: int
    parameters: Parameters
    model: str
    stack: Mapping[str, str]
    num_devices: int
    units_per_second: Number
    unit: str
    disturbed: str
    recorded_utc: str
    bench_version: str


_LACKING = {
    "bench/qualified/1": ("observed", "rate", "idle"),
    "bench/qualified/2": ("rate", "idle"),
    "bench/qualified/3": ("idle",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualified(Record):
    """qualified.json: the records of the models in this node; empty where nothing is known.

    `record` is what is known of repeats, by which is ruled, and `observed` what was seen of each
    case beside that, by which nothing is; a bundle has of it the `rate` of its own cases alone, to
    show it. By `idle` follows whether a process may wait on a device beside what is timed there
    (`scheduling.idle_neighbours`). The first version of the schema had repeats alone, the second no
    rates, the third no `idle`.
    """

    schema: Literal[
        "bench/qualified/1", "bench/qualified/2", "bench/qualified/3", "bench/qualified/4"
    ] = "bench/qualified/4"
    record: tuple[QualifiedRecord, ...]
    observed: tuple[ObservedCase, ...] = ()
    rate: tuple[ReferenceRate, ...] = ()
    idle: tuple[IdleNeighbour, ...] = ()

    @model_serializer(mode="wrap")
    def _as_its_version(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without empty fields that its version of the schema lacks: a bundle keeps its bytes."""
        lacking = _LACKING.get(self.schema, ())
        data: dict[str, Any] = write(self)
        return {key: value for key, value in data.items() if value or key not in lacking}
