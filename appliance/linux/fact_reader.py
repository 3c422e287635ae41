"""How a reading becomes a fact: its value with its source, or no value with the reason.

Every fact of the probe is made here, so that there is one place where a value that cannot be
read turns into "not reported" with the permission or flag that would allow it.
"""

from __future__ import annotations

from collections.abc import Callable

from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.json import Scalar
from appliance.records.system import Fact, Facts

LARGEST = 2**53 - 1
"""The largest integer that JSON carries without loss."""
PLACEHOLDERS = frozenset(
    (
        "0",
        "0123456789",
        "default string",
        "empty",
        "n/a",
        "na",
        "no dimm",
        "none",
        "not available",
        "not provided",
        "not specified",
        "o.e.m.",
        "system manufacturer",
        "system product name",
        "system serial number",
        "to be filled by o.e.m.",
        "undefined",
        "unknown",
    )
)
"""What firmware says where its vendor left a field as it came."""


def fact(
    read: Callable[[], Scalar], *, source: str, unit: str = "", absent: str = "not present"
) -> Fact:
    """What `read` returns; where it raises Unreadable, no value and the reason.

    `absent` is the reason where the source itself is missing and has none of its own.
    """
    try:
        return Fact(value=_plausible(read(), source), unit=unit, source=source)
    except Unreadable as gap:
        return Fact(value=None, unit=unit, source=source, hint=gap.hint or absent)


def value_of(facts: Facts, name: str) -> Scalar | None:
    """The value of a fact; None where there is none, or it is not reported."""
    fact = facts.get(name)
    return None if fact is None else fact.value


def _plausible(value: Scalar, source: str) -> Scalar:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise Unreadable(f"{source} is damaged: {value} is not plausible")
    return value


def line(tree: Tree, path: str, absent: str = "not present", *, source: str = "") -> Fact:
    """The one line of a file. `source` stands for the path where that has a passing name in it."""
    return fact(lambda: tree.line(path), source=source or path, absent=absent)


def firmware(text: str) -> str:
    """A text from a machine's firmware; raises Unreadable for what its vendor never filled in."""
    plain = " ".join(text.split())
    if not plain or plain.lower() in PLACEHOLDERS:
        raise Unreadable(f'the firmware holds only the placeholder "{plain}"')
    return plain
