"""What the probe says of a node: facts, devices, identity and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
class DeviceLibraries(Record):
    """What beside torch must be installed for a vendor's devices to be used by other libraries.

    `onnx_provider` is the provider of ONNX Runtime that must run there, which is built in or
    registered by the module `onnx_plugin`, and comes with `onnx_package`. `jax_plugins` are the
    modules any of which lets JAX drive the devices, as `jax_package` installs it; none is needed
    where there are none. `ranges` are versions that are right here beside those of the package.
    """

    onnx_provider: str
    onnx_package: str
    onnx_plugin: str = ""
    jax_plugins: tuple[str, ...] = ()
    jax_package: str = "jax"
    ranges: Mapping[str, str] = field(default_factory=dict)


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


# ------------------------------------------------------------------ what changed


def identity_differences(first: Identity, second: Identity) -> list[str]:
    """One sentence for each fact of `first` that differs in `second`; empty if all are equal."""
    before, after = dict(_named_facts(first)), dict(_named_facts(second))
    return [
        _change(label, before.get(label), after.get(label))
        for label in dict.fromkeys((*before, *after))
        if before.get(label) != after.get(label)
    ]


def _named_facts(identity: Identity) -> Iterator[tuple[str, Fact]]:
    """Every fact with a name of its own."""
    for device in identity.devices:
        yield from _device_facts(device)
    yield "num_devices", Fact(value=len(identity.devices))
    for title, facts in (("host", identity.host), ("software", identity.software)):
        yield from ((f"{title}: {name}", fact) for name, fact in facts.items())
    parts = (
        ("memory module", identity.memory_modules),
        ("disk", identity.disks),
        ("network interface", identity.interfaces),
    )
    for title, members in parts:
        for number, facts in enumerate(members, 1):
            yield from ((f"{title} {number}: {name}", fact) for name, fact in facts.items())


def _device_facts(device: Device) -> Iterator[tuple[str, Fact]]:
    own = {"model": device.model, "serial": device.serial, "memory": device.memory_bytes}
    yield from ((f"{device.id}: {name}", Fact(value=value)) for name, value in own.items())
    for name, fact in device.facts.items():
        if name not in own or fact.value != own[name]:
            yield f"{device.id}: {name}{' as read' if name in own else ''}", fact


def _change(label: str, before: Fact | None, after: Fact | None) -> str:
    if before is None or after is None:
        return f"{label} is {'new' if before is None else 'gone'}"
    if before.value == after.value:
        return f"{label} is read another way ({_origin(before)} before, {_origin(after)} now)"
    return f"{label} was {_shown(before)} and is {_shown(after)}"


def _origin(fact: Fact) -> str:
    parts = (fact.source, fact.unit, fact.hint)
    return " ".join(part for part in parts if part) or "source unknown"


def _shown(fact: Fact) -> str:
    return "not reported" if fact.value is None else f"{fact.value} {fact.unit}".rstrip()
