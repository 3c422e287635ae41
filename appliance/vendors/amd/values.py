"""AMD's answers as clean values: what its tools write where they have nothing, and their units.

The library and the tool write "N/A", or hand on the largest unsigned number of a field that the
firmware does not fill (amdsmi_interface.py, MaxUIntegerTypes; amdsmi.h, "0xFFFFFFFF if not
supported"), and zero where a name or serial is empty. None of these is a value. Units are those
of amdsmi.h: https://rocm.docs.amd.com/projects/amdsmi (read 2026-11).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from appliance.linux.fact_reader import firmware
from appliance.linux.sysfs import Unreadable, or_none
from appliance.records.json import Scalar

Value = TypeVar("Value")
NOT_REPORTED = "neither the device nor its driver reports it"
NOT_SUPPORTED = "neither the device nor its driver has it"
NO_VALUE = "N/A"
UNSET = frozenset((1 << bits) - 1 for bits in (16, 32, 64))
"""What the firmware leaves in a field of 16, 32 or 64 bits that it does not fill."""
UNITS = {
    "W": 1.0,
    "C": 1.0,
    "J": 1.0,
    "GT/s": 1.0,
    "%": 0.01,
    "MHz": 1e6,
    "MB": 2.0**20,
    "Gb/s": 1e9 / 8,
}
"""What a number of the tool is multiplied with to be in SI units; it counts MB by 1024 * 1024."""
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generations by the rate of a lane in GT/s (PCI Express Base Specification 6.0)."""
MEGA_FROM = 1000
"""A rate of a lane from here on is in MT/s: no generation has 1000 GT/s."""
MICROWATTS_FROM = 100_000
"""A power cap from here on is in microwatts (bare metal), below in watts (amdsmi.h, "{@host}")."""
COLDEST, HOTTEST = -50, 200
"""Degrees Celsius between which a reading is a temperature."""
UNDIVIDED = frozenset(("SPX", "NPS1"))
"""One partition of the processors, one of the memory: the device is not divided."""


@dataclass(frozen=True, slots=True)
class Query:
    """How to read one value, where it comes from, and its unit."""

    read: Callable[[], Scalar]
    source: str
    unit: str = ""


Queries = Mapping[str, Query]
Readers = Mapping[str, Callable[[], float | None]]
"""Readings and counters by name; each raises Unreadable, or gives None, where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One logical device as a source lists it.

    `address` is in the kernel's form, a partition in the place of the function; `order` is the
    number that programs know it by, None where it is not reported.
    """

    address: str
    order: int | None
    model: Query
    serial: Query
    queries: Queries


class Source(Protocol):
    """Who answers for AMD's devices: its library, or its command line tool."""

    name: str

    def units(self) -> tuple[Unit, ...]:
        """Devices in the order of the source. Raises Unreadable if it does not answer."""

    def readings(self, address: str) -> Readers:
        """Ways to the readings of one moment."""

    def counters(self, address: str) -> Readers:
        """Ways to the error counters."""

    def answers(self, address: str) -> bool | None:
        """Whether the device answers now; None if the source does not show it."""

    def connection(self, address: str, other: str) -> str:
        """The vendor's links between two devices. Raises Unreadable if there are none."""


class Once(Generic[Value]):
    """A query that runs when its answer is first needed; a refusal is cached as well."""

    def __init__(self, ask: Callable[[], Value]) -> None:
        self._ask = ask
        self._answer: list[Value] = []
        self._gap: Unreadable | None = None

    def __call__(self) -> Value:
        if self._gap is None and not self._answer:
            try:
                self._answer.append(self._ask())
            except Unreadable as gap:
                self._gap = gap
        if self._gap is not None:
            raise self._gap
        return self._answer[0]


def number(answer: object) -> float | None:
    """A number, plain or as {"value", "unit"}; None for what stands for no value."""
    if isinstance(answer, Mapping):
        return number(answer.get("value"))
    if isinstance(answer, str) and re.fullmatch(r"-?\d+(\.\d+)?", answer.strip()):
        return number(float(answer) if "." in answer else int(answer))
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return None
    return answer if math.isfinite(answer) and answer not in UNSET else None


def count(answer: object) -> int | None:
    """A non-negative integer; None for everything else."""
    value = number(answer)
    return int(value) if value is not None and value >= 0 and value == int(value) else None


def quantity(answer: object) -> float | None:
    """A number of the tool in SI units; None without a unit that is known."""
    value = number(answer)
    unit = answer.get("unit") if isinstance(answer, Mapping) else None
    if value is None or not isinstance(unit, str) or unit not in UNITS:
        return None
    return value * UNITS[unit]


