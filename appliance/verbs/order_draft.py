"""An order that a node meets: what `probe --as-order` writes, for a buyer to go on from.

What was bought is required as this node has it: models must be the same, sizes, counts of
cores and versions of firmware at least as good. Nothing in it names this node: no serial, no
address and no identifier. What this node does not report stands there as a comment with the reason,
so that the buyer sees what his order leaves open.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import OutputError
from appliance.records.json import Scalar
from appliance.records.order import OrderOperator
from appliance.records.system import Fact, System
from appliance.records.vocabulary import CONNECTION
from appliance.storage import order_file, order_values
from appliance.storage.criteria_file import LONGEST_TITLE
from appliance.storage.order_file import Member

HEAD = """\
# An order as a reference node meets it. Read it line by line, change what you ask for, and strike
# out what you did not buy. `bench plan --order FILE` says how a node compares, `bench accept
# --order FILE` judges it; docs/how-to/orders.md explains the fields and operators.
#   op "==": the same; ">=" and "<=": numbers, and versions part by part ("6.10" is above "6.9");
#   "in": one of a list; "matches": a pattern for the whole text.
# Of several parts (devices, disks, ...) all must be so, or with `count` at least so many.
# `required = false` makes a line informative: it is shown and decides nothing.
"""


PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One line to be written: a field, how it is compared, in which unit a person reads it."""

    field: str
    title: str
    op: OrderOperator
    unit: str = ""
    step: float = 0.01


def _same(field: str, title: str) -> Draft:
    return Draft(field=field, title=title, op="==")


def _least(field: str, title: str, unit: str = "", step: float = 0.01) -> Draft:
    return Draft(field=field, title=title, op=">=", unit=unit, step=step)


DEVICES = (
    _same("devices.count", "Number of devices"),
    _same("devices.model", "Model of the devices"),
    _least("devices.memory_bytes", "Memory of each device", "GiB"),
    _same("devices.memory_type", "Kind of memory of the devices"),
    _same("devices.board_part_number", "Part number of the boards"),
    _same("devices.architecture", "Architecture of the devices"),
    _least("devices.compute_units", "Compute units of each device"),
    _same("devices.ecc_mode", "Error correction of the devices' memory"),
    _same("devices.partition_mode", "Devices are divided, or not"),
    _least("devices.power_limit_default", "Power limit as delivered", "W"),
    _least("devices.pcie_generation_highest", "PCIe generation of the devices"),
    _least("devices.pcie_width_highest", "PCIe lanes of the devices"),
    _least("devices.pcie_generation_slot", "PCIe generation of devices and slots together"),
    _least("devices.pcie_width_slot", "PCIe lanes of devices and slots together"),
    _same("devices.link_kind", "Links between devices"),
    _least("devices.num_links", "Links of each device"),
    _least("devices.num_links_up", "Links of each device that work"),
    _least("devices.link_bytes_per_second", "Rate of one link in one direction", "GB/s"),
    _least("devices.driver", "Driver of the devices"),
    _least("devices.vbios", "Firmware that starts the devices"),
    _least("devices.firmware", "Other firmware of the devices"),
)
HOST = (
    _same("host.system_vendor", "Vendor of the system"),
    _same("host.system_product", "Model of the system"),
    _same("host.virtual_machine", "A machine of its own, or a virtual one"),
    _least("host.bios_version", "Firmware of the system"),
    _same("host.processor_model", "Model of the processors"),
    _same("host.sockets", "Sockets with a processor"),
    _least("host.physical_cores", "Cores of the node"),
    _least("host.memory", "Memory of the node", "GiB"),
)
PARTS = (
    _same("memory_modules.count", "Number of memory modules"),
    _least("memory_modules.size", "Size of the memory modules", "GiB"),
    _same("memory_modules.kind", "Kind of the memory modules"),
    _least("memory_modules.configured_speed", "Speed of the memory modules", "MT/s", 1),
    _same("disks.count", "Number of disks"),
    _same("disks.model", "Models of the disks"),
    _least("disks.size", "Size of the disks", "GB"),
    _same("disks.rotational", "Disks turn, or not"),
    _least("disks.firmware", "Firmware of the disks"),
    _same("interfaces.count", "Number of network cards"),
    _same("interfaces.vendor_id", "Vendors of the network cards"),
    _same("interfaces.device_id", "Kinds of network cards"),
    _least("interfaces.firmware", "Firmware of the network cards"),
    _least("interfaces.link_speed", "Speed of the network links", "Gbit/s"),
)


