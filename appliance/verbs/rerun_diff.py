"""One launch by the evidence of two journals, then and now, side by side.

Pure. It agrees where it ended in the same way and every check lies on the same side of its
bound; times are shown beside each other and judged by nobody, for a single launch says little of
them. Files that the untimed launch made of the seed show by their digests whether both had the
same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.comparison.case_pairs import common_clock
from appliance.records.journal import (
    Artifact,
    Block,
    Check,
    Checked,
    Environment,
    LaunchEnded,
    LaunchStarted,
    Line,
    Outcome,
    Phase,
    Warmed,
)
from appliance.records.json import Number, Record
from appliance.records.plan import Repeat
from appliance.records.suite import LaunchMode
from appliance.records.system import Fact
from appliance.records.verdict import CaseResult

# ------------------------------------------------------------------ the document


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePair(Record):
    """How one launch ended then and now."""

    launch: int
    then: Outcome
    then_reason: str
    now: Outcome
    now_reason: str
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPair(Record):
    """The worst comparison of one check then and now; None where it was not made.

    `is_same` where both lie on the same side of their bounds; one that was not made then is
    expected within: only some launches check their last output, and this one always does.
    """

    launch: int
    phase: Phase
    name: str
    then: Check | None
    now: Check | None
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPair(Record):
    """sha256 of a file that the untimed launch made of the seed, then and now."""

    name: str
    then: str | None
    now: str | None
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePair(Record):
    """A time of the launch in seconds, then and now; None where none may be shown."""

    name: Literal["step", "first step"]
    then_seconds: Number | None
    now_seconds: Number | None
    ratio: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Record):
    """What a launch showed then and shows now; `agrees` is of outcomes and checks, not of times.

    `differences` are what is another on this machine, `disagreements` why it does not agree.
    """

    schema: Literal["bench/rerun/1"] = "bench/rerun/1"
    run_id: str
    rerun_of: str
    folder: str
    case: str
    launch: int
    agrees: bool
    disagreements: tuple[str, ...]
    differences: tuple[str, ...]
    outcomes: tuple[OutcomePair, ...]
    checks: tuple[CheckPair, ...]
    inputs: tuple[InputPair, ...]
    times: tuple[TimePair, ...]
    no_times: tuple[str, ...]


# ------------------------------------------------------------------ evidence of a launch


@dataclass(frozen=True, kw_only=True)
class LaunchEvidence:
    """A journal's evidence of one launch; of one made again, that of the last time.

    `repeat` is None where it made no warm-up: it is untimed, its number of steps is fixed, or it
    ended before.
    """

    mode: LaunchMode
    ended: LaunchEnded
    checks: Mapping[tuple[Phase, str], Check]
    artifacts: Mapping[str, str]
    facts: Mapping[str, Fact]
    beside: int
    repeat: Repeat | None


def launch_evidence(lines: Sequence[Line], launch: str) -> LaunchEvidence | None:
    """The evidence of a launch in these lines; None if it was not made or did not end."""
    events = [line.event for line in lines]
    own = [event for event in events if getattr(event, "launch", "") == launch]
    starts = [number for number, event in enumerate(own) if isinstance(event, LaunchStarted)]
    last = own[starts[-1] :] if starts else []
    ended = next((event for event in reversed(last) if isinstance(event, LaunchEnded)), None)
    if ended is None:
        return None
    checks: dict[tuple[Phase, str], Check] = {}
    facts: dict[str, Fact] = {}
    for event in last:
        if isinstance(event, Checked):
            key = event.phase, event.check.name
            checks[key] = _worse(checks.get(key), event.check)
        elif isinstance(event, Environment):
            facts |= event.facts
    return LaunchEvidence(
        mode=next(event.mode for event in last if isinstance(event, LaunchStarted)),
        ended=ended,
        checks=checks,
        artifacts={event.name: event.sha256 for event in last if isinstance(event, Artifact)},
        facts=facts,
        beside=len(_beside(lines, launch)),
        repeat=_repeat(last),
    )


def _repeat(events: Sequence[object]) -> Repeat | None:
    """Steps of a launch, which all of its ranks make in the same numbers."""
    warmed = next((event for event in events if isinstance(event, Warmed)), None)
    if warmed is None:
        return None
    blocks = {
        event.index: event.num_steps
        for event in events
        if isinstance(event, Block) and event.rank == warmed.rank
    }
    return Repeat(warmup=len(warmed.wall_ns), blocks=tuple(blocks[key] for key in sorted(blocks)))


def _beside(lines: Sequence[Line], launch: str) -> set[str]:
    """Launches that ran while this one did."""
    running: set[str] = set()
    beside: set[str] = set()
    for line in lines:
        event = line.event
        if isinstance(event, LaunchStarted):
            running.add(event.launch)
        elif isinstance(event, LaunchEnded):
            running.discard(event.launch)
        if launch in running:
            beside |= running
    return beside - {launch}


def _worse(known: Check | None, other: Check) -> Check:
    return other if known is None or _badness(other) > _badness(known) else known


def _badness(check: Check) -> float:
    """Error over bound; what is not within its bound and has no such figure is the worst."""
    if not (math.isfinite(check.error) and math.isfinite(check.bound)) or check.error < 0:
        return math.inf
    if check.bound > 0:
        return check.error / check.bound
    return math.inf if check.error else 0.0


# ------------------------------------------------------------------ side by side


def outcome_pair(number: int, then: LaunchEvidence, now: LaunchEvidence) -> OutcomePair:
    return OutcomePair(
        launch=number,
        then=then.ended.outcome,
        then_reason=then.ended.reason,
        now=now.ended.outcome,
        now_reason=now.ended.reason,
        is_same=then.ended.outcome == now.ended.outcome,
    )


def check_pairs(number: int, then: LaunchEvidence, now: LaunchEvidence) -> Iterator[CheckPair]:
    for phase, name in dict.fromkeys([*then.checks, *now.checks]):
        first, second = then.checks.get((phase, name)), now.checks.get((phase, name))
        yield CheckPair(
            launch=number,
            phase=phase,
            name=name,
            then=first,
            now=second,
            is_same=_is_same_side(first, second),
        )


def _is_same_side(then: Check | None, now: Check | None) -> bool:
    if now is None:
        return False
    return now.is_within if then is None else then.is_within == now.is_within


def disagreements(outcomes: Sequence[OutcomePair], checks: Sequence[CheckPair]) -> Iterator[str]:
    for one in outcomes:
        if not one.is_same:
            then, now = _ended(one.then, one.then_reason), _ended(one.now, one.now_reason)
            yield f"launch {one.launch}: {then} then and {now} now"
    for pair in checks:
        if not pair.is_same:
            yield (
                f'launch {pair.launch}: the check "{pair.name}" of the {pair.phase} output was '
                f"{_side(pair.then)} then and is {_side(pair.now)} now"
            )


def _ended(outcome: Outcome, reason: str) -> str:
    return outcome + (f" ({reason})" if reason else "")


def _side(check: Check | None) -> str:
    if check is None:
        return "not made"
    return "within its bound" if check.is_within else "outside its bound"


def inputs(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[InputPair, ...]:
    return tuple(
        InputPair(
            name=name,
            then=then.get(name),
            now=now.get(name),
            is_same=then.get(name) == now.get(name),
        )
        for name in sorted({*then, *now})
    )


def times(results: tuple[CaseResult, CaseResult], number: int) -> Iterator[TimePair]:
    """Times of the launch; none for an untimed launch, and none that is withheld."""
    then, now = (
        next((item for item in result.launches if item.launch == f"{result.case}/{number}"), None)
        for result in results
    )
    if then is None or now is None:
        return
    clock = common_clock(results)
    locations = [item.location(clock) for item in (then, now)]
    steps = [None if value is None else math.exp(value) for value in locations]
    yield _time("step", steps[0], steps[1])
    yield _time("first step", then.first_step_seconds, now.first_step_seconds)


def _time(name: Literal["step", "first step"], then: float | None, now: float | None) -> TimePair:
    ratio = None if then is None or now is None or then <= 0 else now / then
    return TimePair(name=name, then_seconds=then, now_seconds=now, ratio=ratio)


def launch_differences(then: LaunchEvidence, now: LaunchEvidence | None) -> Iterator[str]:
    """How the launch itself was made another way."""
    if then.beside:
        others = f"{then.beside} other launch" + ("es" if then.beside > 1 else "")
        yield f"{others} ran beside it then, and none now"
    if now is None:
        return
    if then.mode != now.mode:
        yield f"the launch was {then.mode} and is {now.mode}"
    for name in sorted({*then.facts, *now.facts}):
        first, second = (_fact(one.facts.get(name)) for one in (then, now))
        if first != second:
            yield f"in the launch, {name} was {first} and is {second}"


def _fact(fact: Fact | None) -> str:
    return "not reported" if fact is None or fact.value is None else str(fact.value)


# ------------------------------------------------------------------ for people


def sentences(rerun: Rerun) -> tuple[str, ...]:
    """What differs, then and now side by side, and whether it agrees, for a person."""
    lines = [f"repeats {rerun.rerun_of} in {rerun.folder}"]
    lines += [f"other here: {sentence}" for sentence in rerun.differences]
    lines += [*_aligned(_rows(rerun)), *rerun.no_times]
    lines += [f"does not agree: {sentence}" for sentence in rerun.disagreements]
    word = "AGREES" if rerun.agrees else "DOES NOT AGREE"
    return (*lines, f"{word}  outcomes and checks; times of a single launch are shown, not judged")


def _rows(rerun: Rerun) -> Iterator[tuple[str, str, str, str]]:
    """What it is, then, now, and whether or by how much it differs."""
    yield "", "then", "now", ""
    for one in rerun.outcomes:
        ends = _ended(one.then, one.then_reason), _ended(one.now, one.now_reason)
        yield f"launch {one.launch}", *ends, "" if one.is_same else "DIFFERS"
    for pair in rerun.checks:
        name = f"launch {pair.launch}, {pair.phase}: {pair.name}"
        yield name, _error(pair.then), _error(pair.now), "" if pair.is_same else "DIFFERS"
    for item in rerun.inputs:
        digests = (item.then or "not made")[:12], (item.now or "not made")[:12]
        yield f"sha256 of {item.name}", *digests, "" if item.is_same else "differs"
    for time in rerun.times:
        ratio = "" if time.ratio is None else f"{(time.ratio - 1) * 100:+.2f} %"
        yield time.name, _seconds(time.then_seconds), _seconds(time.now_seconds), ratio


def _aligned(rows: Iterable[tuple[str, str, str, str]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, (*widths, 0), strict=True)).rstrip()
        for row in table
    ]


def _error(check: Check | None) -> str:
    return "not made" if check is None else f"{check.error:.3g} of {check.bound:.3g}"


def _seconds(seconds: float | None) -> str:
    return "not shown" if seconds is None else f"{seconds * 1e3:.4g} ms"