def text(answer: object) -> str:
    """A text; raises Unreadable for what stands for none."""
    if not isinstance(answer, str) or re.fullmatch(rf"0x0*|{NO_VALUE}", answer.strip()):
        raise Unreadable(NOT_REPORTED)
    return firmware(answer)


def needed(value: Value | None, hint: str = NOT_REPORTED) -> Value:
    """The value; raises Unreadable if it is None."""
    if value is None:
        raise Unreadable(hint)
    return value


def scaled(answer: object, factor: float) -> float | None:
    value = number(answer)
    return None if value is None else value * factor


def celsius(answer: object) -> float | None:
    """A temperature. A sensor that is not there reads as 0, as the vendor's own tool takes it."""
    value = number(answer)
    return value if value and COLDEST < value < HOTTEST else None


def watts(answer: object) -> float | None:
    """A power cap of the library, which is in microwatts or watts."""
    value = number(answer)
    return value if value is None or value < MICROWATTS_FROM else value / 1e6


def cap(answer: object) -> float | None:
    """A power cap in watts; 0 stands for none."""
    return watts(answer) or None


def megahertz(answer: object) -> float | None:
    """A clock in hertz."""
    return scaled(answer, 1e6)


def mebibytes(answer: object) -> int | None:
    """A size in bytes; 0 stands for none."""
    value = count(answer)
    return value * 2**20 if value else None


def share(answer: object) -> float | None:
    """A percentage as a fraction; above 100 it is none (amdsmi_interface.py, isActivity)."""
    value = number(answer)
    return value / 100 if value is not None and 0 <= value <= 100 else None  # noqa: PLR2004


def generation(rate: float | None) -> int | None:
    """PCIe generation of a lane's rate in GT/s or MT/s."""
    if rate is None:
        return None
    return GENERATIONS.get(rate / 1000 if rate >= MEGA_FROM else rate)


def lanes(answer: object) -> int | None:
    """Lanes of a link; 0 and more than 32 are none."""
    value = count(answer)
    return value if value and value <= 32 else None  # noqa: PLR2004


def division(mode: str) -> str:
    """How something is divided: "none", or the vendor's word."""
    return "none" if mode.upper() in UNDIVIDED else mode


def links(states: Iterable[object]) -> dict[str, int]:
    """Links by state: "U" up, "D" down, "X" disabled; several towards one device are "U/D"."""
    letters = [part for state in states if isinstance(state, str) for part in state.split("/")]
    return {letter: letters.count(letter) for letter in "UDX"}


def joined_firmware(pairs: Iterable[tuple[str, str]]) -> str:
    """Versions of firmware with their names, in the order of the names."""
    named = sorted(
        (name.removeprefix("AMDSMI_FW_ID_"), version)
        for name, version in pairs
        if version not in ("", "N/A")
    )
    return needed(", ".join(f"{name} {version}" for name, version in named) or None)


def connected(hops: float | None, slowest: float | None, fastest: float | None) -> str:
    """Devices joined by the vendor's links: how many, or over how many others.

    The driver gives the rate of one link as the lowest and that of all of them as the highest
    (Linux, drivers/gpu/drm/amd/amdgpu, amdgpu_amdkfd_get_xgmi_bandwidth_mbytes).
    """
    if hops is not None and hops > 1:
        return f"XGMI over {int(hops)} hops"
    return f"XGMI x{round(fastest / slowest)}" if slowest and fastest else "XGMI"


def first(
    read: Callable[[object], float | None], answer: Mapping[str, object], *keys: str
) -> float | None:
    """The first of several fields that has a value."""
    candidates = (read(answer.get(key)) for key in keys)
    return next((value for value in candidates if value is not None), None)


def total(answer: Mapping[str, object], *keys: str) -> int | None:
    """The sum of several counts; None if one of them is not reported."""
    counts = [count(answer.get(key)) for key in keys]
    known = [value for value in counts if value is not None]
    return sum(known) if len(known) == len(counts) else None


def either(first: Query, second: Query) -> Query:
    """The first of two queries that has a value, with the source of both, else its reason."""

    def read() -> Scalar:
        try:
            return first.read()
        except Unreadable as gap:
            other = or_none(second.read)
            if other is None:
                raise gap from None
            return other

    return Query(read, f"{first.source}, else {second.source}", first.unit)


def both(first: Query, second: Query) -> Query:
    """The values of two queries, joined; that of one of them if the other has none."""

    def read() -> Scalar:
        values = [or_none(query.read) for query in (first, second)]
        return " ".join(str(one) for one in values if one is not None) or first.read()

    return Query(read, f"{first.source}; {second.source}")