def draft(system: System) -> str:
    """An order.toml that this node meets, with comments for people."""
    identity = system.identity
    models = " and ".join(
        f"{number} x {model}"
        for model, number in Counter(device.model for device in identity.devices).items()
    )
    summary = _seen(f"a node with {models}, as probed")[:LONGEST_TITLE]
    parts = [
        HEAD,
        "\n".join(
            (
                'schema = "bench/order/1"',
                f"name = {_text('reference node')}",
                f"summary = {_text(summary)}",
            )
        ),
        _headed("The devices", [*DEVICES, *_connections(system)], system),
        _headed("The node", HOST, system),
        _headed("Its memory modules, disks and network cards", PARTS, system),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def write(text: str, path: Path) -> None:
    """Write an order; OutputError where the file is there already or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(f"{path} is there already: name another file") from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None


def _connections(system: System) -> list[Draft]:
    names = {name for one in system.identity.devices for name in one.facts}
    return [
        _same(f"devices.{name}", f"Connection of the other devices to device {number}")
        for name in sorted(names, key=lambda name: (len(name), name))
        if name.startswith(CONNECTION) and (number := name.removeprefix(CONNECTION))
    ]


def _headed(title: str, drafts: Sequence[Draft], system: System) -> str:
    parts = [part for one in drafts for part in _lines(one, system)]
    lines = [part for part in parts if not part.startswith("#")]
    left = [part for part in parts if part.startswith("#")]
    gaps = ["\n".join(("# Of these nothing is required:", *left))] if left else []
    return "\n\n".join((f"# {'-' * 20} {title}", *lines, *gaps))


def _lines(one: Draft, system: System) -> Iterator[str]:
    """The [[line]] of a field, several where parts differ; or a comment that says why none."""
    field = order_file.read_field(one.field, system)
    known = [member for member in field.members if member.fact.value is not None]
    if field.unknown or not known:
        yield _comment(f"{one.title} ({one.field}): {_gap(field.unknown, field.members)}")
        return
    if len(known) < len(field.members) and not one.field.startswith(f"devices.{CONNECTION}"):
        missing = _gap("", [item for item in field.members if item.fact.value is None])
        clause = f"{len(known)} of {len(field.members)} parts report it, the others: {missing}"
        yield _comment(f"{one.title} ({one.field}): {clause}")
    is_partial = len(known) < len(field.members)
    if one.op == ">=":
        yield _at_least(one, known, is_partial=is_partial)
    else:
        yield from _equal(one, known, is_partial=is_partial)


def _gap(unknown: str, members: Sequence[Member]) -> str:
    hints = [unknown, *(member.fact.hint for member in members)]
    hint = next(filter(None, hints), "")
    return f"not reported{f' ({hint})' if hint else ''}"


def _equal(one: Draft, known: Sequence[Member], *, is_partial: bool) -> Iterator[str]:
    """One line if all are the same, else one for each value with how many have it."""
    values = Counter((type(item.fact.value), item.fact.value) for item in known)
    for (_, value), number in values.items():
        if len(str(value)) > order_values.LONGEST_VALUE:
            yield _comment(f"{one.title} ({one.field}): too long: {value}")
        elif value is not None:
            is_all = len(values) == 1 and not is_partial
            yield _line(one, "==", _written(value), count=None if is_all else number)


def _at_least(one: Draft, known: Sequence[Member], *, is_partial: bool) -> str:
    """The least of all; for texts that are no versions, a comment."""
    facts = [item.fact for item in known]
    count = len(known) if is_partial else None
    texts = [fact.value for fact in facts if isinstance(fact.value, str)]
    versions = [
        (version, text) for text in texts if (version := order_values.version(text)) is not None
    ]
    if texts:
        if len(versions) == len(facts):
            return _line(one, ">=", _written(min(versions)[1]), count=count)
        values = ", ".join(dict.fromkeys(texts))
        why = 'no version that ">=" can compare; "==" would refuse a newer one'
        return _comment(f"{one.title} ({one.field}): {values}: {why}")
    least = min(_number(fact) for fact in facts)
    unit = one.unit if not order_values.unit_fault(facts[0].unit, one.unit) else ""
    if unit:
        return _line(one, ">=", _rounded_down(least, one), unit=unit, count=count)
    if facts[0].unit:
        return _comment(f"{one.title} ({one.field}): {order_values.shown(least, facts[0].unit)}")
    return _line(one, ">=", _written(least), count=count)


def _number(fact: Fact) -> int | float:
    """The number of a fact; true and false, which no ">=" is drafted for, as 0."""
    is_number = isinstance(fact.value, int | float) and not isinstance(fact.value, bool)
    return fact.value if is_number and not isinstance(fact.value, str | None) else 0


def _rounded_down(value: float, one: Draft) -> str:
    """In the unit of the line, down to its step, so that the node itself is not below it."""
    amount = order_values.exact(value) / order_values.amount(1, one.unit)
    steps = math.floor(amount / order_values.exact(one.step))
    return _written(float(steps * order_values.exact(one.step)))


def _line(one: Draft, op: OrderOperator, value: str, *, unit: str = "", count: int | None) -> str:
    rows = [
        "[[line]]",
        f"title = {_text(one.title)}",
        f"field = {_text(one.field)}",
        f"op = {_text(op)}",
        f"value = {value}",
    ]
    rows += [f"unit = {_text(unit)}"] if unit else []
    rows += [f"count = {count}"] if count is not None else []
    return "\n".join(rows)


def _written(value: Scalar) -> str:
    """A value as TOML writes it; an integer without a point."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    is_whole: Callable[[float], bool] = float.is_integer
    return str(int(value)) if is_whole(float(value)) and abs(value) < 2**53 else repr(value)


def _text(text: str) -> str:
    """A basic string of TOML, which is JSON's but for one sign (DEL)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _comment(text: str) -> str:
    """One line; reasons name the files that were read, and these the places of devices."""
    return "#   " + " ".join(PCI_ADDRESS.sub("*", _seen(text)).split())


def _seen(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
