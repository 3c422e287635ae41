"""Whether the node is what was bought: each line of the order against system.json alone.

A line names a field, and what is to be found there. Where the field is of several parts (devices,
memory modules, disks, network interfaces), all of them must be so, or at least as many as the
line's `count`. What the node does not report is inconclusive and never a pass, nor are parts that
are not there. The same order and the same system.json give the same rulings, anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance import comparing
from appliance.catalog import LONGEST_TITLE, ORDER_LINE, did_you_mean, parse
from appliance.errors import UsageError
from appliance.records import Criterion, Device, Fact, Facts, Order, OrderLine, System
from appliance.rulings import Answer, inconclusive
from appliance.vendors.vocabulary import CONNECTION, FACTS

SINGLE = ("host", "software", "conditions")
PARTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "memory_modules": (
        "memory module",
        "memory_modules",
        {
            **dict.fromkeys(("slot", "bank", "kind", "maker", "part", "serial", "ranks"), ""),
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
MOST_TOLD = 3  # kinds of values told of one line
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One line of an order beside what was found; `ordered` and `found` are words for a person."""

    id: str
    line: OrderLine
    ordered: str
    found: str
    answer: Answer


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
    fault = _part_fault(line, place, name) or comparing.fault(line.op, line.value, line.unit)
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
    fault = "" if unit is None else comparing.unit_fault(unit, line.unit)
    if fault:
        return f"has the field {line.field}, which {fault}"
    values = line.value if isinstance(line.value, tuple) else (line.value,)
    if (line.field.endswith(".count") or unit) and comparing.kind(values[0]) != "a number":
        return f"has the field {line.field}, which is a number, and {comparing.kind(values[0])}"
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
    for member in found(line.field, system).members:
        value, unit = member.fact.value, member.fact.unit
        if value is None:
            fault = comparing.unit_fault(unit, line.unit) if unit else ""
        else:
            fault = comparing.mismatch(value, unit, line.value, line.unit) or _unordered(
                line, member
            )
        if fault:
            return f"has the field {line.field}, which {fault}"
    return ""


def _unordered(line: OrderLine, member: Member) -> str:
    value = member.fact.value
    if value is None:
        return ""
    if comparing.holds(line.op, value, member.fact.unit, line.value, line.unit) is not None:
        return ""
    if line.op == "matches":
        return f"is too long for a pattern here, with more than {comparing.LONGEST_TEXT} characters"
    return f'is "{value}" here, which is no version that "{line.op}" can compare: use "==" or "in"'


# ------------------------------------------------------------------ what the node says


def found(field: str, system: System) -> Field:
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
    told = tuple(Member(name=device.id, fact=_of_device(name, device)) for device in devices)
    return Field(members=told, unknown="" if told else "no device is listed")


def _of_device(name: str, device: Device) -> Fact:
    if name in OWN:
        told = device.facts.get(name)
        if told is not None and told.value is None:  # `model` then is words of the appliance
            return told
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


# ------------------------------------------------------------------ matching


def requirements(order: Order | None) -> tuple[Criterion, ...]:
    """The lines of an order as requirements on the node's inventory."""
    return tuple(
        Criterion(
            id=f"{ORDER_LINE}{number}",
            kind="inventory",
            title=line.title,
            required=line.required,
            metric=line.field,
        )
        for number, line in enumerate(order.line if order else (), 1)
    )


def match(order: Order | None, system: System) -> tuple[Matched, ...]:
    """Every line of an order beside what the node is; empty without an order."""
    return tuple(
        _matched(f"{ORDER_LINE}{number}", line, system)
        for number, line in enumerate(order.line if order else (), 1)
    )


def sentences(matched: Sequence[Matched]) -> Iterator[str]:
    """How many lines are met, then every other with its reason."""
    yield f"order: {counts(matched)}"
    for one in matched:
        if one.answer.ruling != "pass":
            advisory = "" if one.line.required else " (not required)"
            yield f"{one.answer.ruling}: {one.id}{advisory}: {one.answer.explanation}"


