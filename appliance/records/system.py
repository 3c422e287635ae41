"""What the probe says of a node: facts, devices, identity and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Number, Record, Scalar

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
