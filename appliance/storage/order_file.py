"""Orders: the buyer's file of what was bought, and the fields of a node that it may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.errors import UsageError
from appliance.records.order import Order, OrderLine
from appliance.records.system import Device, Fact, Facts, System
from appliance.records.vocabulary import CONNECTION, FACTS
from appliance.storage import order_values
from appliance.storage.criteria_file import LONGEST_TITLE
from appliance.storage.toml_file import did_you_mean, parse

SINGLE = ("host", "software", "conditions")
PARTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "memory_modules": (
        "memory module",
        "memory_modules",
        {
            **dict.fromkeys(
                ("slot", "bank", "kind", "manufacturer", "part", "serial", "ranks"), ""
            ),
            "size": "bytes",
            "rated_speed": "transfers/s",
            "configured_speed": "transfers/s",
            "total_width": "bits",
            "data_width": "bits",
        },
    ),
    "disks": (
        "disk",
        "disks",
        {
            **dict.fromkeys(("address", "model", "serial", "firmware", "rotational"), ""),
            "size": "bytes",
        },
    ),
    "interfaces": (
        "network interface",
        "network_interfaces",
        {
            **dict.fromkeys(
                ("address", "vendor_id", "device_id", "driver", "mac", "numa_node"), ""
            ),
            **dict.fromkeys(("firmware", "board", "node_guid", "link_state"), ""),
            "link_speed": "bit/s",
        },
    ),
}
"""Parts of the node: what one is called, the fact of the host that counts them, and their fields
with the units. `link_state` and `link_speed` are of this network namespace's interfaces, which are
conditions and are not told by card."""
OWN = {"vendor": "", "model": "", "serial": "", "memory_bytes": "bytes"}
"""Fields of every device, beside its facts."""
LINK = "link_"
NO_LINKS = "no interface with hardware is in this network namespace: start with --network host"
MOST_LINES = 500
LONGEST_FIELD = 120  # characters
LONGEST_HINT = 200  # characters of a sentence's list of fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one part says of a field."""

    name: str
    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What the node says of a field: every part, or why it cannot be said how many there are."""

    members: tuple[Member, ...]
    unknown: str = ""


# ------------------------------------------------------------------ reading an order


def read(data: bytes, name: str) -> Order:
    """An order from the bytes of a file called `name`; UsageError where a line cannot be meant."""
    order = parse(Order, data, name)
    if not order.line:
        raise UsageError(f"{name} orders nothing: it needs at least one [[line]]")
    if len(order.line) > MOST_LINES:
        raise UsageError(f"{name} has {len(order.line)} lines: at most {MOST_LINES} are read")
    for key, text in (("name", order.name), ("summary", order.summary)):
        if not 0 < len(text.strip()) <= LONGEST_TITLE:
            raise UsageError(f'{name}: key "{key}" must have 1 to {LONGEST_TITLE} characters')
        if not text.isprintable():
            raise UsageError(
                f'{name}: key "{key}" has a character that cannot be seen: take it out'
            )
    for number, line in enumerate(order.line, 1):
        fault = _fault(line)
        if fault:
            raise UsageError(f"{name}: {_called(number, line)} {fault}")
    return order


def check_here(order: Order, system: System, name: str) -> None:
    """UsageError for a line that can have no answer on this node, whatever it is.

    Its field does not exist, or holds something that the line's value cannot be compared with.
    """
    for number, line in enumerate(order.line, 1):
        fault = _unknown_field(line.field, system) or _unanswerable(line, system)
        if fault:
            raise UsageError(f"{name}: {_called(number, line)} {fault}")


def _called(number: int, line: OrderLine) -> str:
    has_title = 0 < len(line.title.strip()) <= LONGEST_TITLE and line.title.isprintable()
    return f'line {number} ("{line.title}")' if has_title else f"line {number}"


def _fault(line: OrderLine) -> str:
    """What is wrong with a line on any node, as a clause, or nothing."""
    return _words_fault(line) or _place_fault(line, *line.field.partition(".")[::2])


def _words_fault(line: OrderLine) -> str:
    if not 0 < len(line.title.strip()) <= LONGEST_TITLE:
        return f"needs a title of 1 to {LONGEST_TITLE} characters"
    if not line.title.isprintable():
        return "has a title with a character that cannot be seen: take it out"
    if len(line.field) > LONGEST_FIELD:
        return f"has a field of more than {LONGEST_FIELD} characters, which no node has"
    return ""


def _place_fault(line: OrderLine, place: str, name: str) -> str:
    groups = ("devices", *SINGLE, *PARTS)
    if place not in groups:
        return (
            f'has the field "{line.field}", which begins with no part{did_you_mean(place, groups)}'
        )
    if not name:
        return f'has the field "{line.field}", which needs a name behind a dot, like "host.memory"'
    fault = _part_fault(line, place, name) or order_values.fault(line.op, line.value, line.unit)
    if fault:
        return fault
    own = OWN if place == "devices" else PARTS[place][2] if place in PARTS else {}
    return _own_fault(line, "" if name == "count" else own.get(name))


def _part_fault(line: OrderLine, place: str, name: str) -> str:
    if line.count is not None and (place in SINGLE or name == "count"):
        return f'has a "count", and {line.field} is one value: leave it out'
    if line.count is not None and line.count < 1:
        return 'has a "count" below 1'
    if place in PARTS and name != "count" and name not in PARTS[place][2]:
        return _no_field(line.field, name, {"count", *PARTS[place][2]})
    return ""


def _own_fault(line: OrderLine, unit: str | None) -> str:
    """A unit that a field of known unit does not have, and a count that is no number."""
    fault = "" if unit is None else order_values.unit_fault(unit, line.unit)
    if fault:
        return f"has the field {line.field}, which {fault}"
    values = line.value if isinstance(line.value, tuple) else (line.value,)
    if (line.field.endswith(".count") or unit) and order_values.kind(values[0]) != "a number":
        return f"has the field {line.field}, which is a number, and {order_values.kind(values[0])}"
    return ""


def _unknown_field(field: str, system: System) -> str:
    place, _, name = field.partition(".")
    if place == "devices":
        present = {key for device in system.identity.devices for key in device.facts}
        known = {"count", *OWN, *FACTS, *present}
        is_connection = name.startswith(CONNECTION) and name.removeprefix(CONNECTION).isdecimal()
        return "" if is_connection or name in known else _no_field(field, name, known)
    if place in SINGLE:
        present = set(_single(place, system))
        return "" if name in present else _no_field(field, name, present)
    return ""


def _no_field(field: str, name: str, known: set[str]) -> str:
    hint = did_you_mean(name, known)
    place = field.partition(".")[0]
    short = hint if len(hint) <= LONGEST_HINT else " (`bench probe --json` shows those of a node)"
    return f'has the field "{field}", and {place} has no "{name}"{short}'


def _unanswerable(line: OrderLine, system: System) -> str:
    """Why what this node tells cannot be compared with the line, as a clause, or nothing."""
    for member in read_field(line.field, system).members:
        value, unit = member.fact.value, member.fact.unit
        if value is None:
            fault = order_values.unit_fault(unit, line.unit) if unit else ""
        else:
            fault = order_values.mismatch(value, unit, line.value, line.unit) or _unordered(
                line, member
            )
        if fault:
            return f"has the field {line.field}, which {fault}"
    return ""


def _unordered(line: OrderLine, member: Member) -> str:
    value = member.fact.value
    if value is None:
        return ""
    if order_values.holds(line.op, value, member.fact.unit, line.value, line.unit) is not None:
        return ""
    if line.op == "matches":
        return (
            f"is too long for a pattern here, with more than {order_values.LONGEST_TEXT} characters"
        )
    return f'is "{value}" here, which is no version that "{line.op}" can compare: use "==" or "in"'


# ------------------------------------------------------------------ what the node says


def read_field(field: str, system: System) -> Field:
    """What every part of the node says of a field."""
    place, _, name = field.partition(".")
    if place == "devices":
        return _of_devices(name, system.identity.devices)
    if place in SINGLE:
        fact = _single(place, system).get(name) or Fact(value=None, hint="no such field is told")
        return Field(members=(Member(name=field, fact=fact),))
    if name in ("link_state", "link_speed"):
        return _links(name, system.conditions.facts)
    return _of_parts(place, name, system)


def _single(place: str, system: System) -> Facts:
    identity = system.identity
    places = {
        "host": identity.host,
        "software": identity.software,
        "conditions": system.conditions.facts,
    }
    return places[place]


def _of_devices(name: str, devices: Sequence[Device]) -> Field:
    if name == "count":
        fact = Fact(value=len(devices))
        return Field(members=(Member(name="devices.count", fact=fact),))
    members = tuple(Member(name=device.id, fact=_of_device(name, device)) for device in devices)
    return Field(members=members, unknown="" if members else "no device is listed")


def _of_device(name: str, device: Device) -> Fact:
    if name in OWN:
        reported = device.facts.get(name)
        if (
            reported is not None and reported.value is None
        ):  # `model` then is words of the appliance
            return reported
        value = getattr(device, name)
        return Fact(value=value, unit=OWN[name], hint="" if value else "its tool does not give it")
    return device.facts.get(name) or Fact(value=None, hint="its tool does not give it")


def _of_parts(place: str, name: str, system: System) -> Field:
    called, counted, units = PARTS[place]
    identity = system.identity
    number = identity.host.get(counted) or Fact(value=None, hint="they were not counted")
    if name == "count":
        return Field(members=(Member(name=f"{place}.count", fact=number),))
    listed: Mapping[str, Sequence[Facts]] = {
        "memory_modules": identity.memory_modules,
        "disks": identity.disks,
        "interfaces": identity.interfaces,
    }
    absent = Fact(value=None, unit=units.get(name, ""), hint="this one does not tell it")
    members = tuple(
        Member(name=f"{called} {index}", fact=facts.get(name) or absent)
        for index, facts in enumerate(listed[place], 1)
    )
    is_whole = number.value == len(members)
    return Field(members=members, unknown="" if is_whole else number.hint or "not all are listed")


def _links(name: str, conditions: Facts) -> Field:
    """State or speed of every interface of this network namespace that has hardware."""
    suffix = "_speed"
    members = tuple(
        Member(name=key.removeprefix(LINK).removesuffix(suffix), fact=fact)
        for key, fact in conditions.items()
        if key.startswith(LINK) and key.endswith(suffix) is (name == "link_speed")
    )
    hint = conditions["links"].hint if "links" in conditions else NO_LINKS
    return Field(members=members, unknown="" if members else hint)
