"""Whether readings and counters are ones that a device can have: as they were recorded.

A run records what lies outside of `vocabulary.RANGES`, or is more than a register holds, as not
reported: a sensor is broken now and then. So where such a value stands, nobody has read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from appliance.records.journal import (
    Counted,
    LaunchEnded,
    Line,
    Reading,
    ReadingsFolded,
    UsersCounted,
)
from appliance.records.system import System
from appliance.records.vocabulary import (
    COUNTERS,
    OF_PROCESSORS,
    RANGES,
    READINGS,
    is_count,
    is_possible,
)
from appliance.vendors.registry import most_absent

LONG_NS = 5 * 10**9
READ = frozenset({*READINGS, *RANGES})
COUNTED = frozenset({*COUNTERS, *OF_PROCESSORS})


def impossible_reading(lines: Iterable[Line]) -> str:
    """The first reading or counter that no device has, in a sentence; or nothing."""
    for number, line in enumerate(lines, 1):
        event = line.event
        if isinstance(event, Reading | ReadingsFolded | UsersCounted):
            fault = next(filter(None, map(_no_reading, _values(event))), "")
        elif isinstance(event, Counted):
            fault = _no_count(event.counters)
        else:
            continue
        if fault:
            return f"journal.jsonl line {number}: {fault} of {event.device}, as of no device"
    return ""


def _no_reading(values: Mapping[str, float | None]) -> str:
    for name, value in values.items():
        if name not in READ:
            return f"a {name[:40]!r} is read"
        if not is_possible(name, value):
            return f"{name} is {value:g}"
    return ""


def _no_count(counters: Mapping[str, int | None]) -> str:
    for name, count in counters.items():
        if name not in COUNTED:
            return f"a {name[:40]!r} is counted"
        if not is_count(count):
            return f"the counter {name} is {count}"
    return ""


def unread_launch(lines: Iterable[Line]) -> str:
    """The first launch that took long and completed without a reading, or nothing."""
    read: set[str] = set()
    for event in (line.event for line in lines):
        if isinstance(event, Reading | ReadingsFolded):
            read.add(event.launch)
        elif isinstance(event, LaunchEnded) and event.outcome == "completed":
            if event.launch in read or event.wall_ns < LONG_NS:
                continue
            return (
                f"journal.jsonl: launch {event.launch} took {event.wall_ns / 1e9:.0f} s, and its "
                "devices were not read meanwhile, as those of every run are"
            )
    return ""


def excused_counter(system: System, lines: Iterable[Line]) -> str:
    """The first counter or reading that a device is said not to have, and can have; or nothing."""
    devices = {one.id: one for one in system.identity.devices}
    for event in (line.event for line in lines):
        if isinstance(event, Counted) and event.absent and event.device in devices:
            most = most_absent(devices[event.device])
            excused = [] if most is None else sorted(set(event.absent) - most)
            if excused:
                return (
                    f"journal.jsonl: {event.device} is said not to have {excused[0][:40]}, and as "
                    "system.json describes it it can have that"
                )
    return ""


def _values(event: Reading | ReadingsFolded | UsersCounted) -> Iterator[Mapping[str, float | None]]:
    if not isinstance(event, ReadingsFolded):
        yield event.values
        return
    yield event.detail_common
    yield from (one.values for one in event.detail)
    for group in event.groups:
        yield group.common
        yield {name: ranged[0] for name, ranged in group.ranged.items()}
        yield {name: ranged[1] for name, ranged in group.ranged.items()}
