"""Whether readings and counters are ones that a device can have: as they were recorded.

A run records what lies outside of `vocabulary.RANGES`, or is more than a register holds, as not
reported: a sensor is broken now and then. So where such a value stands, nobody has read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from appliance.records.journal import Counted, Line, Reading, ReadingsFolded, UsersCounted
from appliance.records.vocabulary import is_count, is_possible


def impossible_reading(lines: Iterable[Line]) -> str:
    """The first reading or counter that no device has, in a sentence; or nothing."""
    for number, line in enumerate(lines, 1):
        match line.event:
            case Reading() | ReadingsFolded() | UsersCounted() as event:
                for values in _values(event):
                    for name, value in values.items():
                        if not is_possible(name, value):
                            said = f"{name} of {event.device} is {value:g}"
                            return f"journal.jsonl line {number}: {said}, as of no device"
            case Counted() as event:
                for name, count in event.counters.items():
                    if not is_count(count):
                        said = f"the counter {name} of {event.device} is {count}"
                        return f"journal.jsonl line {number}: {said}, as of no device"
            case _:
                pass
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