def counts(matched: Sequence[Matched]) -> str:
    """How many lines are met: 12 of 14 lines are met, 1 is not, 1 cannot be told."""
    rulings = [one.answer.ruling for one in matched]
    failed, unknown = rulings.count("fail"), rulings.count("inconclusive")
    said = f"{rulings.count('pass')} of {len(rulings)} lines are met"
    said += f", {failed} {'is' if failed == 1 else 'are'} not" if failed else ""
    return said + (f", {unknown} cannot be told" if unknown else "")


def _matched(name: str, line: OrderLine, system: System) -> Matched:
    field = found(line.field, system)
    return Matched(
        id=name,
        line=line,
        ordered=_ordered_words(line),
        found=_found_words(line, field),
        answer=_answer(line, field),
    )


def _answer(line: OrderLine, field: Field) -> Answer:
    held = [(member, _held(line, member)) for member in field.members]
    others = [member for member, is_so in held if is_so is False]
    unknown = [member for member, is_so in held if is_so is None]
    num_met = len(held) - len(others) - len(unknown)
    if line.count is None:
        if others:
            return _failed(line, _is_another(line, others, field))
        if unknown or field.unknown:
            return _untold(line, unknown, field)
        return Answer(ruling="pass") if num_met else _failed(line, "there is none")
    if num_met >= line.count:
        return Answer(ruling="pass")
    if num_met + len(unknown) >= line.count or field.unknown:
        return _untold(line, unknown, field)
    return _failed(line, f"{num_met} of {len(held)} are so: {_found_words(line, field)}")


def _held(line: OrderLine, member: Member) -> bool | None:
    fact = member.fact
    if fact.value is None:
        return None
    return comparing.holds(line.op, fact.value, fact.unit, line.value, line.unit)


def _is_another(line: OrderLine, others: Sequence[Member], field: Field) -> str:
    """The first part that is not as ordered, and how many are not: cpu:1 is 32 GiB (1 of 2)."""
    first = others[0]
    told = f"{first.name} is {_shown(line, first.fact)}"
    return told if len(field.members) == 1 else f"{told} ({len(others)} of {len(field.members)})"


def _failed(line: OrderLine, what: str) -> Answer:
    return Answer(
        ruling="fail",
        reason="inventory",
        explanation=f"{line.title}: {what}, where {_ordered_words(line)} was ordered",
        action="Compare the node with the order; have it delivered as it was bought.",
    )


def _untold(line: OrderLine, unknown: Sequence[Member], field: Field) -> Answer:
    """What is not reported, or cannot be compared, is no pass."""
    hint, name = field.unknown, line.field
    if unknown:
        fact, name = unknown[0].fact, unknown[0].name
        hint = fact.hint if fact.value is None else "it cannot be compared with the order"
    what = line.field if name == line.field else f"{line.field} of {name}"
    return inconclusive(
        "evidence_missing",
        f"{line.title}: {what} is not known{f': {hint}' if hint else ''}",
        "Let the appliance read it, or look at the node by hand.",
    )


# ------------------------------------------------------------------ in words


def _ordered_words(line: OrderLine) -> str:
    words = comparing.asked_words(line.op, line.value, line.unit)
    return words if line.count is None else f"{words}, {line.count} or more of them"


def _found_words(line: OrderLine, field: Field) -> str:
    """What was found: one value, or each with how many have it."""
    shown = [_shown(line, member.fact) for member in field.members]
    kinds = list(dict.fromkeys(shown))
    if not shown:
        return f"not reported ({field.unknown})" if field.unknown else "none"
    if len(shown) == 1:
        return shown[0]
    told = [f"{shown.count(one)} x {one}" for one in kinds[:MOST_TOLD]]
    rest = len(kinds) - MOST_TOLD
    return ", ".join(told) + (f" and {rest} other values" if rest > 0 else "")


def _shown(line: OrderLine, fact: Fact) -> str:
    if fact.value is None:
        return f"not reported{f' ({fact.hint})' if fact.hint else ''}"
    return comparing.shown(fact.value, fact.unit, line.unit)
