"""What a launch proved beside its products, by kind of stress and minute, in a check's own words.

A launch says of each kind in two checks of its last output how many mismatches there were, as a
burn-in does of its products. What was covered stands in the first of them as clauses, of which the
totals can be added up again:

    stress: disk; asked: 33,554,432 bytes a second; proven: 1,048,576 bytes, 0 products; moved:
    2,097,152 bytes; at work: 1,200 of 60,000 ms; by minute: 60000 1200 1048576 2097152 0 0;
    ended: asked to stop; mismatches: 0
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

from appliance.records.journal import Check
from appliance.stress.kinds import LINKS

LASTING = "mismatches, repeated or lasting"
SINGLE = "a single mismatch that never came again"
LONGEST_PLACE = 400
MINUTE_MS = 60_000
MOST_SPANS = 12
"""Spans of one launch; where there would be more, neighbours are added up. Those of all kinds on
eight devices take a megabyte of a week's journal."""
COMPLETED = "asked to stop"
LEFT = "without its partners: "
"""How an ending begins that is of other devices' launches, which have records of their own."""
_NAME = re.compile(rf"stress (\w+): ({LASTING}|{SINGLE})")
_SPAN = re.compile(r"(?:\d{1,18} ){5}\d{1,18}")
_PROVEN = re.compile(r"([\d,]{1,24}) bytes, ([\d,]{1,24}) products")
_MOVED = re.compile(r"([\d,]{1,24}) bytes")
_WORK = re.compile(r"([\d,]{1,24}) of ([\d,]{1,24}) ms")
_MISMATCHES = re.compile(r"([\d,]{1,24})(?:: .+)?")


@dataclass(frozen=True, slots=True)
class Span:
    """About a minute of one kind: milliseconds, those at work, and what was done in them.

    `proven` are bytes that were read back and compared, `moved` all that were written, read or
    copied; `products` are matrix products of which every word was compared.
    """

    ms: int = 0
    busy_ms: int = 0
    proven: int = 0
    moved: int = 0
    products: int = 0
    mismatches: int = 0

    def __add__(self, other: Span) -> Span:
        return Span(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """What one launch says of one kind; `places` of the mismatches that were looked at.

    `ending` is why the stress ended: it was asked to stop, or else it is no proof.
    """

    kind: str
    asked: str
    spans: tuple[Span, ...]
    ending: str = COMPLETED
    places: tuple[str, ...] = ()

    @property
    def total(self) -> Span:
        return sum(self.spans, Span())

    @property
    def is_whole(self) -> bool:
        """Whether it ran until it was asked to stop, and proved something."""
        return self.ending == COMPLETED and self.total.proven > 0

    @property
    def is_left(self) -> bool:
        """Whether it ended because those that it works with were gone."""
        return self.ending.startswith(LEFT)

    def text(self) -> str:
        """The clauses."""
        total = self.total
        places = " | ".join(self.places)
        clauses = {
            "stress": self.kind,
            "asked": self.asked,
            "proven": f"{total.proven:,} bytes, {total.products:,} products",
            "moved": f"{total.moved:,} bytes",
            "at work": f"{total.busy_ms:,} of {total.ms:,} ms",
            "by minute": " | ".join(" ".join(map(str, astuple(one))) for one in self.spans),
            "ended": self.ending,
            "mismatches": f"{total.mismatches:,}: {places}" if places else f"{total.mismatches:,}",
        }
        return "; ".join(f"{name}: {value.replace(';', ',')}" for name, value in clauses.items())


class Untrue(ValueError):
    """Words of a check that no launch says: one sentence with what is wrong."""


def name(kind: str, which: str) -> str:
    """Name of a check of a kind; `which` is LASTING or SINGLE."""
    return f"stress {kind}: {which}"


def kind_of(check: Check) -> str:
    """The kind that a check is of, empty for a check of anything else."""
    match = _NAME.fullmatch(check.name)
    return "" if match is None else match[1]


def read(check: Check) -> Aggregate:
    """What a check with the name LASTING says of its kind; Untrue where that does not add up."""
    clauses = dict(_clauses(check.detects_what))
    try:
        spans = tuple(_spans(clauses["by minute"]))
        asked, ending = clauses["asked"], clauses["ended"]
        kind, mismatches = clauses["stress"], clauses["mismatches"]
        said = _said(clauses)
    except KeyError as error:
        raise Untrue(f"it has no clause {error}") from None
    places = tuple(mismatches.partition(": ")[2].split(" | ")) if ": " in mismatches else ()
    found = Aggregate(kind=kind, asked=asked, spans=spans, ending=ending, places=places)
    if found.total != said:
        raise Untrue("its minutes do not add up to what it says of them together")
    return found


def first_place(check: Check) -> str:
    """Where the first mismatch was that a burn-in, or stress beside it, says of; or nothing."""
    if not check.name.endswith(LASTING):
        return ""
    _, clause, rest = check.detects_what.partition("; mismatches: ")
    number, colon, places = rest.partition(": ")
    is_told = bool(clause and colon) and number.replace(",", "").isdecimal()
    return places.partition(" | ")[0][:LONGEST_PLACE] if is_told else ""


def is_left(check: Check) -> bool:
    """Whether a check is of links whose partners were gone, which proves nothing of this device."""
    is_open = check.if_outside == "inconclusive" and math.isnan(check.error)
    return is_open and check.name == name(LINKS, LASTING)


def of_checks(checks: Iterable[Check]) -> Mapping[str, Mapping[str, Check]]:
    """Checks of stress, by kind and by which of the two they are; Untrue if one comes twice."""
    every: dict[str, dict[str, Check]] = {}
    for check in checks:
        match = _NAME.fullmatch(check.name)
        if match is None:
            continue
        own = every.setdefault(match[1], {})
        if match[2] in own:
            raise Untrue(f'the check "{check.name}" comes twice')
        own[match[2]] = check
    return every


def added(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans, neighbours added up as often as there are too many."""
    while len(spans) > MOST_SPANS:
        spans = [sum(spans[at : at + 2], Span()) for at in range(0, len(spans), 2)]
    return tuple(spans)


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    for clause in text.split("; "):
        head, colon, value = clause.partition(": ")
        if colon:
            yield head, value


def _spans(text: str) -> Iterator[Span]:
    for part in text.split(" | ") if text else ():
        if not _SPAN.fullmatch(part):
            raise Untrue("a minute of it is not six numbers")
        span = Span(*map(int, part.split()))
        if span.busy_ms > span.ms:
            raise Untrue("a minute of it was longer at work than it lasted")
        yield span


def _said(clauses: Mapping[str, str]) -> Span:
    """What the clauses say of all minutes together."""
    proven, products = _numbers(_PROVEN, clauses, "proven")
    (moved,) = _numbers(_MOVED, clauses, "moved")
    busy_ms, ms = _numbers(_WORK, clauses, "at work")
    (mismatches,) = _numbers(_MISMATCHES, clauses, "mismatches")
    return Span(ms, busy_ms, proven, moved, products, mismatches)


def _numbers(pattern: re.Pattern[str], clauses: Mapping[str, str], head: str) -> list[int]:
    match = pattern.fullmatch(clauses[head])
    if match is None:
        raise Untrue(f'its clause "{head}" is not what a launch writes')
    return [_number(text) for text in match.groups()]


def _number(text: str) -> int:
    digits = text.replace(",", "")
    if f"{int(digits or 0):,}" != text:
        raise Untrue(f'"{text}" is not how a launch writes a number')
    return int(digits)
