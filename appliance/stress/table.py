"""What all segments of a burn-in did of each kind of stress, for the page and for who watches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from appliance.records.journal import Check
from appliance.stress.aggregates import LASTING, Aggregate, Span, Untrue, of_checks, read
from appliance.stress.kinds import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTotal:
    """One kind over some segments; `lost` are those in which it did not run to their end.

    Of these `left` are those that ended because the partners, of other devices, were gone.
    """

    kind: str
    asked: str
    total: Span
    segments: int
    lost: int
    left: int
    places: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of the time, what it was at work."""
        return self.total.busy_ms / self.total.ms if self.total.ms else 0.0

    @property
    def bytes_a_second(self) -> float:
        """Bytes that it wrote, read or copied in a second, rests included."""
        return self.total.moved / (self.total.ms * 1e-3) if self.total.ms else 0.0


def aggregates_of(checks: Iterable[Check]) -> Iterator[Aggregate]:
    """What one launch says of each kind, as far as it can be read; `checks` refuses the rest."""
    with suppress(Untrue):
        for pair in of_checks(checks).values():
            if LASTING in pair:
                yield read(pair[LASTING])


def totals(aggregates: Iterable[Aggregate]) -> tuple[KindTotal, ...]:
    """Sums by kind, in the kinds' order; the load asked for is that of the last segment."""
    by_kind: dict[str, list[Aggregate]] = {}
    for one in aggregates:
        by_kind.setdefault(one.kind, []).append(one)
    return tuple(_total(kind, by_kind[kind]) for kind in KINDS if kind in by_kind)


def _total(kind: str, own: list[Aggregate]) -> KindTotal:
    return KindTotal(
        kind=kind,
        asked=next((one.asked for one in reversed(own) if one.is_whole), own[-1].asked),
        total=sum((one.total for one in own), Span()),
        segments=len(own),
        lost=sum(not one.is_whole for one in own),
        left=sum(one.is_left for one in own),
        places=tuple(place for one in own for place in one.places),
    )
