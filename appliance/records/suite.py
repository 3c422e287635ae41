"""A suite file: ordered cases and the protocol that they are run by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from appliance.records.json import Number, Parameters, Record

Scenario = Literal["", "single_stream", "offline"]
LaunchMode = Literal["forked", "fresh"]
LibraryMode = Literal["default", "deterministic"]
"""What the environment of a launch asks of its libraries: their own ways, or the same bits."""
Framework = Literal["torch", "jax", "onnx"]
"""What computes a workload's steps; each has a fork server of its own."""
CaseScope = Literal["device", "node", "job", "pair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Record):
    """How the launches of a suite are made; printed on page 1.

    A launch compares its clocks over `calibration_seconds` of work, warms up for at least
    `warmup_steps` and `warmup_seconds`, then makes `blocks` blocks of at least `block_steps`
    steps and `block_seconds`, fewer where a step takes long (`launch_constants.block_steps`).
    `interim_analyses` are the launch counts at which a case is judged;
    the last is the largest number of launches. `last_checks`: check the last timed output in every
    launch ("all") or in one launch of each case, drawn by the seed ("one"). `repeats` is the number
    of processes that make the first step once more in the deterministic phase; 0 plans none. Every
    `fresh_every`-th timed launch of a case is a fresh process where the others are forked; 0 has
    none: it is for comparing the two, and the launches of a run that is judged are of one kind.
    """

    mode: LaunchMode
    calibration_seconds: Number
    warmup_steps: int
    warmup_seconds: Number
    blocks: int
    block_steps: int
    block_seconds: Number
    interim_analyses: tuple[int, ...]
    last_checks: Literal["all", "one"]
    repeats: int = 0
    fresh_every: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryClass(Record):
    """What a case's parameters are on devices that have `gib` of memory or more."""

    gib: int
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase(Record):
    """One case as a suite file writes it.

    `scope`: "device", one process on each device; "node", the same with loader, decoding and
    storage in the loop; "job", one launch of many ranks over all devices of a vendor; "pair", one
    launch for every ordered pair of a vendor's devices, in which both are visible. It needs
    `num_devices` devices, `num_nodes` nodes and the features in `needs`, beside those of its
    workload. `agents` is how many torchrun agents start the ranks. `memory` has parameters by
    the device's memory, of which the largest class that fits is taken. `variants`: whether the
    seed may draw a variant of it; None means what the suite says. `alone`: whether no other device
    works meanwhile; None means what the workload says.

    `launches` None means those of the protocol; `weight` is its part in the suite score.
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

    schema: Literal["bench/suite/2"] = "bench/suite/2"
    name: str
    version: int
    summary: str
    time_limit_seconds: Number
    variants: bool = False
    protocol: Protocol
    case: tuple[SuiteCase, ...]
