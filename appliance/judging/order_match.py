"""Whether the node is what was bought: each line of the order against system.json alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from appliance.judging.functional import RulingDraft, inconclusive
from appliance.linux.fact_reader import value_of
from appliance.records.criteria import Criterion
from appliance.records.order import Order, OrderLine
from appliance.records.system import Fact, System
from appliance.storage import order_values
from appliance.storage.criteria_file import ORDER_LINE
from appliance.storage.order_file import Field, Member, read_field

MOST_VALUES = 3  # different values that one line names
COUNTED = "devices.count"
ONE_OF = "one of "


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One line of an order and the actual value; `ordered` and `actual` are words for a person."""

    id: str
    line: OrderLine
    ordered: str
    actual: str
    draft: RulingDraft


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
        if one.draft.ruling != "pass":
            advisory = "" if one.line.required else " (not required)"
            yield f"{one.draft.ruling}: {one.id}{advisory}: {one.draft.explanation}"


def counts(matched: Sequence[Matched]) -> str:
    """How many lines are met: 12 of 14 lines are met, 1 is not, 1 cannot be told."""
    rulings = [one.draft.ruling for one in matched]
    failed, unknown = rulings.count("fail"), rulings.count("inconclusive")
    text = f"{rulings.count('pass')} of {len(rulings)} lines are met"
    text += f", {failed} {'is' if failed == 1 else 'are'} not" if failed else ""
    return text + (f", {unknown} cannot be told" if unknown else "")


def _matched(name: str, line: OrderLine, system: System) -> Matched:
    field = read_field(line.field, system)
    return Matched(
        id=name,
        line=line,
        ordered=_ordered_words(line),
        actual=_actual_words(line, field),
        draft=_draft(line, field, _part_of(system) if line.field == COUNTED else ""),
    )


def _part_of(system: System) -> str:
    """What the devices are parts of, where software shows each part of a module as a device."""
    values = [value_of(device.facts, "partitions") for device in system.identity.devices]
    words = sorted({str(value) for value in values if str(value).startswith(ONE_OF)})
    return f" (each device is {', '.join(words)})" if words else ""


def _draft(line: OrderLine, field: Field, part_of: str = "") -> RulingDraft:
    held = [(member, _held(line, member)) for member in field.members]
    others = [member for member, is_so in held if is_so is False]
    unknown = [member for member, is_so in held if is_so is None]
    num_met = len(held) - len(others) - len(unknown)
    if line.count is None:
        if others:
            return _failed(line, _is_another(line, others, field) + part_of)
        if unknown or field.unknown:
            return _unreported(line, unknown, field)
        return RulingDraft(ruling="pass") if num_met else _failed(line, "there is none")
    if num_met >= line.count:
        return RulingDraft(ruling="pass")
    if num_met + len(unknown) >= line.count or field.unknown:
        return _unreported(line, unknown, field)
    return _failed(line, f"{num_met} of {len(held)} are so: {_actual_words(line, field)}")


def _held(line: OrderLine, member: Member) -> bool | None:
    fact = member.fact
    if fact.value is None:
        return None
    return order_values.holds(line.op, fact.value, fact.unit, line.value, line.unit)


def _is_another(line: OrderLine, others: Sequence[Member], field: Field) -> str:
    """The first part that is not as ordered, and how many are not: cpu:1 is 32 GiB (1 of 2)."""
    first = others[0]
    named = f"{first.name} is {_shown(line, first.fact)}"
    return named if len(field.members) == 1 else f"{named} ({len(others)} of {len(field.members)})"


def _failed(line: OrderLine, what: str) -> RulingDraft:
    return RulingDraft(
        ruling="fail",
        reason="inventory",
        explanation=f"{line.title}: {what}, where {_ordered_words(line)} was ordered",
        action="Compare the node with the order; have it delivered as it was bought.",
    )


def _unreported(line: OrderLine, unknown: Sequence[Member], field: Field) -> RulingDraft:
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
    words = order_values.requirement(line.op, line.value, line.unit)
    return words if line.count is None else f"{words}, {line.count} or more of them"


def _actual_words(line: OrderLine, field: Field) -> str:
    """What was found: one value, or each with how many have it."""
    shown = [_shown(line, member.fact) for member in field.members]
    kinds = list(dict.fromkeys(shown))
    if not shown:
        return f"not reported ({field.unknown})" if field.unknown else "none"
    if len(shown) == 1:
        return shown[0]
    values = [f"{shown.count(one)} x {one}" for one in kinds[:MOST_VALUES]]
    rest = len(kinds) - MOST_VALUES
    return ", ".join(values) + (f" and {rest} other values" if rest > 0 else "")


def _shown(line: OrderLine, fact: Fact) -> str:
    if fact.value is None:
        return f"not reported{f' ({fact.hint})' if fact.hint else ''}"
    return order_values.shown(fact.value, fact.unit, line.unit)
