"""What a burn-in covered, as "heading: value" clauses that the report shows one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workloads.parts.burning.mismatches import Event
from workloads.parts.burning.state import KINDS, PHASES, State, bytes_of
from workloads.parts.memory.memory_tests import TESTS, WORD_BYTES

_WAYS = {
    "kernel": "by one kernel",
    "bytes": "by three kernels, read once",
    "plain": "in 64-bit integers",
}


def covered(state: State, total: int, events: Sequence[Event], num_links: int) -> str:
    """The clauses; `total` mismatches, of which `events` were looked at, and links recomputed."""
    rounds = _rounds(state)
    num_rounds = sum(rounds)
    products = [
        count * len(burnt.slots) for count, burnt in zip(rounds, state.formats, strict=True)
    ]
    half = sum(products) // len(KINDS)
    shapes = len(state.formats[0].slots) // len(KINDS)
    size = state.pool_words * WORD_BYTES
    clauses = {
        "digested blocks": f"{sum(products):,} products in {num_rounds:,} rounds, "
        f"{shapes} shapes of at most {len(state.signs):,}, every round",
        "products by format": " | ".join(
            f"{burnt.format.name} {count // 2:,} exact {count // 2:,} random"
            for burnt, count in zip(state.formats, products, strict=True)
        ),
        "references": f"{half:,} products held to the host's exact ones, "
        f"{half:,} to the first round's, which float64 confirmed",
        **_plain(state),
        "operands": f"read again {state.num_operand_readings:,} times beside products, those of "
        "each format in its every step",
        "in flight": f"{len(state.lanes)} products at once, each digested {_ways(state)}",
        "chained blocks": f"{state.num_steps:,} links, {num_links} recomputed by the host",
        "memory under test": f"{size:,} bytes, {percent(size, state.free_bytes)} of what was "
        f"free, {percent(size, state.total_bytes)} of all",
        **_memory(state),
        "phases": ", ".join(
            f"{name} {count:,} rounds"
            for name, count in state.phases.items()
            if count or name in PHASES
        ),
        "mismatches": _mismatches(total, events),
    }
    listed = "; ".join(f"{name}: {value.replace(';', ',')}" for name, value in clauses.items())
    return f"wrong element or word; {listed}"


def _plain(state: State) -> dict[str, str]:
    """Products of the plain loop, which are counted among no others."""
    if not state.num_bare:
        return {}
    return {"plain loop": f"{state.num_bare:,} products beside those, held to nothing"}


def _rounds(state: State) -> list[int]:
    """Rounds of each format, of all lanes."""
    return [
        sum(lane.tallies[number].num_rounds for lane in state.lanes)
        for number in range(len(state.formats))
    ]


def _ways(state: State) -> str:
    ways = {slot.weights.way for burnt in state.formats for slot in burnt.slots}
    return " or ".join(text for way, text in _WAYS.items() if way in ways)


def _memory(state: State) -> dict[str, str]:
    words: Counter[str] = sum((lane.tested_words for lane in state.lanes), Counter())
    done = [test for test in TESTS if words[test]]
    none = [test for test in TESTS if not words[test]]
    listed = [f"{one} {words[one]:,} words {bytes_of(one, words[one]):,} bytes" for one in done]
    listed += [f"none yet: {', '.join(none)}"] if none else []
    size = state.pool_words
    once = percent(max(words.values(), default=0), size)
    every = percent(min(words[test] for test in TESTS), size)
    rate = f"{state.memory_rate:,.0f} bytes a second written and read, in a trial"
    return {
        "memory tests": " | ".join(listed),
        "memory covered": f"{once} by one test at least, {every} by all {len(TESTS)}",
        "memory rate": rate if state.memory_rate else "not measured",
    }


def _mismatches(total: int, events: Sequence[Event]) -> str:
    locations = [event.where for event in events]
    rest = total - len(locations)
    if rest > 0 and locations:
        locations.append(f"{rest:,} more")
    places = " | ".join(locations) if locations else "none"
    return f"{total:,}" if not total else f"{total:,}: {places}"


def percent(part: int, whole: int) -> str:
    """Rounded down, so that what is not quite covered never reads as covered."""
    tenths = min(1000, 1000 * part // whole)
    return f"{tenths // 10}.{tenths % 10} %"
