"""Journals of well-formed lines that no run writes, drawn from a genuine one by a seed.

Every line stays a record of its kind, as far as types go: names of the plan stand where others of
it stood, numbers are too large or below zero, lines come twice, too late or not at all. The chain
is whole, and the verdict is judged from what stands there, so that only a reader who holds plan and
journal together sees that something is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from support.forger import Data, Forgery

NUMBERS: tuple[Any, ...] = (0, -1, 1, 2, 10**6, 2**53 - 1, -(2**53) + 1)
FLOATS: tuple[Any, ...] = (0.0, -1.0, 1e-300, 1e308, "nan", "inf", "-inf")
STRINGS = ("", "0", "-1", "9" * 18, "a\nb", "\u202e", "../../x", "0" * 64, "2030-01-01T00:00:00Z")
OF_ITS_TIME = 0.08
LIKE_ANOTHER = 0.5
"""How many changes are of a line's times, and how many take what another line has."""

Change = Callable[[random.Random, Forgery], None]


# ------------------------------------------------------------------ lines


def line_twice(rng: random.Random, forgery: Forgery) -> None:
    """A line that comes again, at once or later."""
    place = rng.randrange(1, len(forgery.lines))
    event = forgery.lines[place]["event"]
    _insert(forgery, rng.randrange(place, len(forgery.lines)) + 1, event)


def line_missing(rng: random.Random, forgery: Forgery) -> None:
    del forgery.lines[rng.randrange(1, len(forgery.lines))]


def line_elsewhere(rng: random.Random, forgery: Forgery) -> None:
    """A line that comes too early or too late; times stay in their order."""
    event = forgery.lines.pop(rng.randrange(1, len(forgery.lines)))["event"]
    _insert(forgery, rng.randrange(1, len(forgery.lines)), event)


def _insert(forgery: Forgery, place: int, event: Data) -> None:
    before = forgery.lines[place - 1]
    forgery.lines.insert(place, {**before, "event": event})


# ------------------------------------------------------------------ values


def other_value(rng: random.Random, forgery: Forgery) -> None:
    """Another value of the same type in one place of a line."""
    lines = forgery.lines[1:]
    line = rng.choice(lines)
    if rng.random() < OF_ITS_TIME:
        line[rng.choice(("utc", "monotonic_ns"))] = rng.choice((*STRINGS, *map(str, NUMBERS)))
        return
    holder, key = rng.choice([*_places(line["event"])])
    holder[key] = _other(rng, holder[key], _known(forgery, key))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value but its kind: what holds it, and its key there."""
    items: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, dict):
        items = iter([item for item in value.items() if item[0] != "kind"])
    elif isinstance(value, list):
        items = iter(enumerate(value))
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _known(forgery: Forgery, key: object) -> list[Any]:
    """What other lines have under this key: names of launches, cases and devices above all."""
    events = [line["event"] for line in forgery.lines]
    return [event[key] for event in events if isinstance(key, str) and key in event]


def _other(rng: random.Random, value: Any, known: list[Any]) -> Any:
    if known and rng.random() < LIKE_ANOTHER:
        return rng.choice(known)
    return rng.choice(_others(rng, value))


def _others(rng: random.Random, value: Any) -> Sequence[Any]:
    """Other values of the same JSON type."""
    by_type: dict[type, Callable[[], Sequence[Any]]] = {
        bool: lambda: (not value,),
        int: lambda: (*NUMBERS, value + 1, value - 1, value * 1000),
        float: lambda: (*FLOATS, value * 1000, -value),
        str: lambda: (*STRINGS, f"{value}9", value.upper(), _digits(rng, value)),
        list: lambda: ([], value + value, value[:1], value[::-1]),
        dict: lambda: ({}, {f"{name}x": one for name, one in value.items()}),
    }
    return by_type.get(type(value), lambda: (None, 0, "", 1.5))()


def _digits(rng: random.Random, value: str) -> str:
    """The text with other numbers in it: another launch, another device."""
    return "".join(str(rng.randrange(10)) if one.isdigit() else one for one in value)


CHANGES: tuple[Change, ...] = (
    *(other_value,) * 6,
    line_twice,
    line_missing,
    line_elsewhere,
)


def hostile(forgery: Forgery, seed: int, number: int) -> Forgery:
    """The forgery with one to three such changes, drawn by seed and number."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - drawn to be repeated
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(CHANGES)(rng, forgery)
    return forgery
